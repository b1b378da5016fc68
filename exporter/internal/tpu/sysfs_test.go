package tpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestDevicesFindsChipsInSysfs(t *testing.T) {
	root := t.TempDir()
	v3 := addPCIDevice(t, root, "0000:00:04.0", map[string]string{"vendor": googleVendor, "device": "0x0027", "subsystem_device": "0x004f"})
	v6e := addPCIDevice(t, root, "0000:00:05.0", map[string]string{"vendor": googleVendor, "device": "0x006f", "subsystem_device": "0x0001"})
	addPCIDevice(t, root, "0000:00:06.0", map[string]string{"vendor": "0x8086", "device": "0x006f"})
	addPCIDevice(t, root, "0000:00:07.0", map[string]string{"vendor": googleVendor, "device": "0x0042"}) // Google's network card
	if err := errors.Join(os.MkdirAll(filepath.Join(v3, "accel/accel0"), 0o755), os.Symlink("../../../kernel/iommu_groups/7", filepath.Join(v6e, "iommu_group"))); err != nil {
		t.Fatal(err)
	}
	s := newSource(root, "127.0.0.1:1")
	devices, err := s.Devices(t.Context())
	if err != nil || len(devices) != 2 {
		t.Fatalf("devices are %+v, %v; want a v3 and a v6e", devices, err)
	}
	if d := devices[0]; d.Model != "tpu-v3-slice" || d.MemoryMiB != 16<<10 || d.Minor != "tpu0" {
		t.Errorf("v3 is %+v", d)
	}
	if d := devices[1]; d.Model != "tpu-v6e-slice" || d.MemoryMiB != 32<<10 || d.Minor != "tpu7" || d.Index != 1 {
		t.Errorf("v6e is %+v", d)
	}
	if err := os.RemoveAll(v3); err != nil {
		t.Fatal(err)
	}
	if devices, err = s.Devices(t.Context()); err != nil || len(devices) != 2 {
		t.Fatalf("after the loss of the v3 the devices are %+v, %v; want both", devices, err)
	}
	if _, err := s.Read(t.Context(), devices[0]); !errors.Is(err, device.ErrLost) {
		t.Errorf("reading the lost chip: got error %v, want ErrLost", err)
	}
	if _, err := s.Read(t.Context(), devices[1]); err != nil {
		t.Errorf("reading the other chip: %v", err)
	}
}

func TestDevicesReportsUnreadableDeviceNode(t *testing.T) {
	root := t.TempDir()
	path := addPCIDevice(t, root, "0000:00:04.0", map[string]string{"vendor": googleVendor, "device": "0x0063", "accel": "not a folder"})
	if devices, err := newSource(root).Devices(t.Context()); err == nil {
		t.Errorf("devices are %+v although the device node of %s is unreadable", devices, path)
	}
}
