// Package collector reads every device in the background and serves the result of the
// last collection. A scrape never calls a device.
//
// A collection has three steps:
//
//  1. read: every device and MIG instance, each within a deadline (reading.go).
//  2. account: update holders, idle time, energy and recent events, and produce an
//     immutable snapshot (snapshot.go).
//  3. render: turn the snapshot into metric families (render.go), which are encoded at
//     the first scrape (exposition.go).
package collector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

//go:generate go run ./metricsmd ../../METRICS.md

// Config configures a Collector.
type Config struct {
	Node     string        // Kubernetes name of the node, also the Hostname label
	Interval time.Duration // between collections
	Deadline time.Duration // of one library call; default 1 s
	Labels   Labels
	Pods     Pods // metadata of pods; nil if the API server is not queried
	Owners   bool // export the owners of pods; needs Pods
	// Fractions returns what a pod requests from KAI Scheduler. Nil if that is not read.
	Fractions func(namespace, pod string) (podmap.Fraction, bool)
	Claims    Claims // shares of resource claims; nil if they are not read
	// Jobs returns the jobs outside of Kubernetes that use devices, by UUID. Nil if there is no
	// mapping. It can take long, and several vendors call it at the same time.
	Jobs func(devices []device.Device) map[string][]string
	// PodOf returns the pod of a process by its id on the host. Nil if processes are not
	// attributed.
	PodOf func(pid int) (namespace, name string, ok bool)
	// Attribution divides the usage of a shared device between its pods. Default BySplit.
	Attribution Attribution
	Log         *slog.Logger
	Own         *prometheus.Registry // metrics of the exporter process; default none
	// CountScrapes adds the metrics of the HTTP handler to Own.
	CountScrapes bool
	MaxScrapes   int // encoded at the same time; default 16
	// RequireDevices makes Healthy fail while no device is listed.
	RequireDevices bool
	Now            func() time.Time // default time.Now

	// XIDWindow and ClockEventsWindow are the windows of dcgm-exporter's event counts.
	// Default 5 minutes.
	XIDWindow, ClockEventsWindow time.Duration
}

// Labels configures the labels of dcgm-exporter's metrics.
type Labels struct {
	Dialect       string // names, units and labels; default DialectLegacy
	ReplaceBlanks bool   // replace blanks in modelName with -
	NoHostname    bool
	OldNamespace  bool                  // use container_name, pod_namespace and pod_name
	PodUID        bool                  // add pod_uid; needs Config.Pods
	PodLabel      func(key string) bool // selects labels of the pod to add; nil for none
	VirtualGPUs   bool                  // write a series for each replica, with label vgpu
	Devices       DeviceFilter          // selects the devices
}

// Collector collects from the sources of all vendors and serves one set of metrics.
type Collector struct {
	cfg     Config
	pods    *podmap.Poller
	vendors []*vendor

	exposition atomic.Pointer[exposition]
	selected   atomic.Pointer[selection]

	mu            sync.Mutex                // guards the fields below and the listings of the vendors
	tracked       map[string]*trackedDevice // by UUID
	kubeletErrors reportedErrors
	callErrors    map[string]float64 // failures by library call
	assigned      map[podmap.Holder]podmap.Accepted
	// loggedDuplicates are the metrics with duplicate series at the last publication.
	loggedDuplicates []string
}

