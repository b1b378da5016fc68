package sim

import (
	"fmt"
	"math"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// tpuSlice is a scenario of a TPU v6e host with eight chips, a whole slice of topology 2x4, in
// training. In the last minute of every five the chips stall: each step needs all chips, so a
// single hung chip stalls the slice.
func tpuSlice(s *State, since time.Duration) []device.XID {
	for i := range s.Devices {
		s.Devices[i] = DeviceState{UUID: fmt.Sprintf("TPU-0000:00:%02x.0", 4+i), Model: "tpu-v6e-slice", MemoryMiB: 32 << 10, State: stateOK,
			Topology: "2x4", Background: 0.93}
		if second := math.Mod(since.Seconds(), 300); second >= 240 {
			s.Devices[i].Stalled = math.Round(second - 240)
			s.Devices[i].Queued = 2
		}
	}
	return nil
}

// readTPU advances a TPU chip to now and returns its values. Without a workload it returns
// only the memory size, because the other values come from the workload's runtime.
func (s *Source) readTPU(d device.Device, state DeviceState, now time.Time) device.Reading {
	l := s.liveStateOf(d.UUID, now)
	target := s.targetUtilization(d, state.Background)
	hasWorkload := target > 0
	if state.Queued > 0 {
		target = 0
	}
	l.advance(target, now)
	total := float64(d.MemoryMiB << 20)
	r := device.Reading{Time: now}
	r.Set(device.AcceleratorMemoryTotal, total)
	if !hasWorkload {
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
