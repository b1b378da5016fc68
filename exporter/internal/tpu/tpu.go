// Package tpu reads Google's TPU chips: which there are from sysfs, and what they do
// from the runtime metric service that libtpu opens in the workload's process.
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
	Node   string // its name, which makes chips' UUIDs unique among nodes
	Sysfs  string // where it is mounted
	Procfs string // of the host; without the host's processes, the services are looked for on localhost
	Dev    string
	// Runtimes are the addresses of runtime metric services; found by themselves when empty.
	Runtimes []string
	// Ports of the services, as TPU_RUNTIME_METRICS_PORTS gives them.
	Ports string
	// Plugin is the URL of the device plugin's own metrics; not asked when empty.
	Plugin string
	// Model and Topology are the node's labels gke-tpu-accelerator and gke-tpu-topology.
	Model, Topology string
	// Held tells whether a container holds a chip.
	Held func(minor string) bool
	Log  *slog.Logger
}

// Source of a node's chips.
type Source struct {
	o     Options
	sysfs sysfs
	now   func() time.Time

	mu       sync.Mutex
	seen     []device.Device
	chips    []chip // of seen
	readings []device.Reading
	watches  []watch
	services []device.Service
	said     map[string]string // by service, so that a problem is logged once

	reported atomic.Pointer[[]device.Service]
}

// New source.
func New(o Options) *Source {
	if o.Held == nil {
		o.Held = func(string) bool { return false }
	}
	return &Source{o: o, sysfs: sysfs(o.Sysfs), now: time.Now}
}

// Devices in the order of their PCI addresses, and numbered by it; those that went
// away since stay. It asks the services what each chip does, so that Read need not.
func (s *Source) Devices(ctx context.Context) ([]device.Device, error) {
	chips, err := s.sysfs.chips()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chips {
		i := slices.IndexFunc(s.chips, func(k chip) bool { return k.address == c.address })
		if i < 0 {
			s.add(c)
			continue
		}
		// A driver may bind after the chip was first seen.
		s.chips[i].node, s.seen[i].Minor = c.node, c.minor()
	}
	if len(s.seen) == 0 {
		return nil, fmt.Errorf("no TPU among the PCI devices of %s", s.o.Sysfs)
	}
	s.gather(ctx)
	return slices.Clone(s.seen), nil
}

func (s *Source) add(c chip) {
	model := c.model
	if s.o.Model != "" {
		model = s.o.Model
	}
	s.chips = append(s.chips, c)
	s.watches = append(s.watches, watch{})
	s.seen = append(s.seen, device.Device{UUID: "TPU-" + s.o.Node + "-" + c.address, Index: len(s.seen), Minor: c.minor(), PCIBusID: c.address,
		Model: model, MemoryMiB: c.gib << 10, TPU: &device.TPU{Topology: s.o.Topology}})
}

// Services that the chips' values come from, as of the last listing.
func (s *Source) Services() []device.Service {
	if services := s.reported.Load(); services != nil {
		return *services
	}
	return nil
}

// Read what the services told of the chip, if it is still there.
func (s *Source) Read(_ context.Context, d device.Device) (device.Reading, error) {
	if err := s.sysfs.there(d.PCIBusID); err != nil {
		return device.Reading{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readings[d.Index], nil
}

// XIDs are NVIDIA's; there are none.
func (s *Source) XIDs() []device.XID { return nil }

// Close has nothing to give back: connections last for one gathering.
func (s *Source) Close() error { return nil }