// New returns a Collector. Call Run, or call Collect for each collection. A collection succeeds if at least one source
// succeeds, and each collection tries every source again.
func New(cfg Config, pods *podmap.Poller, sources ...NamedSource) *Collector {
	cfg.Deadline = cmp.Or(cfg.Deadline, time.Second)
	cfg.XIDWindow = cmp.Or(cfg.XIDWindow, 5*time.Minute)
	cfg.ClockEventsWindow = cmp.Or(cfg.ClockEventsWindow, 5*time.Minute)
	cfg.Attribution = cmp.Or(cfg.Attribution, BySplit)
	cfg.MaxScrapes = cmp.Or(cfg.MaxScrapes, 16)
	if cfg.Own == nil {
		cfg.Own = prometheus.NewRegistry()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Collector{cfg: cfg, pods: pods, tracked: map[string]*trackedDevice{}, callErrors: map[string]float64{}}
	for _, s := range sources {
		c.vendors = append(c.vendors, &vendor{NamedSource: s})
	}
	c.selected.Store(selectEverything(cfg.Labels.Dialect))
	c.store(nil)
	return c
}

// Run collects at each interval until ctx ends. At each interval it queries the kubelet
// once, and then lets each vendor collect. Vendors are collected independently: one that
// takes longer than the interval does not delay others. Run returns an error only if a source
// can continue in a new process only (device.ErrRestart).
func (c *Collector) Run(ctx context.Context) error {
	vendors, ctx := errgroup.WithContext(ctx)
	due := make([]chan struct{}, len(c.vendors))
	for i, v := range c.vendors {
		due[i] = make(chan struct{}, 1)
		vendors.Go(func() error { return c.run(ctx, v, due[i]) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return vendors.Wait()
		case <-timer.C:
		}
		start := time.Now()
		c.pollPods(ctx)
		for _, d := range due {
			select {
			case d <- struct{}{}:
			default: // the vendor has not started the last collection yet
			}
		}
		timer.Reset(max(0, c.cfg.Interval-time.Since(start)))
	}
}

// Collect queries the kubelet and collects from every vendor once. It fails if no vendor can list its devices.
// The exposition then has the devices of the last listing, without measurements.
func (c *Collector) Collect(ctx context.Context) error {
	c.pollPods(ctx)
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

// publish accounts and renders the devices of every vendor. The caller holds the lock.
func (c *Collector) publish(now time.Time) {
	pods, podsErr := c.pods.Last()
	s := c.account(now, pods, podsErr)
	families := render(c.cfg.Node, c.cfg.Labels, s)
	duplicates := dropDuplicates(families)
	if len(duplicates) > 0 && !slices.Equal(duplicates, c.loggedDuplicates) {
		c.cfg.Log.Warn("dropped duplicate series", "metrics", duplicates)
	}
	c.loggedDuplicates = duplicates
	c.store(families)
}

// pollPods queries the kubelet for the holders of devices, and logs each new failure.
// The metric plimsoll_exporter_unmapped_devices reports a failure as well.
func (c *Collector) pollPods(ctx context.Context) {
	err := c.pods.Poll(ctx)
	if err == nil {
		m, _ := c.pods.Last() // the error is that of Poll
		err = m.AllocatableErr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil {
		c.recordKubelet(err)
	}
}

// describeServed describes for log messages what /metrics has of a vendor whose devices cannot be
// listed.
func (c *Collector) describeServed(v *vendor) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.at.IsZero() {
		return "no device metrics yet"
	}
	return "no measurements since the collection of " + v.at.Format(time.RFC3339)
}

// Healthy returns an error if a driver is stalled, if no collection has succeeded yet, or
// if the last collection of a vendor is older than three intervals (at least ten
// seconds). A vendor without any collection is ignored if another vendor has one. With
// RequireDevices it also returns an error while no device is listed.
func (c *Collector) Healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, now := max(3*c.cfg.Interval, 10*time.Second), c.cfg.Now()
	collected, devices := false, 0
	for _, v := range c.vendors {
		devices += len(v.devices)
		collected = collected || !v.at.IsZero()
		switch age := now.Sub(v.at); {
		case v.stalled.Load():
			return errStalled
		case !v.at.IsZero() && age > limit:
			return errors.New("the last collection is " + age.Round(time.Second).String() + " old; see the log for the reason")
		}
	}
	if !collected {
		return errors.New("no collection has succeeded yet; see the log for the reason")
	}
	if devices == 0 && c.cfg.RequireDevices {
		return errors.New("no device is listed (--health-require-gpus)")
	}
	return nil
}

// WriteText writes the metrics of the last collection in the Prometheus text format,
// without those of the exporter process.
func (c *Collector) WriteText(w io.Writer) error {
	var b bytes.Buffer
	c.exposition.Load().write(&b, plainText)
	_, err := b.WriteTo(w)
	return err
}

// reportedErrors remembers the last error of an operation, so that an error which
// repeats at each collection is logged once.
type reportedErrors struct{ last string }

// isNew reports whether err is an error and differs from the last one. A nil err resets
// the memory.
func (r *reportedErrors) isNew(err error) bool {
	if err == nil {
		r.last = ""
		return false
	}
	changed := err.Error() != r.last
	r.last = err.Error()
	return changed
}
