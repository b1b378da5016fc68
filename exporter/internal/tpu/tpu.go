// Package tpu finds the Google TPU chips of a node in sysfs.
package tpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

const vendor = "0x1ae0"

// kind of chip: its model and memory.
type kind struct {
	model string
	gib   int64
}

// kinds by PCI device; v2 and v3 share one and differ in the subsystem.
var kinds = map[string]kind{
	"0x0027/0x004e": {"tpu-v2", 8},
	"0x0027/0x004f": {"tpu-v3", 16},
	"0x005e":        {"tpu-v4", 32},
	"0x0062":        {"tpu-v5p", 95},
	"0x0063":        {"tpu-v5e", 16},
	"0x006f":        {"tpu-v6e", 32},
	"0x0076":        {"tpu-7x", 192},
}

// Source of the chips under a sysfs root.
type Source struct {
	root string
	seen []device.Device
}

// New source; root is where sysfs is mounted.
func New(root string) *Source { return &Source{root: root} }

// Devices in the order of their PCI addresses, and numbered by it; those that went away since stay.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, "bus/pci/devices"))
	if err != nil {
		return nil, fmt.Errorf("no PCI devices to look at; --tpu-sysfs-root must name sysfs: %w", err)
	}
	known := map[string]bool{}
	for _, d := range s.seen {
		known[d.PCIBusID] = true
	}
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		k, ok, err := s.identify(e.Name())
		if err != nil {
			return nil, err
		}
		if ok {
			s.seen = append(s.seen, device.Device{UUID: "TPU-" + e.Name(), Index: len(s.seen), Minor: s.node(e.Name()),
				PCIBusID: e.Name(), Model: k.model, MemoryMiB: k.gib << 10})
		}
	}
	return append([]device.Device(nil), s.seen...), nil
}

func (s *Source) identify(address string) (kind, bool, error) {
	got, err := s.attribute(address, "vendor")
	if err != nil || got != vendor {
		return kind{}, false, err
	}
	id, err := s.attribute(address, "device")
	if err != nil {
		return kind{}, false, err
	}
	if k, ok := kinds[id]; ok {
		return k, true, nil
	}
	subsystem, err := s.attribute(address, "subsystem_device")
	k, ok := kinds[id+"/"+subsystem]
	return k, ok, err
}

// attribute of a PCI device; empty where it is not told.
func (s *Source) attribute(address, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.root, "bus/pci/devices", address, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// node under /dev: accelN up to v4, vfio/<group> from v5e; empty without a driver.
func (s *Source) node(address string) string {
	path := filepath.Join(s.root, "bus/pci/devices", address)
	if nodes, err := os.ReadDir(filepath.Join(path, "accel")); err == nil && len(nodes) > 0 {
		return nodes[0].Name()
	}
	if group, err := os.Readlink(filepath.Join(path, "iommu_group")); err == nil {
		return "vfio/" + filepath.Base(group)
	}
	return ""
}

// Read tells only that the chip is there: sysfs has no gauges.
func (s *Source) Read(_ context.Context, d device.Device) (device.Reading, error) {
	switch got, err := s.attribute(d.PCIBusID, "vendor"); {
	case err != nil:
		return device.Reading{}, err
	case got != vendor:
		return device.Reading{}, device.ErrLost
	}
	return device.Reading{Time: time.Now()}, nil
}

// XIDs are NVIDIA's; there are none.
func (s *Source) XIDs() []device.XID { return nil }

// Close has nothing to give back.
func (s *Source) Close() error { return nil }
