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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	Pods     Pods // nil where the API server is not asked
	Owners   bool // of pods, where Pods tells them
	// Jobs outside of Kubernetes that have a device; nil where none are mapped.
	Jobs func(d device.Device) []string
	// PodOf a process by its id on the host; nil where that can't be told.
	PodOf func(pid int) (namespace, name string, ok bool)
	// Attribution of what several pods use up of one device; BySplit by default.
	Attribution Attribution
	Log         *slog.Logger
	Own         *prometheus.Registry // the process's own metrics, served behind the devices'; none by default
	Now         func() time.Time     // time.Now by default

	// Windows within which dcgm-exporter's counts of events are taken; five
	// minutes by default.
	XIDWindow, ClockEventsWindow time.Duration
}

// Labels say how dcgm-exporter's labels are written.
type Labels struct {
	Dialect       string // legacy (Hostname) or 4.8 (hostname); legacy by default
	ReplaceBlanks bool   // in modelName, by -
	NoHostname    bool
	OldNamespace  bool                  // container_name, pod_namespace and pod_name
	PodUID        bool                  // where Pods tells it
	PodLabel      func(key string) bool // which of the pod's labels are written; nil for none
	VirtualGPUs   bool                  // a series for each replica, with its name as vgpu, and the device's whole value
	Devices       Devices               // that have dcgm-exporter's metrics
}

// Collector reads each vendor's Source into one set of families.
type Collector struct {
	cfg     Config
	pods    *podmap.Poller
	vendors []*vendor

	snapshot atomic.Pointer[snapshot]
	selected atomic.Pointer[selection]

	mu    sync.Mutex        // of what follows, and of what vendors say they found
	known map[string]*known // by UUID
}

// known is what is remembered of a device between collections.
type known struct {
	device   device.Device
	parent   *known   // of an instance
	parts    []*known // instances of a device
	shares   shares
	used     *usage // of the last reading
	reading  device.Reading
	fresh    bool // read in the last collection
	lost     bool
	failed   bool // answers with another error
	stuck    bool // a reading is past its deadline
	took     time.Duration
	xids     map[uint64]float64
	lastXID  uint64
	bogus    [device.NumFields]float64 // values that were left out
	idleFrom time.Time
	heldBy   []podmap.Holder
	heldFrom time.Time

	recentXIDs, recentClocks recent

	pending  chan outcome // a reading under way; only the vendor's goroutine uses it
	expected int          // instances of which a reading tells; the same goroutine's
}

type outcome struct {
	reading device.Reading
	err     error
	took    time.Duration
}

// New collector of one source; call Run, or Collect for a single time.
func New(cfg Config, source device.Source, pods *podmap.Poller) *Collector {
	return NewAuto(cfg, pods, Named{"", source})
}

// NewAuto collector of whatever is there: it is content with one of the sources,
// and goes on looking for the others.
func NewAuto(cfg Config, pods *podmap.Poller, sources ...Named) *Collector {
	if cfg.Deadline == 0 {
		cfg.Deadline = time.Second
	}
	for _, e := range countedEvents {
		if window := e.window(&cfg); *window == 0 {
			*window = 5 * time.Minute
		}
	}
	if cfg.Own == nil {
		cfg.Own = prometheus.NewRegistry()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Attribution == "" {
		cfg.Attribution = BySplit
	}
	c := &Collector{cfg: cfg, pods: pods, known: map[string]*known{}}
	for _, s := range sources {
		c.vendors = append(c.vendors, &vendor{Named: s})
	}
	c.selected.Store(everything())
	c.store(time.Time{}, nil)
	return c
}

// Run collects at each interval until ctx ends, each vendor by itself.
func (c *Collector) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, v := range c.vendors {
		all.Go(func() { c.run(ctx, v) })
	}
	all.Wait()
}

// Collect once: who holds what, then every vendor's devices, then the new snapshot.
// It fails when no vendor's devices can be listed; the snapshot then keeps what was
// known of them.
func (c *Collector) Collect(ctx context.Context) error {
	failures := make([]error, len(c.vendors))
	var all sync.WaitGroup
	for i, v := range c.vendors {
		all.Go(func() { failures[i] = c.collect(ctx, v) })
	}
	all.Wait()
	if slices.Contains(failures, nil) {
		return nil
	}
	return errors.Join(failures...)
}

// publish what is known now of every vendor's devices as the snapshot that scrapes
// get; the caller holds the lock.
func (c *Collector) publish(now time.Time) {
	var devices []device.Device
	for _, v := range c.vendors {
		for _, d := range v.devices {
			devices = append(devices, d)
			for _, part := range c.known[d.UUID].parts {
				devices = append(devices, part.device)
			}
		}
	}
	pods, podErr := c.pods.Last()
	families := c.render(now, devices, pods, podErr)
	if twice := unique(families); len(twice) > 0 {
		c.cfg.Log.Warn("series that came twice are exposed once", "metrics", twice)
	}
	c.store(now, families)
}

// serving says what scrapes get meanwhile.
func (c *Collector) serving() string {
	if s := c.snapshot.Load(); !s.at.IsZero() {
		return "the collection of " + s.at.Format(time.RFC3339)
	}
	return "no device metrics yet"
}

// trackIdle remembers since when the device has done nothing.
func (k *known) trackIdle(r device.Reading) {
	utilization, ok := busy(r)
	switch {
	case !ok || utilization >= 1:
		k.idleFrom = time.Time{}
	case k.idleFrom.IsZero():
		k.idleFrom = r.Time
	}
}

// hold remembers who holds the device, and since when just these do.
func (k *known) hold(by []podmap.Holder, now time.Time) {
	changed := len(by) != len(k.heldBy) || slices.ContainsFunc(by, func(h podmap.Holder) bool { return !slices.Contains(k.heldBy, h) })
	if changed {
		k.heldBy, k.heldFrom = by, now
	}
}

// idle is for how long its holders have let the device do nothing.
func (k *known) idle(now time.Time) time.Duration {
	from := k.idleFrom
	if from.IsZero() {
		return 0
	}
	if k.heldFrom.After(from) {
		from = k.heldFrom
	}
	return now.Sub(from)
}

func (k *known) countBogus(r device.Reading) {
	for f := range k.bogus {
		k.bogus[f] += flag(r.Bogus(device.Field(f)))
	}
}

func (k *known) hung() bool    { return k.stuck }
func (k *known) healthy() bool { return !k.lost && !k.failed && !k.hung() }

// WriteText writes the last snapshot, without the process's own metrics, in Prometheus' text format.
func (c *Collector) WriteText(w io.Writer) error {
	var b bytes.Buffer
	c.snapshot.Load().write(&b, plainText)
	_, err := b.WriteTo(w)
	return err
}
