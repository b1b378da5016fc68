package sim

import (
	"errors"
	"fmt"
)

// Values of DeviceState.State.
const (
	stateOK   = "ok"
	stateLost = "lost"
	stateHung = "hung"
)

// State is the content of the --sim-state file, or the state of a scenario.
type State struct {
	Seed    int64         `json:"seed"`
	Devices []DeviceState `json:"devices"`
}

// DeviceState is the state of a device.
type DeviceState struct {
	UUID string `json:"uuid"`
	// Model is the product name. A device whose model begins with "AMD " is an AMD GPU.
	Model     string `json:"model"`
	MemoryMiB int64  `json:"memoryMiB"`
	// State is ok, lost or hung.
	State string `json:"state"`
	// Background is the utilization (0..1) of a device without a container.
	Background float64 `json:"background"`
	// Heat is the temperature in °C added by a failing cooler.
	Heat float64 `json:"heat,omitempty"`
	// NVSwitch connects the device with the other devices of the node, as do the xGMI links of
	// an AMD GPU.
	NVSwitch bool `json:"nvswitch,omitempty"`
	// Topology of the slice of a TPU chip, such as 2x4. Empty for a GPU.
	Topology string `json:"topology,omitempty"`
	// Queued is the number of programs queued on a TPU chip. Stalled is for how many seconds
	// they have made no progress.
	Queued  int     `json:"queued,omitempty"`
	Stalled float64 `json:"stalled,omitempty"`
	// MIG enables MIG mode with these instances.
	MIG       bool            `json:"mig,omitempty"`
	Instances []InstanceState `json:"instances,omitempty"`
	// MPS limits the processes that share the device.
	MPS bool `json:"mps,omitempty"`
	// Processes share the device. They determine its utilization instead of Background.
	Processes []ProcessState `json:"processes,omitempty"`
}

// InstanceState is the state of a MIG instance.
type InstanceState struct {
	UUID      string `json:"uuid"`
	Profile   string `json:"profile"`
	GI        int    `json:"gi"`
	MemoryMiB int64  `json:"memoryMiB"`
}

// ProcessState is the state of a process on a device.
type ProcessState struct {
	PID       int   `json:"pid"`
	MemoryMiB int64 `json:"memoryMiB"`
	// Busy is the part of the time (0..1) in which the process keeps the device busy.
	Busy float64 `json:"busy"`
}

// validate checks the state read from the file at path.
func (s State) validate(path string) error {
	if len(s.Devices) == 0 {
		return fmt.Errorf("simulator state %s: devices must not be empty", path)
	}
	for i, d := range s.Devices {
		if err := d.validate(fmt.Sprintf("%s: devices[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

// validate checks the state of a device. Errors start with field, the path of the device in
// the state.
func (d DeviceState) validate(field string) error {
	switch {
	case d.UUID == "" || d.Model == "" || d.MemoryMiB <= 0:
		return fmt.Errorf("%s must have a uuid, a model and memoryMiB above 0", field)
	case d.State != stateOK && d.State != stateLost && d.State != stateHung:
		return fmt.Errorf("%s.state must be ok, lost or hung, not %q", field, d.State)
	case d.Background < 0 || d.Background > 1:
		return fmt.Errorf("%s.background must be within 0..1, not %g", field, d.Background)
	}
	return errors.Join(d.validateInstances(field), d.validateProcesses(field))
}

func (d DeviceState) validateInstances(field string) error {
	var sum int64
	for _, i := range d.Instances {
		if i.UUID == "" || i.Profile == "" || i.MemoryMiB <= 0 {
			return fmt.Errorf("%s.instances must each have a uuid, a profile and memoryMiB above 0", field)
		}
		sum += i.MemoryMiB
	}
	if sum > d.MemoryMiB {
		return fmt.Errorf("%s.instances must have at most the memory of the device, %d MiB, not %d MiB", field, d.MemoryMiB, sum)
	}
	return nil
}

func (d DeviceState) validateProcesses(field string) error {
	busy := 0.0
	for _, p := range d.Processes {
		if p.PID <= 0 || p.MemoryMiB < 0 || p.Busy < 0 {
			return fmt.Errorf("%s.processes must each have a pid above 0, and memoryMiB and busy of at least 0", field)
		}
		busy += p.Busy
	}
	if busy > 1 {
		return fmt.Errorf("%s.processes must have a total busy of at most 1, not %g", field, busy)
	}
	return nil
}
