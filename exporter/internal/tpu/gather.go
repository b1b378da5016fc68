package tpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

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
	said := make(map[string]string, len(s.services)) // not of those that are gone
	for _, service := range s.services {
		problem := ""
		if service.Err != nil && service.State == device.ServiceFailed {
			problem = service.Err.Error()
		}
		if problem != "" && problem != s.said[service.Address] {
			s.o.Log.Warn("a TPU service does not tell what it should", "service", service.Name, "err", problem)
		}
		said[service.Address] = problem
	}
	s.said = said
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
