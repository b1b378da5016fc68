// Package collector reads every device in the background and keeps the result as
// one immutable snapshot, which is encoded when it is first scraped. No device is
// ever called by a scrape.
package collector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

//go:generate go run ./metricsmd ../../METRICS.md

// Config of a Collector.
type Config struct {
	Node     string        // Kubernetes name of the node, also Hostname
	Interval time.Duration // between collections
	Deadline time.Duration // of one reading; 1 s by default
	Labels   Labels
	Log      *slog.Logger
	Now      func() time.Time // time.Now by default
}

// Labels say how dcgm-exporter's labels are written.
type Labels struct {
	Dialect       string // legacy (Hostname) or 4.8 (hostname); legacy by default
	ReplaceBlanks bool   // in modelName, by -
	NoHostname    bool
	OldNamespace  bool // container_name, pod_namespace and pod_name
}

// Collector reads a Source into families.
type Collector struct {
	cfg    Config
	source device.Source
	pods   *podmap.Poller

	snapshot atomic.Pointer[snapshot]
	selected atomic.Pointer[selection]
	stalled  atomic.Bool       // listing the devices is past its deadline
	listing  chan listed       // a listing under way
	known    map[string]*known // by UUID; only the collecting goroutine uses it
}

type listed struct {
	devices []device.Device
	xids    []device.XID
	err     error
}

// known is what is remembered of a device between collections.
type known struct {
	device   device.Device
	reading  device.Reading
	fresh    bool // read in this collection
	lost     bool
	failed   bool         // answers with another error
	pending  chan outcome // a reading past its deadline
	took     time.Duration
	xids     map[uint64]float64
	lastXID  uint64
	idleFrom time.Time
}

type outcome struct {
	reading device.Reading
	err     error
	took    time.Duration
}

