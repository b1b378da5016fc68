// Package tpu reads Google's TPU chips: which there are from sysfs, and what they do
// from the runtime metric service that libtpu opens in the workload's process.
package tpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Options of a Source.
type Options struct {
	Node   string // its name, which makes chips' UUIDs unique among nodes
	Sysfs  string // where it is mounted
	Procfs string // of the host; without the host's processes, the services are looked for on localhost
	Dev    string
	// Runtimes are the addresses of runtime metric services; found by themselves when empty.
	Runtimes []string
	// Ports of the services, as TPU_RUNTIME_METRICS_PORTS gives them.
	Ports string
	// Plugin is the URL of the device plugin's own metrics; not asked when empty.
	Plugin string
	// Model and Topology are the node's labels gke-tpu-accelerator and gke-tpu-topology.
	Model, Topology string
	// Held tells whether a container holds a chip.
	Held func(minor string) bool
	Log  *slog.Logger
}

// Source of a node's chips.
type Source struct {
	o     Options
	sysfs sysfs
	now   func() time.Time

	mu       sync.Mutex
	seen     []device.Device
	chips    []chip // of seen
	readings []device.Reading
	watches  []watch
	services []device.Service
	said     map[string]string // by service, so that a problem is logged once

	reported atomic.Pointer[[]device.Service]
}

// New source.
func New(o Options) *Source {
	if o.Held == nil {
		o.Held = func(string) bool { return false }
	}
	return &Source{o: o, sysfs: sysfs(o.Sysfs), now: time.Now, said: map[string]string{}}
}

// Devices in the order of their PCI addresses, and numbered by it; those that went
// away since stay. It asks the services what each chip does, so that Read need not.
func (s *Source) Devices(ctx context.Context) ([]device.Device, error) {
	chips, err := s.sysfs.chips()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chips {
		if !slices.ContainsFunc(s.chips, func(k chip) bool { return k.address == c.address }) {
			s.add(c)
		}
	}
	if len(s.seen) == 0 {
		return nil, fmt.Errorf("no TPU among the PCI devices of %s", s.o.Sysfs)
	}
	s.gather(ctx)
	return slices.Clone(s.seen), nil
}

func (s *Source) add(c chip) {
	model := c.model
	if s.o.Model != "" {
		model = s.o.Model
	}
	s.chips = append(s.chips, c)
	s.watches = append(s.watches, watch{})
	s.seen = append(s.seen, device.Device{UUID: "TPU-" + s.o.Node + "-" + c.address, Index: len(s.seen), Minor: c.minor(), PCIBusID: c.address,
		Model: model, MemoryMiB: c.gib << 10, TPU: &device.TPU{Topology: s.o.Topology}})
}

// gather what the services tell of every chip.
func (s *Source) gather(ctx context.Context) {
	s.services = nil
	groups := s.groups()
	answers := make([]answer, len(groups))
	var relayed map[device.Field][]float64
	var plugin *device.Service
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { answers[i] = g.ask(ctx) })
	}
	if s.o.Plugin != "" {
		all.Go(func() { relayed, plugin = relay(ctx, s.o.Plugin, s.chips) })
	}
	all.Wait()
	s.readings = make([]device.Reading, len(s.chips))
	for i, c := range s.chips {
		s.readings[i].Time = s.now()
		s.readings[i].Set(device.AcceleratorMemoryTotal, float64(c.gib<<30))
		if !slices.ContainsFunc(groups, func(g group) bool { return slices.Contains(g.chips, i) }) {
			s.readings[i].Set(device.Workload, 0)
		}
	}
	for i, a := range answers {
		s.services = append(s.services, a.services...)
		s.apply(groups[i], a)
	}
	if plugin != nil {
		s.services = append(s.services, *plugin)
	}
	for field, values := range relayed {
		for i, v := range values {
			if _, told := s.readings[i].Get(field); !told {
				s.readings[i].Set(field, v)
			}
		}
	}
	s.say()
	reported := slices.Clone(s.services)
	s.reported.Store(&reported)
}

// say what is wrong with a service once, and when it is right again.
func (s *Source) say() {
	for _, service := range s.services {
		problem := ""
		if service.Err != nil && service.State == device.ServiceFailed {
			problem = service.Err.Error()
		}
		if problem != "" && problem != s.said[service.Address] {
			s.o.Log.Warn("a TPU service does not tell what it should", "service", service.Name, "err", problem)
		}
		s.said[service.Address] = problem
	}
}

// Services that the chips' values come from, as of the last listing.
func (s *Source) Services() []device.Service {
	if services := s.reported.Load(); services != nil {
		return *services
	}
	return nil
}

