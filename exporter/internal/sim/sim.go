// Package sim is a source of devices that don't exist: deterministic by seed,
// loaded by what the kubelet says holds them, and by a state that its owner sets.
package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// State is the --sim-state file, or what a scenario makes.
type State struct {
	Seed    int64         `json:"seed"`
	Devices []DeviceState `json:"devices"`
}

// DeviceState of one device.
type DeviceState struct {
	UUID      string `json:"uuid"`
	Model     string `json:"model"`
	MemoryMiB int64  `json:"memoryMiB"`
	// State is ok, lost or hung.
	State string `json:"state"`
	// Background is the utilization, 0..1, that others cause.
	Background float64 `json:"background"`
	// Heat is what a failing cooler adds to the temperature, in °C.
	Heat float64 `json:"heat,omitempty"`
	// NVSwitch says that the node's switches connect it with the others.
	NVSwitch bool `json:"nvswitch,omitempty"`
	// Topology of the slice that a TPU chip is in, such as 2x4; empty for a GPU.
	Topology string `json:"topology,omitempty"`
	// Queued programs on a TPU chip, and for how many seconds none has moved.
	Queued  int     `json:"queued,omitempty"`
	Stalled float64 `json:"stalled,omitempty"`
	// MIG says that the device is in MIG mode, and cut in these instances.
	MIG       bool            `json:"mig,omitempty"`
	Instances []InstanceState `json:"instances,omitempty"`
	// Processes that share the device; they alone are what it does.
	Processes []ProcessState `json:"processes,omitempty"`
}

// Source simulates devices. Create one with FromFile or FromScenario.
type Source struct {
	held func(uuid string) bool
	next func(now time.Time) (State, []device.XID, error)
	log  *slog.Logger
	now  func() time.Time

	mu      sync.Mutex
	state   State
	loadErr string
	live    map[string]*live
	xids    []device.XID
}

// live is what moves between readings of a device.
type live struct {
	utilization float64
	energyMJ    float64
	temperature float64
	hotNS       float64 // throttled by heat
	moved       traffic
	at          time.Time
}

func newSource(held func(string) bool, log *slog.Logger, next func(time.Time) (State, []device.XID, error)) *Source {
	return &Source{held: held, next: next, log: log, now: time.Now, live: map[string]*live{}}
}

// FromFile reads the state from a JSON file again at each tick. A file that
// can't be read leaves the last good state in force, and that is logged.
func FromFile(path string, held func(uuid string) bool, log *slog.Logger) *Source {
	return newSource(held, log, func(time.Time) (State, []device.XID, error) {
		var s State
		content, err := os.ReadFile(path)
		if err != nil {
			return s, nil, fmt.Errorf("read the simulator's state: %w", err)
		}
		if err := json.Unmarshal(content, &s); err != nil {
			return s, nil, fmt.Errorf("the simulator's state in %s is not as expected: %w", path, err)
		}
		return s, nil, s.check(path)
	})
}

func (s State) check(path string) error {
	if len(s.Devices) == 0 {
		return fmt.Errorf("the simulator's state in %s names no devices", path)
	}
	for i, d := range s.Devices {
		switch {
		case d.UUID == "" || d.Model == "" || d.MemoryMiB <= 0:
			return fmt.Errorf("%s: devices[%d] must have a uuid, a model and memoryMiB above 0", path, i)
		case d.State != "ok" && d.State != "lost" && d.State != "hung":
			return fmt.Errorf("%s: devices[%d].state must be ok, lost or hung, not %q", path, i, d.State)
		case d.Background < 0 || d.Background > 1:
			return fmt.Errorf("%s: devices[%d].background must be within 0..1, not %g", path, i, d.Background)
		}
		if err := errors.Join(d.checkInstances(path, i), d.checkProcesses(path, i)); err != nil {
			return err
		}
	}
	return nil
}

// Devices re-reads the state and lists its devices, lost ones included.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, xids, err := s.next(s.now())
	switch {
	case err == nil:
		s.state, s.loadErr = state, ""
		s.xids = append(s.xids, xids...)
	case len(s.state.Devices) == 0:
		return nil, err
	case err.Error() != s.loadErr:
		s.loadErr = err.Error()
		s.log.Warn("keeping the simulator's last good state", "err", err)
	}
	devices := make([]device.Device, len(s.state.Devices))
	for i, d := range s.state.Devices {
		devices[i] = device.Device{UUID: d.UUID, Index: i, Minor: fmt.Sprintf("nvidia%d", i),
			PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x10+i), Model: d.Model, MemoryMiB: d.MemoryMiB, ReportsXIDs: true}
		if d.Topology != "" {
			devices[i].Minor, devices[i].ReportsXIDs, devices[i].TPU = fmt.Sprintf("tpu%d", i), false, &device.TPU{Topology: d.Topology}
		}
		if d.NVSwitch {
			devices[i].Links = []string{device.NVSwitch}
		}
	}
	return devices, nil
}

