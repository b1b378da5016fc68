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

// googleVendor is the PCI vendor ID of Google.
const googleVendor = "0x1ae0"

// chipModel describes a generation of chips.
type chipModel struct {
	model     string // value of GKE's node label cloud.google.com/gke-tpu-accelerator
	memoryGiB int64
	devices   int // the runtime reports up to this number of devices per chip
}

// chipModels are the chip models by PCI device ID. v2 and v3 share a device ID and differ in
// the subsystem ID. Google's other PCI devices, such as network cards, are not listed.
var chipModels = map[string]chipModel{
	"0x0027/0x004e": {"tpu-v2", 8, 2},
	"0x0027/0x004f": {"tpu-v3-slice", 16, 2},
	"0x005e":        {"tpu-v4-podslice", 32, 1},
	"0x0062":        {"tpu-v5p-slice", 95, 1},
	"0x0063":        {"tpu-v5-lite-podslice", 16, 1},
	"0x006f":        {"tpu-v6e-slice", 32, 1},
	"0x0076":        {"tpu7x", 192, 2},
}

// sysfs is the path of a mounted sysfs.
type sysfs string

// chip is a TPU chip of the node.
type chip struct {
	chipModel
	address string // PCI address
	node    string // device node in /dev, such as accel0 or vfio/7; empty without a driver
}

// chips returns the chips in the order of their PCI addresses.
func (s sysfs) chips() ([]chip, error) {
	entries, err := os.ReadDir(filepath.Join(string(s), "bus/pci/devices"))
	if err != nil {
		return nil, fmt.Errorf("list the PCI devices: --tpu-sysfs-root must be a mounted sysfs: %w", err)
	}
	var found []chip
	for _, e := range entries {
		m, ok, err := s.identify(e.Name())
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		node, err := s.deviceNode(e.Name())
		if err != nil {
			return nil, err
		}
		found = append(found, chip{m, e.Name(), node})
	}
	return found, nil
}

// identify returns the model of the PCI device at address, or false if the device is no TPU
// chip.
func (s sysfs) identify(address string) (chipModel, bool, error) {
	vendor, err := s.attribute(address, "vendor")
	if err != nil || vendor != googleVendor {
		return chipModel{}, false, err
	}
	id, err := s.attribute(address, "device")
	if err != nil {
		return chipModel{}, false, err
	}
	if m, ok := chipModels[id]; ok {
		return m, true, nil
	}
	subsystem, err := s.attribute(address, "subsystem_device")
	m, ok := chipModels[id+"/"+subsystem]
	return m, ok, err
}

// attribute returns an attribute of a PCI device, or an empty string if the attribute does
// not exist.
func (s sysfs) attribute(address, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(s), "bus/pci/devices", address, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// deviceNode returns the device node of a chip in /dev: accelN up to v4, vfio/GROUP since
// v5e. It is empty without a driver.
func (s sysfs) deviceNode(address string) (string, error) {
	path := filepath.Join(string(s), "bus/pci/devices", address)
	nodes, err := os.ReadDir(filepath.Join(path, "accel"))
	if err == nil && len(nodes) > 0 {
		return nodes[0].Name(), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	group, err := os.Readlink(filepath.Join(path, "iommu_group"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return "vfio/" + filepath.Base(group), nil
}

// checkPresent returns device.ErrLost if the chip is no longer on the PCI bus.
func (s sysfs) checkPresent(address string) error {
	switch vendor, err := s.attribute(address, "vendor"); {
	case err != nil:
		return err
	case vendor != googleVendor:
		return device.ErrLost
	}
	return nil
}

// minor returns the chip's name in the kubelet's device plugin API, such as tpu0. It ends with
// the number of the device node, and is empty without a device node.
func (c chip) minor() string {
	number := strings.TrimLeft(c.node, "acelvfio/")
	if number == "" {
		return ""
	}
	return "tpu" + number
}
