// Package tpu reads Google TPU chips. It finds the chips in sysfs and reads their metrics
// from the runtime metric service, which libtpu opens in the process of the workload.
package tpu

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Options of a Source.
type Options struct {
	Node  string // name of the node, part of the UUID of each chip
	Sysfs string // where sysfs is mounted
	// Procfs is where the procfs of the host is mounted. Without it the runtime metric
	// services are expected on localhost.
	Procfs string
	Dev    string // where the workloads see their device nodes
	// Runtimes are the addresses of runtime metric services. If empty, the source finds them
	// by the processes with open chips.
	Runtimes []string
	// Ports of the services on localhost, in the format of TPU_RUNTIME_METRICS_PORTS.
	Ports string
	// Plugin is the URL of the device plugin's metrics. If empty, they are not read.
	Plugin string
	// Model and Topology are the node labels gke-tpu-accelerator and gke-tpu-topology.
	Model, Topology string
	// IsAllocated reports whether the chip is allocated to a container. Default: no chip is.
	IsAllocated func(minor string) bool
	Log         *slog.Logger
}

// Source reads the chips of a node.
type Source struct {
	options Options
	sysfs   sysfs
	now     func() time.Time

	mu       sync.Mutex
	chips    []chip
	devices  []device.Device  // of chips, in the same order
	readings []device.Reading // of chips, in the same order
	stalls   []stallDetector  // of chips, in the same order
	services []device.Service
	// loggedProblems are the logged problems by service address. Each is logged once.
	loggedProblems map[string]string

	reported atomic.Pointer[[]device.Service]
}

// New returns a Source. It reads nothing before the first call of Devices.
func New(o Options) *Source {
	if o.IsAllocated == nil {
		o.IsAllocated = func(string) bool { return false }
	}
	return &Source{options: o, sysfs: sysfs(o.Sysfs), now: time.Now}
}

// Devices lists the chips in the order of their discovery, and of their PCI addresses if
// discovered together. Removed chips stay listed. Devices also reads the metrics of all
// chips, for later calls of Read.
func (s *Source) Devices(ctx context.Context) ([]device.Device, error) {
	chips, err := s.sysfs.chips()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chips {
		i := slices.IndexFunc(s.chips, func(known chip) bool { return known.address == c.address })
		if i < 0 {
			s.addChip(c)
			continue
		}
		// The driver may bind after the chip is discovered.
		s.chips[i].node, s.devices[i].Minor = c.node, c.minor()
	}
	if len(s.devices) == 0 {
		return nil, fmt.Errorf("no TPU among the PCI devices of %s", s.options.Sysfs)
	}
	s.gather(ctx)
	return slices.Clone(s.devices), nil
}

func (s *Source) addChip(c chip) {
	model := c.model
	if s.options.Model != "" {
		model = s.options.Model
	}
	s.chips = append(s.chips, c)
	s.stalls = append(s.stalls, stallDetector{})
	s.devices = append(s.devices, device.Device{
		Vendor:    device.Google,
		UUID:      "TPU-" + s.options.Node + "-" + c.address,
		Index:     len(s.devices),
		Minor:     c.minor(),
		PCIBusID:  c.address,
		Model:     model,
		MemoryMiB: c.memoryGiB << 10,
		TPU:       &device.TPU{Topology: s.options.Topology},
	})
}

// Services returns the state of the services read by the last call of Devices.
func (s *Source) Services() []device.Service {
	if services := s.reported.Load(); services != nil {
		return *services
	}
	return nil
}

// Read returns the metrics read by the last call of Devices. It returns device.ErrLost if
// the chip is no longer on the PCI bus.
func (s *Source) Read(_ context.Context, d device.Device) (device.Reading, error) {
	if err := s.sysfs.checkPresent(d.PCIBusID); err != nil {
		return device.Reading{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readings[d.Index], nil
}

// XIDs returns nil. Only NVIDIA devices have XIDs.
func (s *Source) XIDs() []device.XID { return nil }

// Close does nothing. Devices closes its connections before it returns.
func (s *Source) Close() error { return nil }
