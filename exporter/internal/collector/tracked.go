package collector

import (
	"errors"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// trackedDevice is the state of a device or MIG instance that the collector keeps
// between collections.
type trackedDevice struct {
	device    device.Device
	parent    *trackedDevice   // the device of a MIG instance
	instances []*trackedDevice // the MIG instances of a device

	// Result of the last reading.
	reading      device.Reading // the last successful one
	usage        *processUsage
	readDuration time.Duration
	fresh        bool // the last collection read the device successfully
	lost         bool // the device fell off the bus
	failed       bool // the reading failed with another error
	hung         bool // a reading exceeds its deadline

	// Counters since the exporter started, and events within their windows.
	xidCounts         map[uint64]float64
	lastXID           uint64
	implausible       [device.NumFields]float64 // values that were left out
	recentXIDs        eventHistory
	recentClockEvents eventHistory
	clockEvents       clockEventCounter

	// Accounting.
	idleSince    time.Time // zero while the device is busy or cannot be read
	holders      []podmap.Holder
	holdersSince time.Time // time of the last change of holders
	attribution  podAttribution
	jobs         []string // outside of Kubernetes, at the last collection

	// What the log says about the device.
	loggedCondition string
	// loggedWithoutMemory is the holder without memory that was logged last.
	loggedWithoutMemory string
	failingCalls        map[string]string // errors by call

	// Only the goroutine of the vendor uses these fields.
	pending           chan readResult // a reading that has not returned yet
	expectedInstances int             // number of instances in the last reading
}

// isHealthy reports whether the last reading succeeded.
func (t *trackedDevice) isHealthy() bool { return !t.lost && !t.failed && !t.hung }

// track returns the tracked state of a device and creates it for a new device. The
// caller holds the lock.
func (c *Collector) track(d device.Device) *trackedDevice {
	t := c.tracked[d.UUID]
	if t == nil {
		t = &trackedDevice{xidCounts: map[uint64]float64{}, recentXIDs: eventHistory{window: c.cfg.XIDWindow}, recentClockEvents: eventHistory{window: c.cfg.ClockEventsWindow}}
		c.tracked[d.UUID] = t
	}
	t.device = d
	return t
}

// untrack drops the state of MIG instances. The caller holds the lock.
func (c *Collector) untrack(instances []*trackedDevice) {
	for _, t := range instances {
		delete(c.tracked, t.device.UUID)
	}
}

// trackInstances tracks the MIG instances in the last reading of a device, and drops
// instances that are not in the reading anymore.
func (c *Collector) trackInstances(t *trackedDevice) []*trackedDevice {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := t.instances
	t.instances = nil
	for _, d := range t.reading.Instances {
		instance := c.track(d)
		instance.parent = t
		t.instances = append(t.instances, instance)
	}
	c.untrack(slices.DeleteFunc(old, func(instance *trackedDevice) bool { return slices.Contains(t.instances, instance) }))
	return slices.Clone(t.instances)
}

func (t *trackedDevice) recordXID(now time.Time, code uint64) {
	t.xidCounts[code]++
	t.lastXID = code
	t.recentXIDs.add(now, code)
}

// recordReading records the result of a reading that returned within its deadline.
func (t *trackedDevice) recordReading(now time.Time, r readResult, usage *processUsage) {
	t.hung, t.readDuration, t.fresh, t.usage = false, r.duration, r.err == nil, usage
	t.lost = errors.Is(r.err, device.ErrLost)
	t.failed = r.err != nil && !t.lost
	if r.err != nil {
		t.resetIdleTime()
		return
	}
	t.reading, t.expectedInstances = r.reading, len(r.reading.Instances)
	t.updateIdleSince(r.reading)
	for f := range t.implausible {
		t.implausible[f] += boolValue(r.reading.Bogus(device.Field(f)))
	}
	if bits, ok := r.reading.Get(device.ClockEvents); ok {
		t.recentClockEvents.add(now, uint64(bits))
		t.clockEvents.observe(uint64(bits))
	}
}

// recordHang records that a reading exceeds its deadline.
func (t *trackedDevice) recordHang() {
	t.hung, t.fresh = true, false
	t.resetIdleTime()
}

// recordUnread records that the device was not read, because its source could not list its devices.
func (t *trackedDevice) recordUnread() {
	t.fresh = false
	t.resetIdleTime()
}

// resetIdleTime ends the idle time of a device that could not be read: it may have been busy.
func (t *trackedDevice) resetIdleTime() { t.idleSince = time.Time{} }

// updateIdleSince starts the idle clock at a reading with less than 1% utilization. A
// reading that is busy, or without utilization, resets the clock.
func (t *trackedDevice) updateIdleSince(r device.Reading) {
	percent, ok := utilization(r)
	switch {
	case !ok || percent >= 1:
		t.idleSince = time.Time{}
	case t.idleSince.IsZero():
		t.idleSince = r.Time
	}
}

// updateHolders records the containers that hold the device. The time changes only if
// the set of holders does.
func (t *trackedDevice) updateHolders(holders []podmap.Holder, now time.Time) {
	changed := len(holders) != len(t.holders) || slices.ContainsFunc(holders, func(h podmap.Holder) bool { return !slices.Contains(t.holders, h) })
	if changed {
		t.holders, t.holdersSince = holders, now
	}
}

// idleAllocated returns for how long the device has been idle under its current
// holders, at least 1 ms: 0 is a busy device. Idle time before their allocation does not count.
func (t *trackedDevice) idleAllocated(now time.Time) time.Duration {
	since := t.idleSince
	if since.IsZero() {
		return 0
	}
	if t.holdersSince.After(since) {
		since = t.holdersSince
	}
	return max(now.Sub(since), time.Millisecond)
}

// utilization returns the utilization of the device in percent. MIG instances report
// only the activity of their engine. A TPU without the runtime of a workload is at 0.
func utilization(r device.Reading) (percent float64, ok bool) {
	for _, f := range []device.Field{device.GPUUtil, device.DutyCycle} {
		if v, ok := r.Get(f); ok {
			return v, true
		}
	}
	if active, ok := r.Get(device.EngineActive); ok {
		return 100 * active, true
	}
	up, ok := r.Get(device.Workload)
	return 0, ok && up == 0
}
