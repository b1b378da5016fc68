package sim

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// amdNode is a scenario of a node with eight MI300X in training, which xGMI links connect.
func amdNode(s *State, _ time.Duration) []device.XID {
	for i := range s.Devices {
		sum := sha256.Sum256(fmt.Appendf(nil, "amd/%d/%d", s.Seed, i))
		s.Devices[i] = DeviceState{UUID: fmt.Sprintf("GPU-%x", sum[:8]), Model: "AMD Instinct MI300X OAM", MemoryMiB: 192 << 10, State: stateOK, NVSwitch: true, Background: 0.85}
	}
	return nil
}

func (d DeviceState) isAMD() bool { return strings.HasPrefix(d.Model, "AMD ") }

// readAMD advances an AMD GPU to now and returns the values that the kernel's driver reports.
func (s *Source) readAMD(d device.Device, state DeviceState, now time.Time) device.Reading {
	p := productOf(d.Model)
	l, _, load := s.advanceGPU(d, state, p, now)
	r := device.Reading{Time: now}
	load.set(&r, l, p)
	r.Set(device.GPUUtil, math.Round(100*l.utilization))
	r.Set(device.MemCopyUtil, math.Round(45*l.utilization))
	total := float64(d.MemoryMiB)
	used := math.Round(l.utilization * 0.8 * total)
	r.Set(device.FBTotal, total)
	r.Set(device.FBUsed, used)
	r.Set(device.FBFree, total-used)
	r.Set(device.FBUsedRatio, used/total)
	r.Set(device.PowerLimit, p.maxWatts)
	r.Set(device.ThermalMargin, maxTemperature-math.Round(load.temperature))
	return r
}
