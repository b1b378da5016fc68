package fleet

import "fmt"

// SetDevice sets the state of one device of a node.
func (f *Fleet) SetDevice(node string, index int, state DeviceState) error {
	return f.updateDevices(node, func(s *simState) error {
		if index < 0 || index >= len(s.Devices) {
			return fmt.Errorf("node %s has devices 0 to %d, not %d", node, len(s.Devices)-1, index)
		}
		s.Devices[index].State = state
		return nil
	})
}

// SetBackground sets the utilization (0 to 1) of a node's devices that is not
// caused by jobs.
func (f *Fleet) SetBackground(node string, utilization float64) error {
	if utilization < 0 || utilization > 1 {
		return fmt.Errorf("utilization must be between 0 and 1, not %g", utilization)
	}
	return f.updateDevices(node, func(s *simState) error {
		for i := range s.Devices {
			s.Devices[i].Background = utilization
		}
		return nil
	})
}

// SetUtilization sets the utilization (0 to 1) of each device of a node, whatever pods hold it.
func (f *Fleet) SetUtilization(node string, utilization ...float64) error {
	return f.updateDevices(node, func(s *simState) error {
		if len(utilization) != len(s.Devices) {
			return fmt.Errorf("node %s has %d devices, not %d", node, len(s.Devices), len(utilization))
		}
		for i, busy := range utilization {
			s.Devices[i].setUtilization(busy)
		}
		return nil
	})
}

// setUtilization makes one process determine the utilization of the device.
func (d *simDevice) setUtilization(busy float64) {
	d.Processes = []simProcess{{PID: 1, MemoryMiB: 1024, Busy: busy}}
}

// SetIdle makes the devices of a node idle, also those that pods hold, or ends that.
func (f *Fleet) SetIdle(node string, idle bool) error {
	return f.updateDevices(node, func(s *simState) error {
		for i := range s.Devices {
			s.Devices[i].Processes = nil
			if idle {
				s.Devices[i].setUtilization(0)
			}
		}
		return nil
	})
}

// HidePods makes the exporter of a node report all devices free, whatever pods hold them, or ends that.
func (f *Fleet) HidePods(node string, hides bool) error {
	s := f.node(node)
	if s == nil {
		return fmt.Errorf("the lab has no node %q", node)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hides = hides
	return nil
}

// ConnectDevices makes the NVSwitches of a node connect only its first n devices, as after failures
// of NVLinks.
func (f *Fleet) ConnectDevices(node string, n int) error {
	return f.updateDevices(node, func(s *simState) error {
		for i := range s.Devices {
			s.Devices[i].NVSwitch = i < n
		}
		return nil
	})
}

func (f *Fleet) updateDevices(node string, change func(*simState) error) error {
	s := f.node(node)
	if s == nil {
		return fmt.Errorf("the lab has no node %q", node)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := change(&s.state); err != nil {
		return err
	}
	return s.write()
}

// SetLoad calls SetBackground for all nodes of a cluster.
func (f *Fleet) SetLoad(cluster string, utilization float64) error {
	for _, s := range f.simulatedNodes([]string{cluster}) {
		if err := f.SetBackground(s.node, utilization); err != nil {
			return err
		}
	}
	return nil
}
