package sim

import (
	"fmt"
	"math"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// ProcessState of a process on a device.
type ProcessState struct {
	PID       int   `json:"pid"`
	MemoryMiB int64 `json:"memoryMiB"`
	// Busy is the part of the time, 0..1, for which it keeps the device busy.
	Busy float64 `json:"busy"`
}

func (d DeviceState) checkProcesses(path string, index int) error {
	busy := 0.0
	for _, p := range d.Processes {
		if p.PID <= 0 || p.MemoryMiB < 0 || p.Busy < 0 {
			return fmt.Errorf("%s: devices[%d].processes must each have a pid above 0, and memoryMiB and busy of at least 0", path, index)
		}
		busy += p.Busy
	}
	if busy > 1 {
		return fmt.Errorf("%s: devices[%d].processes are busy for %g of the time together, which must be at most 1", path, index, busy)
	}
	return nil
}

// setProcesses makes a reading what the device's processes cause.
func (d DeviceState) setProcesses(r *device.Reading) {
	if len(d.Processes) == 0 {
		return
	}
	r.Processes = &device.Processes{Memory: map[int]float64{}, Busy: map[int]float64{}}
	used := 0.0
	for _, p := range d.Processes {
		r.Processes.Memory[p.PID], r.Processes.Busy[p.PID] = float64(p.MemoryMiB<<20), 100*p.Busy
		used += float64(p.MemoryMiB)
	}
	setUsed(r, used, float64(d.MemoryMiB))
}

// busy is how much of the time the device's processes keep it busy.
func (d DeviceState) busy() float64 {
	sum := 0.0
	for _, p := range d.Processes {
		sum += p.Busy
	}
	return math.Min(1, sum)
}
