package sim

import (
	"fmt"
	"math"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// slice is a TPU v6e host of eight chips, a whole slice of 2x4, on which a training
// runs. In the last minute of every five a chip hangs, and so do the others, for each
// step is a step of all of them.
func slice(s *State, since time.Duration) []device.XID {
	for i := range s.Devices {
		s.Devices[i] = DeviceState{UUID: fmt.Sprintf("TPU-0000:00:%02x.0", 4+i), Model: "tpu-v6e-slice", MemoryMiB: 32 << 10, State: "ok",
			Topology: "2x4", Background: 0.93}
		if in := math.Mod(since.Seconds(), 300); in >= 240 {
			s.Devices[i].Stalled = math.Round(in - 240)
			s.Devices[i].Queued = 2
		}
	}
	return nil
}

// stepTPU tells what the runtime of a workload on a chip would, where there is one.
func (s *Source) stepTPU(l *live, d device.Device, state DeviceState, now time.Time) device.Reading {
	target := s.wanted(d, state.Background)
	runs := target > 0
	if state.Queued > 0 {
		target = 0
	}
	l.follow(target, now)
	total := float64(d.MemoryMiB << 20)
	r := device.Reading{Time: now}
	r.Set(device.AcceleratorMemoryTotal, total)
	if !runs {
		r.Set(device.Workload, 0)
		return r
	}
	r.Set(device.Workload, 1)
	r.Set(device.DutyCycle, math.Round(100*l.utilization))
	r.Set(device.AcceleratorMemoryUsed, math.Round(0.8*total))
	r.Set(device.MemoryBandwidthUtil, math.Round(55*l.utilization))
	r.Set(device.TensorCoreUtil, math.Round(60*l.utilization))
	r.Set(device.QueuedPrograms, float64(state.Queued))
	r.Set(device.StalledSeconds, state.Stalled)
	r.Set(device.MegascaleError, 0)
	r.Set(device.SliceError, 0)
	return r
}
