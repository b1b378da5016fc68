package tpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDevicesReportsHostWithoutChips(t *testing.T) {
	root := t.TempDir()
	addPCIDevice(t, root, "0000:00:07.0", map[string]string{"vendor": googleVendor, "device": "0x0042"})
	for _, tc := range []struct{ name, sysfs, want string }{
		{"no chip", root, "no TPU among the PCI devices"},
		{"no sysfs", filepath.Join(root, "missing"), "--tpu-sysfs-root"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := newSource(tc.sysfs).Devices(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDevicesUpdatesDeviceNode(t *testing.T) {
	root, sysfs := t.TempDir(), t.TempDir()
	path := addPCIDevice(t, sysfs, "0000:00:04.0", map[string]string{"vendor": googleVendor, "device": "0x0063"})
	addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "10.4.0.7", nodes: []string{"vfio/5"}})
	s := newSourceWithProcfs(sysfs, root)
	for _, want := range []string{" []", "tpu5 [0]"} {
		devices, err := s.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var open []int
		if groups, _, _ := s.findWorkloads(t.Context()); len(groups) > 0 {
			open = groups[0].chips
		}
		if got := fmt.Sprint(devices[0].Minor, " ", open); got != want {
			t.Errorf("minor and open chips are %q, want %q", got, want)
		}
		_ = os.Symlink("../../../kernel/iommu_groups/5", filepath.Join(path, "iommu_group")) // the driver binds; fails the second time
	}
}
