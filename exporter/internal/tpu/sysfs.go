package tpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

const vendor = "0x1ae0"

// kind of chip.
type kind struct {
	model   string // as GKE's node label cloud.google.com/gke-tpu-accelerator calls it
	gib     int64  // of memory
	devices int    // that the runtime may count for one chip
}

// kinds by PCI device; v2 and v3 share one and differ in the subsystem. What else
// the vendor makes, such as network cards, is none.
var kinds = map[string]kind{
	"0x0027/0x004e": {"tpu-v2", 8, 2},
	"0x0027/0x004f": {"tpu-v3-slice", 16, 2},
	"0x005e":        {"tpu-v4-podslice", 32, 1},
	"0x0062":        {"tpu-v5p-slice", 95, 1},
	"0x0063":        {"tpu-v5-lite-podslice", 16, 1},
	"0x006f":        {"tpu-v6e-slice", 32, 1},
	"0x0076":        {"tpu7x", 192, 2},
}

// sysfs is where it is mounted.
type sysfs string

// chip of the node.
type chip struct {
	kind
	address string // on the PCI bus
	node    string // below /dev: accel0, vfio/7; empty without a driver
}

// chips in the order of their PCI addresses.
func (s sysfs) chips() ([]chip, error) {
	entries, err := os.ReadDir(filepath.Join(string(s), "bus/pci/devices"))
	if err != nil {
		return nil, fmt.Errorf("no PCI devices to look at; --tpu-sysfs-root must name sysfs: %w", err)
	}
	var found []chip
	for _, e := range entries {
		k, ok, err := s.identify(e.Name())
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, chip{k, e.Name(), s.node(e.Name())})
		}
	}
	return found, nil
}

func (s sysfs) identify(address string) (kind, bool, error) {
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
func (s sysfs) attribute(address, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(s), "bus/pci/devices", address, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// node under /dev: accelN up to v4, vfio/<group> from v5e; empty without a driver.
func (s sysfs) node(address string) string {
	path := filepath.Join(string(s), "bus/pci/devices", address)
	if nodes, err := os.ReadDir(filepath.Join(path, "accel")); err == nil && len(nodes) > 0 {
		return nodes[0].Name()
	}
	if group, err := os.Readlink(filepath.Join(path, "iommu_group")); err == nil {
		return "vfio/" + filepath.Base(group)
	}
	return ""
}

// there is nil while the chip answers on the bus.
func (s sysfs) there(address string) error {
	switch got, err := s.attribute(address, "vendor"); {
	case err != nil:
		return err
	case got != vendor:
		return device.ErrLost
	}
	return nil
}

// minor is how the kubelet's device plugin numbers the chip: by its device node.
func (c chip) minor() string {
	number := strings.TrimLeft(c.node, "acelvfio/")
	if number == "" {
		return ""
	}
	return "tpu" + number
}