// Read moves the device on to now and tells its values. A hung device answers
// only when ctx ends.
func (s *Source) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	state, err := s.stateOf(d)
	if err != nil {
		return device.Reading{}, err
	}
	switch state.State {
	case "lost":
		return device.Reading{}, device.ErrLost
	case "hung":
		<-ctx.Done()
		return device.Reading{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if d.Instance != nil {
		return s.readInstance(d, state, now)
	}
	if d.TPU != nil {
		return s.stepTPU(s.liveOf(d.UUID, now), d, state, now), nil
	}
	r := s.step(s.liveOf(d.UUID, now), d, state, now)
	r.MIG, r.Instances = state.MIG, state.instances(d)
	state.setProcesses(&r)
	return r, nil
}

// stateOf a device or of the one that it was cut off; it may be gone from the state
// since it was listed.
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
	return DeviceState{}, fmt.Errorf("device %s is not simulated any more", uuid)
}

func (s *Source) liveOf(uuid string, now time.Time) *live {
	l := s.live[uuid]
	if l == nil {
		l = &live{temperature: 34, at: now}
		s.live[uuid] = l
	}
	return l
}

// follow the utilization that is wanted, and say how many seconds have passed.
func (l *live) follow(target float64, now time.Time) (dt float64) {
	dt = now.Sub(l.at).Seconds()
	l.at = now
	l.utilization = approach(l.utilization, target, dt, 1)
	return dt
}

// approach moves from a value towards another with a time constant in seconds.
func approach(from, to, dt, seconds float64) float64 {
	return to + (from-to)*math.Exp(-dt/seconds)
}

// step follows the target with a time constant of about a second, as a real
// device's averages do.
func (s *Source) step(l *live, d device.Device, state DeviceState, now time.Time) device.Reading {
	target := s.load(d, state)
	if target > 0 {
		target = math.Min(1, math.Max(0, target+0.02*s.noise(d.UUID, now)))
	}
	dt := l.follow(target, now)
	l.temperature = approach(l.temperature, 34+42*l.utilization, dt, 8)
	can := productOf(d.Model)
	power := can.idle + 0.97*(can.limit-can.idle)*l.utilization
	clock := can.slow + (can.fast-can.slow)*math.Min(1, 2*l.utilization)
	temperature := math.Min(105, l.temperature+state.Heat)
	if temperature >= throttleAt {
		l.hotNS += dt * 1e9
		clock, power = clock/2, power/2
	}
	l.energyMJ += power * dt * 1000

	r := device.Reading{Time: now}
	if !state.MIG { // in MIG mode a device does not tell what of it is active
		r.Set(device.GPUUtil, math.Round(100*l.utilization))
		r.Set(device.MemCopyUtil, math.Round(45*l.utilization))
		r.Set(device.EncUtil, 0)
		r.Set(device.DecUtil, 0)
		l.activity(&r, can, dt, len(d.Links) > 0)
	}
	r.Set(device.SMClock, math.Round(clock))
	r.Set(device.MemClock, can.memory)
	r.Set(device.GPUTemp, math.Round(temperature))
	r.Set(device.MemoryTemp, math.Round(temperature+8))
	r.Set(device.PowerUsage, math.Round(power*1000)/1000)
	r.Set(device.TotalEnergy, math.Round(l.energyMJ))
	r.Set(device.PCIeReplay, 0)
	setMemory(&r, l.utilization, float64(d.MemoryMiB))
	r.Set(device.ECCSingleVolatile, 0)
	r.Set(device.ECCDoubleVolatile, 0)
	r.Set(device.CorrectableRemappedRows, 0)
	r.Set(device.UncorrectableRemappedRows, 0)
	r.Set(device.RowRemapFailure, 0)
	l.restraint(&r, can, temperature)
	return r
}

// throttleAt is the temperature, in °C, at which clocks are halved.
const throttleAt = 87

// noise within -1..1 that is the same for the same seed, device and second.
func (s *Source) noise(uuid string, now time.Time) float64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", s.state.Seed, uuid, now.Unix()))
	return float64(binary.BigEndian.Uint32(sum[:4]))/float64(1<<31) - 1
}

// XIDs since the last call.
func (s *Source) XIDs() []device.XID {
	s.mu.Lock()
	defer s.mu.Unlock()
	xids := s.xids
	s.xids = nil
	return xids
}

// Close does nothing: there is no library to give back.
func (s *Source) Close() error { return nil }
