package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// NamedSource is a source and its name in --source.
type NamedSource struct {
	Name string
	device.Source
}

// vendor collects from one source in the background, independently of other vendors.
type vendor struct {
	NamedSource
	stalled atomic.Bool
	up      atomic.Bool  // the last listing succeeded
	pending chan listing // a listing that has not returned yet

	// Result of the last listing. The lock of the Collector guards these fields.
	devices     []device.Device
	undescribed int
	at          time.Time // of the last successful collection; zero before the first

	// Collections, successful or not. The lock of the Collector guards these fields.
	errors float64
	took   time.Duration // duration of the last one
}

// listing is the result of listing the devices of a source.
type listing struct {
	devices     []device.Device
	undescribed int
	xids        []device.XID
	err         error
}

// run collects from a vendor whenever due receives a value, until ctx ends. If the source has
// never been available, the pauses grow up to a minute. run returns device.ErrRestart.
func (c *Collector) run(ctx context.Context, v *vendor, due <-chan struct{}) error {
	pause := c.cfg.Interval
	var next time.Time // of a source that has never been available
	var reported reportedErrors
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		}
		start := time.Now()
		if start.Before(next) {
			continue
		}
		err := c.collect(ctx, v)
		if errors.Is(err, device.ErrRestart) {
			return err
		}
		neverAvailable := err != nil && v.at.IsZero()
		if pause = nextPause(c.cfg.Interval, pause, neverAvailable); neverAvailable {
			next = start.Add(pause)
		}
		wasFailing := reported.last != ""
		if reported.isNew(err) {
			c.cfg.Log.Warn("collection failed", "source", v.Name, "err", err, "serving", c.describeServed(v))
		}
		if err == nil && wasFailing {
			c.cfg.Log.Info("collection succeeds again", "source", v.Name)
		}
	}
}

// nextPause returns the time until the next collection: the interval, or twice the last
// pause if the source has never been available.
func nextPause(interval, last time.Duration, neverAvailable bool) time.Duration {
	if !neverAvailable {
		return interval
	}
	return max(interval, min(2*last, time.Minute))
}

// collect reads the devices of a vendor and publishes the devices of all vendors.
func (c *Collector) collect(ctx context.Context, v *vendor) error {
	start := time.Now()
	l := c.list(ctx, v)
	if l.err != nil {
		v.up.Store(false)
		c.mu.Lock()
		v.errors++
		v.took = time.Since(start)
		c.publishFailure(v)
		c.mu.Unlock()
		if v.Name != "" {
			return fmt.Errorf("%s: %w", v.Name, l.err)
		}
		return l.err
	}
	all := c.trackListed(v, l)
	var withInstances []*trackedDevice
	for _, t := range all {
		c.read(ctx, v, t)
		instances := c.trackInstances(t)
		for _, instance := range instances {
			c.readInstance(ctx, v, instance)
		}
		withInstances = append(append(withInstances, t), instances...)
	}
	jobs := c.readJobs(withInstances) // can take long, so without the lock
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range withInstances {
		t.jobs = jobs[t.device.UUID]
	}
	v.at, v.took = now, time.Since(start)
	v.up.Store(true)
	// If one device hangs, the device is at fault. If all of several devices hang, the
	// driver's lock is held.
	v.stalled.Store(len(all) > 1 && !slices.ContainsFunc(all, func(t *trackedDevice) bool { return !t.hung }))
	c.publish(now)
	return nil
}

// publishFailure publishes that a vendor's devices could not be listed. What an earlier collection
// measured is left out: a device that was idle may be busy now. The time of the last collection
// and the counters stay. The caller holds the lock.
func (c *Collector) publishFailure(v *vendor) {
	if v.at.IsZero() { // it has no devices, and maybe no vendor has any yet
		c.store(c.exposition.Load().collected)
		return
	}
	for _, d := range v.devices {
		t := c.tracked[d.UUID]
		if t == nil {
			continue // another vendor dropped a device of the same UUID
		}
		t.recordUnread()
		for _, instance := range t.instances {
			instance.recordUnread()
		}
	}
	c.publish(c.cfg.Now())
}

// readJobs returns the jobs outside of Kubernetes that use the selected devices, by UUID.
func (c *Collector) readJobs(all []*trackedDevice) map[string][]string {
	if c.cfg.Jobs == nil {
		return nil
	}
	var selected []device.Device
	for _, t := range all {
		if c.cfg.Labels.Devices.includes(t.device) {
			selected = append(selected, t.device)
		}
	}
	return c.cfg.Jobs(selected)
}

// trackListed tracks the listed devices and counts their events. Devices that the
// vendor no longer lists are dropped.
func (c *Collector) trackListed(v *vendor, l listing) []*trackedDevice {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := map[string]bool{}
	for _, d := range v.devices {
		removed[d.UUID] = true
	}
	var all []*trackedDevice
	for _, d := range l.devices {
		delete(removed, d.UUID)
		all = append(all, c.track(d))
	}
	for uuid := range removed {
		c.untrack(c.tracked[uuid].instances)
		delete(c.tracked, uuid)
	}
	for _, xid := range l.xids {
		if t := c.tracked[xid.UUID]; t != nil {
			t.recordXID(c.cfg.Now(), xid.Code)
		}
	}
	v.devices, v.undescribed = l.devices, l.undescribed
	return all
}

// errStalled is the error of a listing that exceeds its deadline: no call of the
// vendor's library returns, because another process or a broken device holds its lock.
var errStalled = errors.New("the driver does not respond; its lock may be held")

// list lists the devices and takes their events. A listing that exceeds the deadline
// keeps running, and later calls wait for the same listing.
func (c *Collector) list(ctx context.Context, v *vendor) listing {
	if v.pending == nil {
		v.pending = make(chan listing, 1)
		go func(done chan<- listing) {
			l := listing{}
			if l.devices, l.err = v.Devices(ctx); l.err == nil {
				l.xids = v.XIDs()
				if counter, ok := v.Source.(device.UndescribedCounter); ok {
					l.undescribed = counter.Undescribed()
				}
			}
			done <- l
		}(v.pending)
	}
	// The first listing initializes the library, which takes seconds on idle devices.
	timer := time.NewTimer(10 * c.cfg.Deadline)
	defer timer.Stop()
	select {
	case l := <-v.pending:
		v.pending = nil
		if l.err != nil { // an error is a response
			v.stalled.Store(false)
		}
		return l
	case <-ctx.Done():
		return listing{err: ctx.Err()}
	case <-timer.C:
		v.stalled.Store(true)
		return listing{err: errStalled}
	}
}
