package collector

import (
	"errors"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// condition returns why a device is not healthy, or an empty string.
func (t *trackedDevice) condition() string {
	switch {
	case t.lost:
		return "device is lost: it fell off the bus"
	case t.hung:
		return "device does not respond"
	case t.failed:
		return "cannot read device"
	}
	return ""
}

// logFaults logs changes of the device's condition, and of the calls that fail although the
// device can be read. The caller holds the lock.
func (c *Collector) logFaults(t *trackedDevice, err error) {
	log := c.cfg.Log.With("uuid", t.device.UUID)
	if now := t.condition(); now != t.loggedCondition {
		if now == "" {
			log.Info("device can be read again", "before", t.loggedCondition)
		} else {
			log.Warn("device cannot be read", "condition", now, "err", err, "deadline", c.cfg.Deadline)
		}
		t.loggedCondition = now
	}
	if t.fresh {
		c.logFailingCalls(t)
	}
}

// logFailingCalls logs each call that starts to fail, fails with another error, or succeeds
// again, and counts the failures. A call that has not failed counts 0, so that its first failure
// is an increase.
func (c *Collector) logFailingCalls(t *trackedDevice) {
	log := c.cfg.Log.With("uuid", t.device.UUID)
	failing := map[string]string{}
	for _, call := range t.reading.Calls {
		if call.Err == nil {
			c.callErrors[call.Name] += 0
			continue
		}
		c.callErrors[call.Name]++
		failing[call.Name] = call.Err.Error()
		if t.failingCalls[call.Name] != failing[call.Name] {
			log.Warn("a call to the driver fails; its metrics are missing", "call", call.Name, "err", call.Err)
		}
	}
	for _, name := range sortedKeys(t.failingCalls) {
		if failing[name] == "" {
			log.Info("a call to the driver succeeds again", "call", name)
		}
	}
	t.failingCalls = failing
}

// logHolderWithoutMemory logs when HAMi assigned none of a device's memory to one of its holders,
// to another one, or no longer to any. The caller holds the lock.
func (c *Collector) logHolderWithoutMemory(t *trackedDevice, holder string) {
	if holder == t.loggedWithoutMemory {
		return
	}
	log := c.cfg.Log.With("uuid", t.device.UUID)
	if holder == "" {
		log.Info("HAMi assigned memory to every holder of the device again", "before", t.loggedWithoutMemory)
	} else {
		log.Warn("HAMi assigned no memory to a holder of the device; what is allocated of its memory and cores is unknown", "container", holder)
	}
	t.loggedWithoutMemory = holder
}

// recordKubelet logs when the kubelet starts to fail, fails with another error, or responds
// again. The caller holds the lock.
func (c *Collector) recordKubelet(err error) {
	if errors.Is(err, podmap.ErrDisabled) {
		return
	}
	wasFailing := c.kubeletErrors.last != ""
	switch {
	case c.kubeletErrors.isNew(err):
		c.cfg.Log.Warn("cannot read the allocation of devices from the kubelet; free devices are unknown", "err", err)
	case err == nil && wasFailing:
		c.cfg.Log.Info("the kubelet reports the allocation of devices again")
	}
}

// kubeletError returns why the holders of devices are unknown, or nil. ok is false if the
// kubelet is not queried.
func (c *Collector) kubeletError() (ok bool, err error) {
	m, err := c.pods.Last()
	if errors.Is(err, podmap.ErrDisabled) {
		return false, nil
	}
	return true, errors.Join(err, m.AllocatableErr)
}

// renderFailures writes the calls that the driver denied in the last readings, and the
// number of failures of each call.
func (r *renderer) renderFailures() {
	denied := map[string]bool{}
	for _, d := range r.snapshot.devices {
		for _, call := range d.reading.Calls {
			if d.fresh && errors.Is(call.Err, device.ErrDenied) {
				denied[call.Name] = true
			}
		}
	}
	for _, name := range sortedKeys(denied) {
		r.families.add(callDenied, 1, r.node, name)
	}
	for _, name := range sortedKeys(r.snapshot.callErrors) {
		r.families.add(callErrors, r.snapshot.callErrors[name], r.node, name)
	}
}
