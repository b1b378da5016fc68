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

// Named source, as --source calls it.
type Named struct {
	Name string
	device.Source
}

// vendor is one source and its collection in the background: nothing of it waits
// for another vendor's devices.
type vendor struct {
	Named
	stalled atomic.Bool
	up      atomic.Bool // the last listing succeeded
	listing chan listed // a listing under way

	// What it found last, under the collector's lock.
	devices []device.Device
	silent  int       // that it can't list
	at      time.Time // of the last collection that listed them; zero before the first
}

type listed struct {
	devices []device.Device
	silent  int
	xids    []device.XID
	err     error
}

// run collects at each interval. A source that isn't there is looked for less and
// less often, up to once a minute.
func (c *Collector) run(ctx context.Context, v *vendor) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	said, wait := "", c.cfg.Interval
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		err := c.collect(ctx, v)
		wait = pause(c.cfg.Interval, wait, err != nil && v.at.IsZero())
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			c.cfg.Log.Warn("collection failed", "source", v.Name, "err", err, "serving", c.serving())
		}
		timer.Reset(max(0, wait-time.Since(start)))
	}
}

// pause until the next collection: the interval, or twice the last pause where a
// source has never been there.
func pause(interval, last time.Duration, never bool) time.Duration {
	if !never {
		return interval
	}
	return max(interval, min(2*last, time.Minute))
}

// collect one vendor's devices, and publish what is known of all.
func (c *Collector) collect(ctx context.Context, v *vendor) error {
	// An unknown map is visible as plimsoll_exporter_unmapped_devices.
	_ = c.pods.Poll(ctx)
	l := c.list(ctx, v)
	if l.err != nil {
		v.up.Store(false)
		c.again()
		if v.Name != "" {
			return fmt.Errorf("%s: %w", v.Name, l.err)
		}
		return l.err
	}
	all := c.know(v, l)
	for _, k := range all {
		c.read(ctx, v, k)
		for _, part := range c.partsOf(k) {
			c.readInstance(ctx, v, part)
		}
	}
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	v.at = now
	v.up.Store(true)
	// One device that hangs is its own fault; when all do, the driver's lock is held.
	v.stalled.Store(len(all) > 1 && !slices.ContainsFunc(all, func(k *known) bool { return !k.hung() }))
	c.publish(now)
	return nil
}

// know the devices that a vendor lists, and forget those that it no longer does.
func (c *Collector) know(v *vendor, l listed) []*known {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := map[string]bool{}
	for _, d := range v.devices {
		gone[d.UUID] = true
	}
	var all []*known
	for _, d := range l.devices {
		delete(gone, d.UUID)
		all = append(all, c.remember(d))
	}
	for uuid := range gone {
		c.forget(c.known[uuid].parts)
		delete(c.known, uuid)
	}
	for _, xid := range l.xids {
		if k := c.known[xid.UUID]; k != nil {
			k.xids[xid.Code]++
			k.lastXID = xid.Code
			k.recentXIDs.add(c.cfg.Now(), xid.Code, c.cfg.XIDWindow)
		}
	}
	v.devices, v.silent = l.devices, l.silent
	return all
}

func (c *Collector) remember(d device.Device) *known {
	k := c.known[d.UUID]
	if k == nil {
		k = &known{xids: map[uint64]float64{}}
		c.known[d.UUID] = k
	}
	k.device = d
	return k
}

// errStalled says that the vendor's library does not answer at all: its lock is
// held, and no device can be read.
var errStalled = errors.New("the driver does not answer; something holds its lock")

// list the devices, and take their events, within the deadline. A listing that
// stalls is left alone until it returns.
func (c *Collector) list(ctx context.Context, v *vendor) listed {
	if v.listing == nil {
		v.listing = make(chan listed, 1)
		go func(listing chan<- listed) {
			l := listed{}
			if l.devices, l.err = v.Devices(ctx); l.err == nil {
				l.xids = v.XIDs()
				l.silent = undescribedOf(v.Source)
			}
			listing <- l
		}(v.listing)
	}
	// The first listing initializes the library, which takes seconds on idle devices.
	timer := time.NewTimer(10 * c.cfg.Deadline)
	defer timer.Stop()
	select {
	case l := <-v.listing:
		v.listing = nil
		if l.err != nil { // it does answer
			v.stalled.Store(false)
		}
		return l
	case <-ctx.Done():
		return listed{err: ctx.Err()}
	case <-timer.C:
		v.stalled.Store(true)
		return listed{err: errStalled}
	}
}

func undescribedOf(s device.Source) int {
	if counter, ok := s.(device.UndescribedCounter); ok {
		return counter.Undescribed()
	}
	return 0
}

