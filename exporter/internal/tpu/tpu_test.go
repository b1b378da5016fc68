package tpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func chip(t *testing.T, root, address string, attributes map[string]string) string {
	t.Helper()
	path := filepath.Join(root, "bus/pci/devices", address)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range attributes {
		if err := os.WriteFile(filepath.Join(path, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestChipsOfSysfs(t *testing.T) {
	root := t.TempDir()
	v3 := chip(t, root, "0000:00:04.0", map[string]string{"vendor": vendor, "device": "0x0027", "subsystem_device": "0x004f"})
	v6e := chip(t, root, "0000:00:05.0", map[string]string{"vendor": vendor, "device": "0x006f", "subsystem_device": "0x0001"})
	chip(t, root, "0000:00:06.0", map[string]string{"vendor": "0x8086", "device": "0x006f"})
	chip(t, root, "0000:00:07.0", map[string]string{"vendor": vendor, "device": "0x0042"})
	if err := errors.Join(os.MkdirAll(filepath.Join(v3, "accel/accel0"), 0o755), os.Symlink("../../../kernel/iommu_groups/7", filepath.Join(v6e, "iommu_group"))); err != nil {
		t.Fatal(err)
	}
	s := New(root)
	devices, err := s.Devices(t.Context())
	if err != nil || len(devices) != 2 {
		t.Fatalf("devices %+v, %v; want a v3 and a v6e", devices, err)
	}
	if d := devices[0]; d.Model != "tpu-v3" || d.MemoryMiB != 16<<10 || d.Minor != "accel0" {
		t.Errorf("v3 is %+v", d)
	}
	if d := devices[1]; d.Model != "tpu-v6e" || d.MemoryMiB != 32<<10 || d.Minor != "vfio/7" || d.Index != 1 {
		t.Errorf("v6e is %+v", d)
	}
	if err := os.RemoveAll(v3); err != nil {
		t.Fatal(err)
	}
	if devices, err = s.Devices(t.Context()); err != nil || len(devices) != 2 {
		t.Fatalf("after the loss %+v, %v; want both still", devices, err)
	}
	if _, err := s.Read(t.Context(), devices[0]); !errors.Is(err, device.ErrLost) {
		t.Errorf("lost chip answers %v", err)
	}
	if _, err := s.Read(t.Context(), devices[1]); err != nil {
		t.Errorf("other chip answers %v", err)
	}
}
