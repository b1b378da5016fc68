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

// gather reads all services in parallel and sets the reading of every chip.
func (s *Source) gather(ctx context.Context) {
	s.services = nil
	groups, isComplete := s.findGroups(ctx)
	results := make([]groupResult, len(groups))
	var pluginValues map[device.Field][]float64
	var plugin *device.Service
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { results[i] = g.query(ctx) })
	}
	if s.options.Plugin != "" {
		all.Go(func() { pluginValues, plugin = readPlugin(ctx, s.options.Plugin, len(s.chips)) })
	}
	all.Wait()
	s.initReadings(groups, isComplete)
	for i, result := range results {
		s.services = append(s.services, result.services...)
		s.apply(groups[i], result, isComplete)
	}
	if plugin != nil {
		s.services = append(s.services, *plugin)
	}
	s.applyPlugin(pluginValues)
	s.logProblems()
	reported := slices.Clone(s.services)
	s.reported.Store(&reported)
}

// initReadings starts a reading for every chip. A chip outside of all groups is idle.
func (s *Source) initReadings(groups []group, isComplete bool) {
	s.readings = make([]device.Reading, len(s.chips))
	for i, c := range s.chips {
		s.readings[i].Time = s.now()
		s.readings[i].Set(device.AcceleratorMemoryTotal, float64(c.memoryGiB<<30))
		if !slices.ContainsFunc(groups, func(g group) bool { return slices.Contains(g.chips, i) }) {
			s.setIdle(i, isComplete)
		}
	}
}

// setIdle records that no known workload runs on a chip. If not all processes could be inspected,
// one of them may use a chip that is allocated.
func (s *Source) setIdle(i int, isComplete bool) {
	if isComplete || !s.options.IsAllocated(s.devices[i].Minor) {
		s.readings[i].Set(device.Workload, 0)
	}
}

// applyPlugin sets the values of the device plugin. Values of the runtime take precedence.
func (s *Source) applyPlugin(pluginValues map[device.Field][]float64) {
	for field, values := range pluginValues {
		for i, v := range values {
			if _, present := s.readings[i].Get(field); !present {
				s.readings[i].Set(field, v)
			}
		}
	}
}

// logProblems logs the error of each failed service when it first occurs, and what was not inspected
// of the processes: values are absent because of it.
func (s *Source) logProblems() {
	problems := make(map[string]string, len(s.services)) // without removed services
	for _, service := range s.services {
		problem := ""
		if service.Err != nil && (service.State == device.ServiceFailed || service.State == device.ServiceServing && service.Name == processes) {
			problem = service.Err.Error()
		}
		if problem != "" && problem != s.loggedProblems[service.Address] {
			s.options.Log.Warn("reading a TPU service failed", "service", service.Name, "address", service.Address, "err", problem)
		}
		problems[service.Address] = problem
	}
	s.loggedProblems = problems
}

// deviceMetrics are the runtime metrics with a value per runtime device. combine calculates
// the value of a chip from its devices.
var deviceMetrics = []struct {
	name    string
	field   device.Field
	combine func([]float64) float64
}{
	{memoryTotal, device.AcceleratorMemoryTotal, sum},
	{memoryUsed, device.AcceleratorMemoryUsed, sum},
	{memoryBandwidth, device.MemoryBandwidthUtil, mean},
	{dutyCycle, device.DutyCycle, mean},
	{queueSize, device.QueuedPrograms, sum},
	{idleSeconds, device.IdleSeconds, slices.Min[[]float64]},
}

// apply sets the values of a group in the readings of its chips.
func (s *Source) apply(g group, result groupResult, isComplete bool) {
	if len(g.chips) == 0 || !result.serving && !result.idle {
		s.resetStalls(g.chips)
		return
	}
	for _, i := range g.chips {
		switch {
		case result.serving:
			s.readings[i].Set(device.Workload, 1)
		case !g.isHeld: // A process that has the chip open may compute without the service.
			s.setIdle(i, isComplete)
		}
	}
	devicesPerChip := s.chips[g.chips[0]].devices
	for _, m := range deviceMetrics {
		samples, listed := result.samples[m.name]
		if !listed {
			continue
		}
		assigned, err := assignSamples(samples, len(g.chips), devicesPerChip)
		if err != nil {
			s.failServices(g, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		for k, i := range g.chips {
			s.readings[i].Set(m.field, m.combine(assigned[k]))
		}
	}
	for name, field := range map[string]device.Field{megascaleError: device.MegascaleError, sliceError: device.SliceError} {
		if worst := highest(result.samples[name]); worst != nil {
			for _, i := range g.chips {
				s.readings[i].Set(field, boolValue(*worst != 0))
			}
		}
	}
	s.detectStalls(g, result)
}

// detectStalls sets how long the queued programs of each chip have made no progress.
func (s *Source) detectStalls(g group, result groupResult) {
	marks, err := assignCores(result.cores, len(g.chips))
	if err != nil {
		marks = make([]uint64, len(g.chips))
		if len(result.cores) > 0 {
			s.addServiceError(g, err)
		}
	}
	uptime := highest(result.samples[uptimeSeconds])
	for k, i := range g.chips {
		r := &s.readings[i]
		sample := progressSample{time: r.Time, coreMark: marks[k], uptime: uptime}
		var queued float64
		queued, sample.queueKnown = r.Get(device.QueuedPrograms)
		sample.queued = queued > 0
		if idle, ok := r.Get(device.IdleSeconds); ok {
			sample.idle = &idle
		}
		if seconds, ok := s.stalls[i].observe(sample); ok {
			r.Set(device.StalledSeconds, seconds)
		}
	}
}

// resetStalls discards the progress history of chips whose service failed.
func (s *Source) resetStalls(chips []int) {
	for _, i := range chips {
		s.stalls[i] = stallDetector{}
	}
}

// failServices marks the services of a group as failed.
func (s *Source) failServices(g group, err error) {
	s.addServiceError(g, err)
	for i := range s.services {
		if slices.Contains(g.addresses, s.services[i].Address) {
			s.services[i].State = device.ServiceFailed
		}
	}
}

// addServiceError adds an error to the services of a group without a change of their state.
func (s *Source) addServiceError(g group, err error) {
	for i := range s.services {
		if slices.Contains(g.addresses, s.services[i].Address) {
			s.services[i].Err = errors.Join(s.services[i].Err, err)
		}
	}
}

// highest returns the highest value of a metric, or nil without samples.
func highest(samples []sample) *float64 {
	if len(samples) == 0 {
		return nil
	}
	highest := slices.MaxFunc(samples, func(a, b sample) int { return cmp.Compare(a.value, b.value) }).value
	return &highest
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