// Read what the services told of the chip, if it is still there.
func (s *Source) Read(_ context.Context, d device.Device) (device.Reading, error) {
	if err := s.sysfs.there(d.PCIBusID); err != nil {
		return device.Reading{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readings[d.Index], nil
}

// XIDs are NVIDIA's; there are none.
func (s *Source) XIDs() []device.XID { return nil }

// Close has nothing to give back: connections last for one gathering.
func (s *Source) Close() error { return nil }

// group of services that share the chips they speak of.
type group struct {
	addresses []string
	chips     []int // indices
}

type answer struct {
	told
	serving  bool
	idle     bool
	services []device.Service
}

// ask every service of the group. One that does not run leaves the others' word.
func (g group) ask(ctx context.Context) answer {
	parts, failures := make([]told, len(g.addresses)), make([]error, len(g.addresses))
	var all sync.WaitGroup
	for i, address := range g.addresses {
		all.Go(func() { parts[i], failures[i] = ask(ctx, address, len(g.addresses) > 1) })
	}
	all.Wait()
	a := answer{told: told{metrics: map[string][]sample{}}, idle: true}
	for i, part := range parts {
		service := device.Service{Name: "runtime", Address: g.addresses[i], State: device.ServiceServing, Err: errors.Join(part.lacks...)}
		switch err := failures[i]; {
		case errors.Is(err, errIdle):
			service.State, service.Err = device.ServiceIdle, err
		case err != nil:
			service.State, service.Err = device.ServiceFailed, err
			a.idle = false
		default:
			a.serving, a.idle = true, false
		}
		a.services = append(a.services, service)
		for name, values := range part.metrics {
			a.metrics[name] = append(a.metrics[name], shift(values, i)...)
		}
		a.cores = append(a.cores, part.cores...)
	}
	return a
}

// shift keeps apart the devices of several processes, each of which counts from 0.
func shift(values []sample, process int) []sample {
	for i := range values {
		if values[i].device >= 0 {
			values[i].device += int64(process) << 32
		}
	}
	return values
}

// perDevice are the metrics that are told of each device, and how a chip's value
// follows from its devices'.
var perDevice = []struct {
	metric string
	field  device.Field
	of     func([]float64) float64
}{
	{memoryTotal, device.AcceleratorMemoryTotal, sum},
	{memoryUsed, device.AcceleratorMemoryUsed, sum},
	{memoryBandwidth, device.MemoryBandwidthUtil, mean},
	{dutyCycle, device.DutyCycle, mean},
	{queueSize, device.QueuedPrograms, sum},
	{idleSeconds, device.IdleSeconds, slices.Min[[]float64]},
}

// apply a group's answers to its chips' readings.
func (s *Source) apply(g group, a answer) {
	if len(g.chips) == 0 || !a.serving && !a.idle {
		s.unsure(g.chips)
		return
	}
	devices := s.chips[g.chips[0]].devices
	for _, i := range g.chips {
		s.readings[i].Set(device.Workload, flag(a.serving))
	}
	for _, m := range perDevice {
		values, listed := a.metrics[m.metric]
		if !listed {
			continue
		}
		placed, err := place(values, len(g.chips), devices)
		if err != nil {
			s.misplaced(g, fmt.Errorf("%s tells %w", m.metric, err))
			continue
		}
		for k, i := range g.chips {
			s.readings[i].Set(m.field, m.of(placed[k]))
		}
	}
	for name, field := range map[string]device.Field{megascaleError: device.MegascaleError, sliceError: device.SliceError} {
		if worst := highest(a.metrics[name]); worst != nil {
			for _, i := range g.chips {
				s.readings[i].Set(field, flag(*worst != 0))
			}
		}
	}
	s.pulses(g, a)
}

// pulses tells which of the chips execute what is queued on them.
func (s *Source) pulses(g group, a answer) {
	marks, err := placeCores(a.cores, len(g.chips))
	if err != nil {
		marks = make([]uint64, len(g.chips))
	}
	for k, i := range g.chips {
		r := &s.readings[i]
		p := pulse{at: r.Time, mark: marks[k], uptime: highest(a.metrics[uptimeSeconds])}
		var queue float64
		queue, p.told = r.Get(device.QueuedPrograms)
		p.queued = queue > 0
		if idle, ok := r.Get(device.IdleSeconds); ok {
			p.idle = &idle
		}
		if seconds, ok := s.watches[i].see(p); ok {
			r.Set(device.StalledSeconds, seconds)
		}
	}
}

// unsure forgets what was remembered of chips that nothing is known of now.
func (s *Source) unsure(chips []int) {
	for _, i := range chips {
		s.watches[i] = watch{}
	}
}

// misplaced notes values that can't be told to be of any chip, with the group's services.
func (s *Source) misplaced(g group, err error) {
	for i := range s.services {
		if slices.Contains(g.addresses, s.services[i].Address) {
			s.services[i].Err = errors.Join(s.services[i].Err, err)
			s.services[i].State = device.ServiceFailed
		}
	}
}

// highest of a metric's values; nil without any.
func highest(values []sample) *float64 {
	if len(values) == 0 {
		return nil
	}
	highest := slices.MaxFunc(values, func(a, b sample) int { return cmp.Compare(a.value, b.value) }).value
	return &highest
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// groups of services, and the chips that each speaks of.
func (s *Source) groups() []group {
	if len(s.o.Runtimes) == 0 {
		found, service := s.processes()
		s.services = append(s.services, service)
		if len(found) > 0 {
			return found
		}
	}
	g := group{addresses: s.o.Runtimes}
	if len(g.addresses) == 0 {
		for _, port := range ports(s.o.Ports, 1) {
			g.addresses = append(g.addresses, "localhost:"+port)
		}
	}
	var all []int
	for i, d := range s.seen {
		all = append(all, i)
		if s.o.Held(d.Minor) {
			g.chips = append(g.chips, i)
		}
	}
	if len(g.chips) == 0 {
		g.chips = all
	}
	return []group{g}
}

// ports that a list names, or the first n of the runtime's own.
func ports(list string, n int) []string {
	if list = strings.ReplaceAll(list, " ", ""); list != "" {
		return strings.Split(list, ",")
	}
	var out []string
	for i := range min(n, 8) {
		out = append(out, fmt.Sprint(8431+i))
	}
	return out
}