// New collector; call Run, or Collect for a single time.
func New(cfg Config, source device.Source, pods *podmap.Poller) *Collector {
	if cfg.Deadline == 0 {
		cfg.Deadline = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Collector{cfg: cfg, source: source, pods: pods, known: map[string]*known{}}
	c.selected.Store(everything())
	c.snapshot.Store(newSnapshot(nil, time.Time{}))
	return c
}

// Run collects at each interval until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	said := ""
	for {
		err := c.Collect(ctx)
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			c.cfg.Log.Warn("collection failed", "err", err, "serving", c.serving())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Collect once: who holds what, then every device, then the new snapshot. It
// fails, and leaves the last snapshot, only when the devices can't be listed.
func (c *Collector) Collect(ctx context.Context) error {
	// An unknown map is visible as plimsoll_exporter_unmapped_devices.
	_ = c.pods.Poll(ctx)
	l := c.list(ctx)
	if l.err != nil {
		return l.err
	}
	present := map[string]bool{}
	for _, d := range l.devices {
		present[d.UUID] = true
		k := c.known[d.UUID]
		if k == nil {
			k = &known{xids: map[uint64]float64{}}
			c.known[d.UUID] = k
		}
		k.device = d
		c.read(ctx, k)
	}
	for uuid := range c.known {
		if !present[uuid] {
			delete(c.known, uuid)
		}
	}
	for _, xid := range l.xids {
		if k := c.known[xid.UUID]; k != nil {
			k.xids[xid.Code]++
			k.lastXID = xid.Code
		}
	}
	c.publish(c.cfg.Now(), l.devices)
	return nil
}

// publish what is known now as the snapshot that scrapes get.
func (c *Collector) publish(now time.Time, devices []device.Device) {
	pods, podErr := c.pods.Last()
	families := c.render(now, devices, pods, podErr)
	if twice := unique(families); len(twice) > 0 {
		c.cfg.Log.Warn("series that came twice are exposed once", "metrics", twice)
	}
	c.snapshot.Store(newSnapshot(families, now))
}

// serving says what scrapes get meanwhile.
func (c *Collector) serving() string {
	if s := c.snapshot.Load(); !s.at.IsZero() {
		return "the collection of " + s.at.Format(time.RFC3339)
	}
	return "no device metrics yet"
}

// errStalled says that the vendor's library does not answer at all: its lock is
// held, and no device can be read.
var errStalled = errors.New("the driver does not answer; something holds its lock")

// list the devices, and take their events, within the deadline. A listing that stalls is left alone until
// it returns.
func (c *Collector) list(ctx context.Context) listed {
	if c.listing == nil {
		c.listing = make(chan listed, 1)
		go func(listing chan<- listed) {
			l := listed{}
			if l.devices, l.err = c.source.Devices(ctx); l.err == nil {
				l.xids = c.source.XIDs()
			}
			listing <- l
		}(c.listing)
	}
	// The first listing initialises the library, which takes seconds on idle devices.
	timer := time.NewTimer(10 * c.cfg.Deadline)
	defer timer.Stop()
	select {
	case l := <-c.listing:
		c.listing = nil
		c.stalled.Store(false)
		return l
	case <-timer.C:
		c.stalled.Store(true)
		return listed{err: errStalled}
	}
}

// read a device within the deadline. One whose reading has stalled is left alone
// until that reading returns, so that a wedged device costs one goroutine, once.
func (c *Collector) read(ctx context.Context, k *known) {
	k.fresh = false
	if k.pending == nil {
		k.pending = make(chan outcome, 1)
		go func(pending chan<- outcome, d device.Device) {
			start := time.Now()
			reading, err := c.source.Read(ctx, d)
			pending <- outcome{reading, err, time.Since(start)}
		}(k.pending, k.device)
	} else if len(k.pending) == 0 {
		return
	}
	timer := time.NewTimer(c.cfg.Deadline)
	defer timer.Stop()
	select {
	case o := <-k.pending:
		k.pending, k.took = nil, o.took
		k.lost = errors.Is(o.err, device.ErrLost)
		k.failed = o.err != nil && !k.lost
		switch {
		case o.err == nil:
			k.reading, k.fresh = o.reading, true
			k.trackIdle(o.reading)
		case k.failed:
			c.cfg.Log.Warn("a device could not be read", "uuid", k.device.UUID, "err", o.err)
		}
	case <-timer.C:
		c.cfg.Log.Warn("a device does not answer", "uuid", k.device.UUID, "deadline", c.cfg.Deadline)
	}
}

// trackIdle remembers since when the device has done nothing.
func (k *known) trackIdle(r device.Reading) {
	utilisation, ok := r.Get(device.GPUUtil)
	switch {
	case !ok || utilisation >= 1:
		k.idleFrom = time.Time{}
	case k.idleFrom.IsZero():
		k.idleFrom = r.Time
	}
}

func (k *known) hung() bool    { return k.pending != nil }
func (k *known) healthy() bool { return !k.lost && !k.failed && !k.hung() }

// Healthy is nil while the last collection is younger than three intervals (ten
// seconds at least), else what to look at.
func (c *Collector) Healthy() error {
	limit := max(3*c.cfg.Interval, 10*time.Second)
	if c.stalled.Load() {
		return errStalled
	}
	s := c.snapshot.Load()
	if s.at.IsZero() {
		return errors.New("no collection has succeeded yet; the log says why")
	}
	if age := c.cfg.Now().Sub(s.at); age > limit {
		return errors.New("the last collection is " + age.Round(time.Second).String() + " old; the log says why")
	}
	return nil
}

// WriteText writes the last snapshot in Prometheus' text format.
func (c *Collector) WriteText(w io.Writer) error {
	var b bytes.Buffer
	b.Write(c.snapshot.Load().plain[plainText]())
	c.writeState(&b, plainText)
	_, err := b.WriteTo(w)
	return err
}

// writeState writes what is told also while there is no new snapshot.
func (c *Collector) writeState(b *bytes.Buffer, d *dialect) {
	p := page{}
	p.own(driverStalled, flag(c.stalled.Load()), c.cfg.Node)
	d.write(b, p.families())
}