// patience is how many deadlines a reading gets whose every call keeps its own,
// besides one for each instance that the device has to tell of.
const patience = 5

// read a device, each of its calls within the deadline. One whose reading has
// stalled is left alone until that reading returns, so that a wedged device costs
// one goroutine, once. What it then tells is of another time: it is read anew.
func (c *Collector) read(ctx context.Context, v *vendor, k *known) {
	if k.pending != nil {
		select {
		case late := <-k.pending:
			k.expected = len(late.reading.Instances)
		default:
			return
		}
	}
	pending, beats := begin(ctx, v, k.device)
	k.pending = pending
	o, answered := c.await(ctx, pending, beats, patience+k.expected)
	used := c.usedBy(o.reading.Processes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return // the end, and nobody's fault
	}
	if !answered {
		k.stuck, k.fresh = true, false
		c.cfg.Log.Warn("a device does not answer", "uuid", k.device.UUID, "deadline", c.cfg.Deadline)
		return
	}
	k.pending, k.used = nil, used
	k.take(o)
	if bits, ok := o.reading.Get(device.ClockEvents); ok {
		k.recentClocks.add(c.cfg.Now(), uint64(bits), c.cfg.ClockEventsWindow)
	}
	if k.failed {
		c.cfg.Log.Warn("a device could not be read", "uuid", k.device.UUID, "err", o.err)
	}
}

// begin a reading, of which each call that returns is a beat.
func begin(ctx context.Context, v *vendor, d device.Device) (chan outcome, <-chan struct{}) {
	pending, beats := make(chan outcome, 1), make(chan struct{}, 1)
	ctx = device.WithProgress(ctx, func() {
		select {
		case beats <- struct{}{}:
		default: // the last one was not heard yet
		}
	})
	go func() {
		start := time.Now()
		reading, err := v.Read(ctx, d)
		pending <- outcome{reading, err, time.Since(start)}
	}()
	return pending, beats
}

// await a reading; false when a call is past its deadline, or all together are, or
// ctx ends.
func (c *Collector) await(ctx context.Context, pending <-chan outcome, beats <-chan struct{}, deadlines int) (o outcome, answered bool) {
	call, all := time.NewTimer(c.cfg.Deadline), time.NewTimer(time.Duration(deadlines)*c.cfg.Deadline)
	defer call.Stop()
	defer all.Stop()
	for {
		select {
		case o := <-pending:
			return o, true
		case <-ctx.Done():
			return o, false
		case <-beats:
			call.Reset(c.cfg.Deadline)
		case <-call.C:
			return o, false
		case <-all.C:
			return o, false
		}
	}
}

// take what a reading came to.
func (k *known) take(o outcome) {
	k.stuck, k.took, k.fresh = false, o.took, o.err == nil
	k.lost = errors.Is(o.err, device.ErrLost)
	k.failed = o.err != nil && !k.lost
	if o.err == nil {
		k.reading, k.expected = o.reading, len(o.reading.Instances)
		k.trackIdle(o.reading)
		k.countBogus(o.reading)
	}
}

// Healthy is nil while every vendor that is there was collected within three
// intervals (ten seconds at least), else what to look at.
func (c *Collector) Healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, now := max(3*c.cfg.Interval, 10*time.Second), c.cfg.Now()
	collected := false
	for _, v := range c.vendors {
		collected = collected || !v.at.IsZero()
		switch age := now.Sub(v.at); {
		case v.stalled.Load():
			return errStalled
		case !v.at.IsZero() && age > limit:
			return errors.New("the last collection is " + age.Round(time.Second).String() + " old; the log says why")
		}
	}
	if !collected {
		return errors.New("no collection has succeeded yet; the log says why")
	}
	return nil
}

// oldest of the vendors' last collections.
func (c *Collector) oldest() time.Time {
	var oldest time.Time
	for _, v := range c.vendors {
		if !v.at.IsZero() && (oldest.IsZero() || v.at.Before(oldest)) {
			oldest = v.at
		}
	}
	return oldest
}

// renderUndescribed counts the devices that no vendor can list, where any counts them.
func (c *Collector) renderUndescribed(p page) {
	n, counted := 0, false
	for _, v := range c.vendors {
		_, counts := v.Source.(device.UndescribedCounter)
		counted = counted || counts && !v.at.IsZero()
		n += v.silent
	}
	if counted {
		p.own(undescribed, float64(n), c.cfg.Node)
	}
}

// renderSources says which of the sources that are looked for are there.
func (c *Collector) renderSources(p page) {
	for _, v := range c.vendors {
		if v.Name != "" {
			p.own(sourceUp, flag(v.up.Load()), c.cfg.Node, v.Name)
		}
	}
}
