// Package sim simulates devices. Their values depend on a seed, on the state set by a file or
// a scenario, and on the containers that the kubelet reports for each device.
package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Source simulates devices. FromFile and FromScenario create one.
type Source struct {
	isAllocated func(uuid string) bool
	nextState   func(now time.Time) (State, []device.XID, error)
	log         *slog.Logger
	now         func() time.Time

	mu        sync.Mutex
	state     State
	loggedErr string // of nextState, logged once
	live      map[string]*liveState
	xids      []device.XID
}

// liveState is the part of a device's state that changes between readings.
type liveState struct {
	utilization float64
	energyMJ    float64
	temperature float64
	throttledNS float64 // by heat
	traffic     traffic
	updated     time.Time
}

func newSource(isAllocated func(string) bool, log *slog.Logger, nextState func(time.Time) (State, []device.XID, error)) *Source {
	return &Source{isAllocated: isAllocated, nextState: nextState, log: log, now: time.Now, live: map[string]*liveState{}}
}

// FromFile returns a Source with the state in a JSON file. Every listing reads the file again.
// If the file becomes invalid, the last valid state stays and the error is logged.
func FromFile(path string, isAllocated func(uuid string) bool, log *slog.Logger) *Source {
	return newSource(isAllocated, log, func(time.Time) (State, []device.XID, error) {
		var s State
		content, err := os.ReadFile(path)
		if err != nil {
			return s, nil, fmt.Errorf("read the simulator state: %w", err)
		}
		if err := json.Unmarshal(content, &s); err != nil {
			return s, nil, fmt.Errorf("parse the simulator state %s: %w", path, err)
		}
		return s, nil, s.validate(path)
	})
}

// Devices updates the state and lists its devices, lost devices included.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, xids, err := s.nextState(s.now())
	switch {
	case err == nil:
		s.state, s.loggedErr = state, ""
		s.xids = append(s.xids, xids...)
	case len(s.state.Devices) == 0:
		return nil, err
	case err.Error() != s.loggedErr:
		s.loggedErr = err.Error()
		s.log.Warn("reading the simulator state failed; using the last valid state", "err", err)
	}
	devices := make([]device.Device, len(s.state.Devices))
	for i, d := range s.state.Devices {
		devices[i] = d.device(i)
	}
	return devices, nil
}

func (d DeviceState) device(index int) device.Device {
	out := device.Device{UUID: d.UUID, Index: index, Minor: fmt.Sprintf("nvidia%d", index),
		PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x10+index), Model: d.Model, MemoryMiB: d.MemoryMiB, ReportsXIDs: true}
	switch {
	case d.Topology != "":
		out.Vendor, out.Minor, out.ReportsXIDs, out.TPU = device.Google, fmt.Sprintf("tpu%d", index), false, &device.TPU{Topology: d.Topology}
	case d.isAMD():
		out.Vendor, out.Minor, out.ReportsXIDs = device.AMD, fmt.Sprintf("renderD%d", 128+index), false
		out.PCIBusID = fmt.Sprintf("0000:%02x:00.0", 0x10+index)
		out.KubeletID = out.PCIBusID
	}
	if d.NVSwitch {
		out.Links = []string{device.NVSwitch}
	}
	return out
}

// Read advances the device to the current time and returns its values. Reading a hung device
// blocks until ctx ends.
func (s *Source) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	state, err := s.stateOf(d)
	if err != nil {
		return device.Reading{}, err
	}
	switch state.State {
	case stateLost:
		return device.Reading{}, device.ErrLost
	case stateHung:
		<-ctx.Done()
		return device.Reading{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	switch {
	case d.Instance != nil:
		return s.readInstance(d, state, now)
	case d.TPU != nil:
		return s.readTPU(d, state, now), nil
	case d.Vendor == device.AMD:
		return s.readAMD(d, state, now), nil
	default:
		return s.readGPU(d, state, now), nil
	}
}

// stateOf returns the state of a device, or the state of the device of a MIG instance.
func (s *Source) stateOf(d device.Device) (DeviceState, error) {
	uuid := d.UUID
	if d.Instance != nil {
		uuid = d.Instance.Parent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.state.Devices, func(state DeviceState) bool { return state.UUID == uuid }); i >= 0 {
		return s.state.Devices[i], nil
	}
	return DeviceState{}, fmt.Errorf("device %s is no longer simulated", uuid)
}

// liveStateOf returns the live state of a device or MIG instance. A new device is idle.
func (s *Source) liveStateOf(uuid string, now time.Time) *liveState {
	l := s.live[uuid]
	if l == nil {
		l = &liveState{temperature: idleTemperature, updated: now}
		s.live[uuid] = l
	}
	return l
}

// advance moves the utilization towards target, with a time constant of a second like the
// averages of a real device. It returns the seconds since the last call.
func (l *liveState) advance(target float64, now time.Time) (dt float64) {
	dt = now.Sub(l.updated).Seconds()
	l.updated = now
	l.utilization = approach(l.utilization, target, dt, 1)
	return dt
}

// approach returns the value after dt seconds of an exponential approach to target.
func approach(value, target, dt, timeConstant float64) float64 {
	return target + (value-target)*math.Exp(-dt/timeConstant)
}

// allocatedUtilization is the utilization caused by a container.
const allocatedUtilization = 0.92

// targetUtilization returns the utilization of a device or MIG instance: the background
// utilization, or more if the device is allocated.
func (s *Source) targetUtilization(d device.Device, background float64) float64 {
	if slices.ContainsFunc(d.Names(), s.isAllocated) {
		return math.Max(background, allocatedUtilization)
	}
	return background
}

// XIDs returns the XIDs since the last call.
func (s *Source) XIDs() []device.XID {
	s.mu.Lock()
	defer s.mu.Unlock()
	xids := s.xids
	s.xids = nil
	return xids
}

// Close does nothing.
func (s *Source) Close() error { return nil }
