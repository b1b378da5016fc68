package amd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/amd/fake"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/device/conformance"
)

const first, second = "0000:19:00.0", "0001:5c:00.0"

// newNode returns a node with two GPUs and their source.
func newNode(t *testing.T) (*fake.Sysfs, *Source) {
	t.Helper()
	sysfs := fake.New(t)
	sysfs.AddGPU(second, 0) // the numbers of cards do not follow the PCI addresses
	sysfs.AddGPU(first, 1)
	return sysfs, New(Options{Node: "node-1", Sysfs: sysfs.Root, Log: slog.New(slog.DiscardHandler)})
}

func list(t *testing.T, s *Source) []device.Device {
	t.Helper()
	devices, err := s.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func read(t *testing.T, s *Source, d device.Device) device.Reading {
	t.Helper()
	r, err := s.Read(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func values(r device.Reading) map[device.Field]float64 {
	set := map[device.Field]float64{}
	for f := range device.NumFields {
		if v, ok := r.Get(f); ok {
			set[f] = v
		}
	}
	return set
}

func TestSourceConforms(t *testing.T) {
	conformance.Test(t, func(t *testing.T) conformance.Subject {
		sysfs, s := newNode(t)
		clock := time.Now()
		s.now = func() time.Time { clock = clock.Add(time.Millisecond); return clock }
		return conformance.Subject{Source: s, Advance: func(d time.Duration) { clock = clock.Add(d) }, Lose: func(d device.Device) {
			sysfs.Remove(d.PCIBusID)
			list(t, s) // as the collector does before each reading
		}}
	})
}

func TestDevices(t *testing.T) {
	_, s := newNode(t)
	want := []device.Device{
		{Vendor: device.AMD, UUID: "GPU-a1b2c3d400000001", Minor: "renderD129", KubeletID: first, PCIBusID: first, Model: "AMD Instinct MI300X OAM", MemoryMiB: 196592},
		{Vendor: device.AMD, UUID: "GPU-a1b2c3d400000000", Index: 1, Minor: "renderD128", KubeletID: second, PCIBusID: second, Model: "AMD Instinct MI300X OAM", MemoryMiB: 196592},
	}
	if diff := cmp.Diff(want, list(t, s)); diff != "" {
		t.Error(diff)
	}
}

func TestReadSensors(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Set(first, "gpu_busy_percent", "97")
	sysfs.Set(first, "mem_info_vram_used", "103070826496")
	sysfs.SetEnergy(first, 1, 7, 24, 3<<16)
	got := values(read(t, s, list(t, s)[0]))
	want := map[device.Field]float64{
		device.GPUUtil: 97, device.MemCopyUtil: 0, device.FBTotal: 196592, device.FBUsed: 98296, device.FBFree: 98296, device.FBUsedRatio: 0.5,
		device.PowerUsage: 139, device.PowerLimit: 750, device.GPUTemp: 41, device.ThermalMargin: 59, device.MemoryTemp: 34,
		device.SMClock: 132, device.MemClock: 900, device.TotalEnergy: 3000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Sensors differ between generations. A sensor that does not exist has no value, never 0.
func TestReadSensorsOfOtherGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(sysfs *fake.Sysfs)
		want   map[device.Field]float64 // NaN is not used: an absent field is in absent
		absent []device.Field
	}{
		"MI200 reports the average power": {
			func(s *fake.Sysfs) { s.Set(first, "hwmon/hwmon3/power1_average", "93000000") },
			map[device.Field]float64{device.PowerUsage: 93}, nil,
		},
		"a GPU without a junction sensor": {
			func(s *fake.Sysfs) {
				s.Set(first, "hwmon/hwmon3/temp2_label", "edge")
				s.Unset(first, "hwmon/hwmon3/temp2_crit")
			},
			map[device.Field]float64{device.GPUTemp: 41}, []device.Field{device.ThermalMargin},
		},
		"no hwmon": {
			func(s *fake.Sysfs) { s.Unset(first, "hwmon") },
			map[device.Field]float64{device.GPUUtil: 0}, []device.Field{device.PowerUsage, device.GPUTemp},
		},
		"hwmon of another driver": {
			func(s *fake.Sysfs) { s.Set(first, "hwmon/hwmon3/name", "nvme") },
			nil, []device.Field{device.PowerUsage, device.GPUTemp},
		},
		"a virtual function without sensors": {
			func(s *fake.Sysfs) {
				for _, name := range []string{"hwmon", "gpu_busy_percent", "mem_busy_percent", "gpu_metrics"} {
					s.Unset(first, name)
				}
			},
			map[device.Field]float64{device.FBTotal: 196592}, []device.Field{device.GPUUtil, device.PowerUsage, device.TotalEnergy},
		},
		"one sensor fails": {
			func(s *fake.Sysfs) { s.Break(first, "gpu_busy_percent") },
			map[device.Field]float64{device.PowerUsage: 139}, []device.Field{device.GPUUtil},
		},
		"impossible values": {
			func(s *fake.Sysfs) { s.Set(first, "gpu_busy_percent", "65535") },
			nil, []device.Field{device.GPUUtil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sysfs, s := newNode(t)
			tc.change(sysfs)
			got := values(read(t, s, list(t, s)[0]))
			for f, v := range tc.want {
				if got[f] != v {
					t.Errorf("field %d is %v, want %v", f, got[f], v)
				}
			}
			for _, f := range tc.absent {
				if v, ok := got[f]; ok {
					t.Errorf("field %d is %v without a sensor", f, v)
				}
			}
		})
	}
}

// A sensor that fails is a failed call. One that the GPU does not have is none.
func TestFailedSensorIsAFailedCall(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Break(first, "gpu_busy_percent")
	sysfs.Unset(first, "mem_busy_percent")
	reading, err := s.Read(t.Context(), list(t, s)[0])
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, call := range reading.Calls {
		if call.Err != nil {
			failed = append(failed, call.Name)
		}
	}
	if diff := cmp.Diff([]string{"gpu_busy_percent"}, failed); diff != "" {
		t.Error(diff)
	}
}

// During a reset every sensor fails, and the GPU must not look idle. The driver still knows
// the memory.
func TestGPUWhoseSensorsFailIsUnhealthy(t *testing.T) {
	sysfs, s := newNode(t)
	for _, name := range []string{"gpu_busy_percent", "mem_busy_percent", "gpu_metrics", "hwmon/hwmon3/power1_input", "hwmon/hwmon3/power1_cap", "hwmon/hwmon3/temp2_input",
		"hwmon/hwmon3/temp3_input", "hwmon/hwmon3/freq1_input", "hwmon/hwmon3/freq2_input"} {
		sysfs.Break(first, name)
	}
	devices := list(t, s)
	if _, err := s.Read(t.Context(), devices[0]); err == nil || errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "gpu_busy_percent") {
		t.Errorf("the error is %v", err)
	}
	read(t, s, devices[1])
}

func TestDriverOfGPU(t *testing.T) {
	sysfs, s := newNode(t)
	d := list(t, s)[0]
	sysfs.Unbind(first)
	if again := list(t, s); len(again) != 2 || again[0].KubeletID != first {
		t.Errorf("without driver the devices are %+v", again)
	}
	if _, err := s.Read(t.Context(), d); !errors.Is(err, errNoDriver) {
		t.Errorf("without driver: %v", err)
	}
	sysfs.Bind(first, 7) // the driver was loaded again
	if again := list(t, s); again[0].UUID != d.UUID || again[0].Minor != "renderD135" {
		t.Errorf("after the driver was loaded again: %+v", again[0])
	}
	read(t, s, d)
}

func TestDevicesWithoutGPU(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "sys")
	empty := fake.New(t)
	if err := os.RemoveAll(filepath.Join(empty.Root, "class/drm")); err != nil {
		t.Fatal(err)
	}
	other := fake.New(t)
	other.AddGPU(first, 0)
	if err := os.Remove(filepath.Join(other.Root, "devices/pci0000:00", first, "driver")); err != nil { // such as a display adapter
		t.Fatal(err)
	}
	for root, want := range map[string]string{missing: "--amd-sysfs-root must be a mounted sysfs", empty.Root: "no GPU with the amdgpu driver", other.Root: "no GPU with the amdgpu driver"} {
		if _, err := New(Options{Sysfs: root}).Devices(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", root, err, want)
		}
	}
}

// A GPU that is dead when the exporter starts cannot be described. Others are listed.
func TestUndescribedGPU(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Break(second, "mem_info_vram_total")
	if devices := list(t, s); len(devices) != 1 || s.Undescribed() != 1 {
		t.Errorf("%d devices and %d undescribed", len(devices), s.Undescribed())
	}
}

func TestIdentity(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Unset(first, "product_name")
	sysfs.Unset(first, "unique_id")
	sysfs.Set(second, "product_name", "")
	sysfs.Set(second, "device", "0x73bf")
	devices := list(t, s)
	if d := devices[0]; d.UUID != "AMD-node-1-"+first || d.Model != "AMD Instinct MI300X" {
		t.Errorf("without name and id: %+v", d)
	}
	if d := devices[1]; d.Model != "AMD GPU 73bf" {
		t.Errorf("an unknown model: %+v", d)
	}
}

// A GPU has one entry with its UUID, wherever it is.
func TestGPUAtAnotherAddress(t *testing.T) {
	const third = "0002:5c:00.0"
	sysfs, s := newNode(t)
	before := list(t, s)[0]
	sysfs.Remove(first)
	list(t, s)
	sysfs.AddGPU(third, 1)
	after := list(t, s)
	want := before
	want.PCIBusID, want.KubeletID = third, third
	if diff := cmp.Diff(want, after[0]); diff != "" || len(after) != 2 {
		t.Errorf("%d devices: %s", len(after), diff)
	}
	read(t, s, after[0])
}

// Two GPUs change places. No entry stays for the old places.
func TestGPUsThatChangePlaces(t *testing.T) {
	sysfs, s := newNode(t)
	before := list(t, s)
	sysfs.Remove(first)
	sysfs.Remove(second)
	list(t, s)
	sysfs.AddGPU(first, 0)
	list(t, s)
	if devices := list(t, s); len(devices) != 1 || devices[0].UUID != before[1].UUID || devices[0].PCIBusID != first || devices[0].Index != 1 {
		t.Errorf("with one of them: %+v", devices)
	}
	sysfs.AddGPU(second, 1)
	devices := list(t, s)
	if len(devices) != 2 || devices[1].UUID != before[0].UUID || devices[1].PCIBusID != second || devices[1].Index == devices[0].Index {
		t.Errorf("with both: %+v", devices)
	}
	for _, d := range devices {
		read(t, s, d)
	}
}

// A GPU can be replaced between two listings, so that its driver was bound in both.
func TestGPUsReplacedBetweenListings(t *testing.T) {
	sysfs, s := newNode(t)
	before := list(t, s)
	replace := func(address, id, model string) {
		sysfs.Remove(address)
		sysfs.AddGPU(address, 7)
		sysfs.Set(address, "unique_id", id)
		sysfs.Set(address, "product_name", model)
	}
	replace(first, "ff", "AMD Instinct MI325X OAM")
	devices := list(t, s)
	if d := devices[0]; len(devices) != 2 || d.UUID != "GPU-ff" || d.Model != "AMD Instinct MI325X OAM" || d.Minor != "renderD135" || d.Index != before[0].Index || s.Undescribed() != 0 {
		t.Errorf("%+v", devices)
	}
	if diff := cmp.Diff(before[1], devices[1]); diff != "" {
		t.Error(diff)
	}
	sysfs.Set(first, "unique_id", "a1b2c3d400000000") // the GPUs change places
	sysfs.Set(second, "unique_id", "ff")
	devices = list(t, s)
	if len(devices) != 2 || devices[0].UUID != "GPU-ff" || devices[0].PCIBusID != second || devices[1].UUID != before[1].UUID || devices[1].PCIBusID != first {
		t.Errorf("%+v", devices)
	}
	sysfs.Break(first, "unique_id") // during a reset
	if diff := cmp.Diff(devices, list(t, s)); diff != "" {
		t.Error(diff)
	}
}

// GPUs with the same id are two devices, in each listing the same.
func TestGPUsWithTheSameID(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Set(first, "unique_id", "a1b2c3d400000000")
	for _, change := range []func(){func() {}, func() {}, func() { sysfs.Unbind(second) }, func() { sysfs.Bind(second, 0) }} {
		change()
		devices := list(t, s)
		if len(devices) != 2 || devices[0].UUID != "GPU-a1b2c3d400000000" || devices[1].UUID != "AMD-node-1-"+second || devices[1].KubeletID != second {
			t.Errorf("the devices are %+v", devices)
		}
	}
}

// Another GPU in the same place has its own identity. The old one is gone.
func TestAnotherGPUInTheSamePlace(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Partition(first, "DPX", "NPS1", 1, 9)
	before := list(t, s)[0]
	sysfs.Remove(first)
	if _, err := s.Read(t.Context(), list(t, s)[0]); !errors.Is(err, device.ErrLost) {
		t.Errorf("after the GPU was removed: %v", err)
	}
	sysfs.AddGPU(first, 5)
	sysfs.Set(first, "product_name", "AMD Instinct MI325X OAM")
	sysfs.Break(first, "unique_id") // not readable at once
	if devices := list(t, s); devices[0].UUID != before.UUID || s.Undescribed() != 1 {
		t.Errorf("without id: %+v", devices)
	}
	sysfs.Unset(first, "unique_id")
	sysfs.Set(first, "unique_id", "ff")
	sysfs.Break(first, "current_compute_partition")
	devices := list(t, s)
	if d := devices[0]; len(devices) != 2 || d.UUID != "GPU-ff" || d.Model != "AMD Instinct MI325X OAM" || d.Index != before.Index || d.KubeletID != first {
		t.Errorf("the devices are %+v", devices)
	}
	if r := read(t, s, devices[0]); r.MIG || !r.PartitionsUnknown {
		t.Errorf("the new GPU has the partitions of the old one: %+v", r.Instances)
	}
	if _, err := s.Read(t.Context(), before); err == nil || errors.Is(err, device.ErrLost) {
		t.Errorf("the old GPU: %v", err)
	}
}

func TestLinks(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.AddGPU("0002:5c:00.0", 2)
	for address, hive := range map[string]string{first: "5", second: "5", "0002:5c:00.0": "0"} {
		sysfs.Set(address, "xgmi_hive_info/xgmi_hive_id", hive)
	}
	var links [][]string
	for _, d := range list(t, s) {
		links = append(links, d.Links)
	}
	if diff := cmp.Diff([][]string{{second}, {first}, nil}, links); diff != "" {
		t.Error(diff)
	}
}

func TestPartitions(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Partition(first, "CPX", "NPS4", 1, 9, 10, 11)
	whole := list(t, s)
	if d := whole[0]; d.KubeletID != "" || d.Minor != "card1" {
		t.Errorf("the whole GPU has the names of its first partition: %v", d.Names())
	}
	if d := whole[1]; d.KubeletID != second {
		t.Errorf("the other GPU: %v", d.Names())
	}
	r := read(t, s, whole[0])
	if !r.MIG || len(r.Instances) != 4 || read(t, s, whole[1]).MIG {
		t.Fatalf("partitioned: %t, partitions: %+v", r.MIG, r.Instances)
	}
	var names [][]string
	for i, p := range r.Instances {
		names = append(names, p.Names())
		if p.MemoryMiB != 49148 || p.Instance.Profile != "CPX-NPS4" || p.Instance.GI != i {
			t.Errorf("partition %+v %+v", p, p.Instance)
		}
		read(t, s, p)
	}
	id := whole[0].UUID
	want := [][]string{{id + "-xcp0", "renderD129", first}, {id + "-xcp1", "renderD137", "amdgpu_xcp_9"}, {id + "-xcp2", "renderD138", "amdgpu_xcp_10"}, {id + "-xcp3", "renderD139", "amdgpu_xcp_11"}}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	sysfs.Set(first, "current_compute_partition", "SPX")
	whole = list(t, s)
	if r := read(t, s, whole[0]); r.MIG || whole[0].KubeletID != first {
		t.Errorf("after the end of the partition mode: %+v", whole[0])
	}
}

// During a reset the driver does not report the partition mode. The GPU may not be
// allocatable as a whole then.
func TestUnreadablePartitionMode(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Partition(first, "DPX", "NPS1", 1, 9)
	before := read(t, s, list(t, s)[0])
	sysfs.Break(first, "current_compute_partition")
	sysfs.Break(second, "current_compute_partition")
	devices := list(t, s)
	if r := read(t, s, devices[0]); !r.PartitionsUnknown || !r.MIG || len(r.Instances) != len(before.Instances) {
		t.Errorf("a partitioned GPU: unknown %t, partitions %+v", r.PartitionsUnknown, r.Instances)
	}
	if r := read(t, s, devices[1]); !r.PartitionsUnknown || devices[1].KubeletID != second {
		t.Errorf("another GPU: unknown %t, names %v", r.PartitionsUnknown, devices[1].Names())
	}
	sysfs.Unset(second, "current_compute_partition")
	for mode, unknown := range map[string]bool{"UNKNOWN": true, "SPX": false, "": false} {
		sysfs.Set(second, "current_compute_partition", mode)
		if r := read(t, s, list(t, s)[1]); r.PartitionsUnknown != unknown || r.MIG {
			t.Errorf("mode %q: unknown %t, want %t", mode, r.PartitionsUnknown, unknown)
		}
	}
	sysfs.Unset(second, "current_compute_partition") // the GPU has no partition modes
	if read(t, s, list(t, s)[1]).PartitionsUnknown {
		t.Error("the partitions of a GPU without partition modes are unknown")
	}
}

// Without the topology only the first partition is known. It has the PCI device of the GPU.
func TestPartitionsWithoutTopology(t *testing.T) {
	sysfs, s := newNode(t)
	sysfs.Partition(first, "DPX", "NPS1", 1, 9)
	if err := os.RemoveAll(filepath.Join(sysfs.Root, "class/kfd")); err != nil {
		t.Fatal(err)
	}
	if r := read(t, s, list(t, s)[0]); len(r.Instances) != 1 || r.Instances[0].KubeletID != first {
		t.Errorf("the partitions are %+v", r.Instances)
	}
}

func TestEnergyByLayout(t *testing.T) {
	for _, tc := range []struct {
		layout [2]byte
		offset int
		id     string
		size   int
		ok     bool
	}{
		{[2]byte{1, 3}, 24, "0x740f", 128, true}, {[2]byte{1, 3}, 24, "0x73bf", 128, false}, {[2]byte{1, 4}, 24, "0x74a1", 512, true}, {[2]byte{1, 5}, 88, "0x74a1", 512, true},
		{[2]byte{1, 6}, 16, "0x74a1", 1664, true}, {[2]byte{1, 6}, 16, "0x74a1", 512, false}, {[2]byte{1, 7}, 24, "0x74a1", 1664, true}, {[2]byte{1, 8}, 24, "0x75a0", 1664, true},
		{[2]byte{1, 9}, 24, "0x75a0", 512, false}, {[2]byte{2, 4}, 24, "0x150e", 512, false}, {[2]byte{1, 4}, 24, "0x74a1", 30, false}, {[2]byte{1, 4}, 24, "0x74a1", 3, false},
	} {
		content := make([]byte, max(tc.size, tc.offset+8))
		content[0], content[1], content[2], content[3] = byte(tc.size), byte(tc.size>>8), tc.layout[0], tc.layout[1]
		content[tc.offset+2] = 2 // 2 × 2^16 units of 2^-16 J
		mJ, ok := decodeEnergy(content[:tc.size], tc.id)
		if ok != tc.ok || ok && mJ != 2000 {
			t.Errorf("%+v: %v mJ, %t", tc, mJ, ok)
		}
	}
	for name, counter := range map[string]byte{"0": 0, "all ones": 0xff} {
		content := []byte{0, 2, 1, 4, 31: 0, 40: 0}
		for i := 24; i < 32; i++ {
			content[i] = counter
		}
		if _, ok := decodeEnergy(content, "0x74a1"); ok {
			t.Errorf("a counter of %s is exported", name)
		}
	}
}
