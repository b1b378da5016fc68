package collector

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// nodeStates returns plimsoll_node_devices for allocatable, allocated, free, unhealthy and
// unknown.
func nodeStates(t *testing.T, families map[string]*dto.MetricFamily) [5]float64 {
	t.Helper()
	var out [5]float64
	for i, state := range []string{"allocatable", "allocated", "free", "unhealthy", "unknown"} {
		out[i] = value(t, families, "plimsoll_node_devices", "node", "node-1", "resource", "nvidia.com/gpu", "model", "NVIDIA-H100-80GB-HBM3", "state", state)
	}
	return out
}

func TestNodeDevicesFreeExcludesHeldAndUnhealthy(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/train-0/main"] = []string{uuid(0), uuid(1), uuid(2)}
	f.source.lost[uuid(2)] = true // held and lost: subtracted once
	f.source.lost[uuid(7)] = true
	families, _ := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{8, 3, 4, 2, 0}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy, unknown = %v, want %v", got, want)
	}
	if got := value(t, families, "plimsoll_node_largest_free_group", "model", "NVIDIA-H100-80GB-HBM3"); got != 4 {
		t.Errorf("NVLink connects %g of the 4 free devices", got)
	}
	if got := value(t, families, "plimsoll_device_lost", "uuid", uuid(7)); got != 1 {
		t.Fatalf("plimsoll_device_lost = %g", got)
	}
}

func TestNodeDevicesNeverCountsSharedAsFree(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/notebook/main"] = []string{uuid(0) + "::3"}
	families, _ := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{8, 1, 7, 0, 0}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy, unknown = %v, want %v", got, want)
	}
}

func TestNodeDevicesCountsFailedAsUnhealthy(t *testing.T) {
	f := setup(t)
	f.source.fails = map[string]bool{uuid(2): true}
	families, text := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{8, 0, 7, 1, 0}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy, unknown: %v, want %v", got, want)
	}
	if value(t, families, "plimsoll_device_failed", "uuid", uuid(2)) != 1 || value(t, families, "plimsoll_device_failed", "uuid", uuid(1)) != 0 {
		t.Errorf("plimsoll_device_failed is not 1 for device 2 only:\n%s", text)
	}
	if strings.Contains(text, `DCGM_FI_DEV_GPU_UTIL{gpu="2"`) {
		t.Errorf("a failed device has values:\n%s", text)
	}
	f.source.fails = nil
	if families, _ = f.collect(t); value(t, families, "plimsoll_device_failed", "uuid", uuid(2)) != 0 {
		t.Error("plimsoll_device_failed is 1 after a successful reading")
	}
}

func TestNodeDevicesAbsentWithoutKubelet(t *testing.T) {
	f := setup(t)
	f.kubelet.server.Stop()
	families, _ := f.collect(t)
	if families["plimsoll_node_devices"] != nil {
		t.Fatal("devices are counted although their holders are unknown")
	}
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "kubelet_unreachable"); got != 8 {
		t.Fatalf("unmapped = %g, want 8", got)
	}
	f.kubelet.start(t, f.socket)
	families, _ = f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{8, 0, 8, 0, 0}; got != want {
		t.Fatalf("after the kubelet restarted: %v, want %v", got, want)
	}
}

// While a kubelet that restarts has not loaded its pods, no device is free, although claims hold
// all of them.
func TestNodeDevicesAbsentUntilKubeletHasItsPods(t *testing.T) {
	f := setup(t)
	f.pods.ExpectPod("plimsoll-exporter", "exporter-x7k2p")
	f.kubelet.noDevices = true
	holds := map[string][]string{"plimsoll-exporter/exporter-x7k2p/exporter": nil, "ml/a/main": {"gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7"}}
	f.kubelet.claims = holds
	free := func() float64 {
		families, _ := f.collect(t)
		return value(t, families, "plimsoll_node_devices", "resource", "gpu.nvidia.com", "state", "free")
	}
	if n := free(); n != 0 {
		t.Errorf("%g devices are free", n)
	}
	f.kubelet.claims = map[string][]string{"kube-system/etcd-node-1/etcd": nil}
	families, text := f.collect(t)
	if families["plimsoll_node_devices"] != nil || value(t, families, "plimsoll_exporter_kubelet_up", "node", "node-1") != 0 {
		t.Errorf("with static pods only:\n%s", text)
	}
	f.kubelet.claims = holds
	if n := free(); n != 0 {
		t.Errorf("after the pods were loaded, %g devices are free", n)
	}
}

// A device plugin withdraws an unhealthy device, and all devices while it restarts. Claims cannot
// allocate them.
func TestNodeDevicesWithoutWithdrawnDevices(t *testing.T) {
	f := setup(t)
	f.pods.ExpectClaims()
	f.collect(t)
	f.kubelet.noDevices = true
	for i := range 8 {
		if i != 3 {
			f.kubelet.ids = append(f.kubelet.ids, uuid(i))
		}
	}
	families, text := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{7, 0, 7, 0, 0}; got != want || strings.Contains(text, "gpu.nvidia.com") {
		t.Errorf("allocatable, allocated, free, unhealthy, unknown = %v, want %v:\n%s", got, want, text)
	}
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "not_allocatable"); got != 1 {
		t.Errorf("%g devices are not allocatable", got)
	}
	f.kubelet.ids = nil
	if families, text = f.collect(t); families["plimsoll_node_devices"] != nil {
		t.Errorf("while the plugin restarts:\n%s", text)
	}
	// The node has a DRA driver in place of the plugin.
	f.kubelet.claims = map[string][]string{"ml/a/main": {"gpu-3"}}
	f.collect(t)
	f.kubelet.claims = nil
	families, _ = f.collect(t)
	if got := value(t, families, "plimsoll_node_devices", "resource", "gpu.nvidia.com", "state", "free"); got != 1 {
		t.Errorf("%g devices that a claim allocated before are free", got)
	}
}

// If the allocatable devices are unknown, no device counts as free, but pods keep their
// devices.
func TestNodeDevicesAbsentWithoutAllocatable(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/train/main"] = []string{uuid(0)}
	f.kubelet.failAllocatable = true
	families, text := f.collect(t)
	if families["plimsoll_node_devices"] != nil || value(t, families, "plimsoll_exporter_mapped_devices", "node", "node-1") != 1 {
		t.Errorf("devices are counted:\n%s", text)
	}
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "allocatable_unknown"); got != 7 {
		t.Errorf("%v devices are not mapped, want 7", got)
	}
	if !strings.Contains(text, `container="main",namespace="team-a",pod="train"} 10`) {
		t.Errorf("the pod lost its device:\n%s", text)
	}
}

func TestUnmappedDevicesWithKubeletDisabled(t *testing.T) {
	f := setup(t)
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	f.pods = pods
	families, _ := f.collect(t)
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "kubelet_disabled"); got != 8 {
		t.Errorf("%v devices are not mapped, want 8", got)
	}
}

// On a node that uses only resource claims, the kubelet reports no allocatable device.
// The listed devices count, grouped by the DeviceClass of claims.
func TestCensusCountsDevicesOfClaims(t *testing.T) {
	wholeDevice := func(i string) *deviceSnapshot {
		return &deviceSnapshot{fresh: true, device: device.Device{UUID: "GPU-" + i, Minor: "nvidia" + i, Model: "NVIDIA H100"}}
	}
	partitioned := wholeDevice("1")
	partitioned.reading.MIG = true
	instance := &deviceSnapshot{parent: partitioned, device: device.Device{UUID: "MIG-1", Minor: "nvidia1", Model: "NVIDIA H100",
		Instance: &device.Instance{Parent: "GPU-1", Profile: "1g.10gb", GI: 7, Placement: "19-0"}}}
	tpu := &deviceSnapshot{device: device.Device{Vendor: device.Google, UUID: "TPU-0", Minor: "tpu0", Model: "tpu-v6e-slice"}}
	all := []*deviceSnapshot{wholeDevice("0"), partitioned, instance, wholeDevice("2"), tpu}
	holder := podmap.Holder{Namespace: "ml", Pod: "a", Container: "main"}
	pods := podmap.Map{ClaimDrivers: map[string]bool{podmap.NVIDIADriver: true}, Holders: map[string][]podmap.Holder{"nvidia0": {holder}, "nvidia1/mig-19-0": {holder}},
		Allocated: map[string]string{"nvidia0": "", "nvidia1/mig-19-0": ""}}
	takeCensus := func() *census {
		n := newCensus()
		for _, d := range all {
			d.allocated = pods.IsAllocated(d.device.Names())
			n.countDevice(d, pods)
		}
		return n
	}
	n := takeCensus()
	for g, want := range map[deviceGroup][3]float64{{"gpu.nvidia.com", "NVIDIA-H100"}: {2, 1, 1}, {"mig.nvidia.com", "NVIDIA-H100-MIG-1g.10gb"}: {1, 1, 0}} {
		if got := [3]float64{n.counts[g]["allocatable"], n.counts[g]["allocated"], float64(len(n.free[g]))}; got != want {
			t.Errorf("%v: allocatable, allocated, free = %v, want %v", g, got, want)
		}
	}
	if len(n.counts) != 2 || n.mapped != 3 || n.notAllocatable != 1 {
		t.Errorf("%d groups, %g mapped and %g not allocatable, want 2, 3 and 1: %v", len(n.counts), n.mapped, n.notAllocatable, n.counts)
	}
	// A device that a device plugin lists counts for the plugin's resource.
	pods.Allocatable = map[string]string{"GPU-0": "nvidia.com/gpu"}
	if n = takeCensus(); n.counts[deviceGroup{"nvidia.com/gpu", "NVIDIA-H100"}]["allocatable"] != 1 || n.counts[deviceGroup{"gpu.nvidia.com", "NVIDIA-H100"}]["allocatable"] != 1 {
		t.Errorf("with a device plugin: %v", n.counts)
	}
	// Without claims a device that no plugin lists is not allocatable.
	pods = podmap.Map{}
	if n = takeCensus(); len(n.counts) != 0 || n.notAllocatable != 4 {
		t.Errorf("without claims: %v, %g not allocatable", n.counts, n.notAllocatable)
	}
}

// A device whose partition mode cannot be read may be in MIG mode. With resource claims,
// nothing else says whether it is free as a whole.
func TestNodeDevicesWithUnknownPartitions(t *testing.T) {
	f := setup(t)
	f.kubelet.noDevices = true
	f.kubelet.claims = map[string][]string{"ml/a/main": {"gpu-1"}}
	f.source.override = func(d device.Device, r *device.Reading) { r.PartitionsUnknown = d.Index == 0 }
	families, _ := f.collect(t)
	for state, want := range map[string]float64{"allocatable": 8, "allocated": 1, "free": 6, "unhealthy": 0, "unknown": 1} {
		if got := value(t, families, "plimsoll_node_devices", "resource", "gpu.nvidia.com", "state", state); got != want {
			t.Errorf("%s: %g, want %g", state, got, want)
		}
	}
}

// While one vendor is collected for the first time, the devices of another one may be listed
// but not read. They may be in MIG mode or lost.
func TestNodeDevicesBeforeFirstReading(t *testing.T) {
	one := &fakeSource{hung: map[string]chan struct{}{uuid(0): make(chan struct{})}}
	f := setupTwoVendors(t, one, &singleSource{uuid: "GPU-two"})
	f.pollPods(t.Context())
	collected := make(chan error)
	go func() { collected <- f.Collector.collect(t.Context(), f.vendors[0]) }()
	for isRead := false; !isRead; runtime.Gosched() {
		one.mu.Lock()
		isRead = one.reads[uuid(0)] > 0
		one.mu.Unlock()
	}
	if err := f.Collector.collect(t.Context(), f.vendors[1]); err != nil {
		t.Fatal(err)
	}
	families, _ := f.scrape(t)
	if got, want := nodeStates(t, families), [5]float64{8, 0, 0, 0, 8}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy, unknown = %v, want %v", got, want)
	}
	close(one.hung[uuid(0)])
	if err := <-collected; err != nil {
		t.Fatal(err)
	}
	families, _ = f.scrape(t)
	if got, want := nodeStates(t, families), [5]float64{8, 0, 8, 0, 0}; got != want {
		t.Errorf("after the first reading: %v, want %v", got, want)
	}
}

// An allocatable device that no source lists may have been lost before the exporter
// started, or its id is not understood.
func TestNodeDevicesCountsUnlistedAsUnknown(t *testing.T) {
	f := setup(t)
	f.kubelet.ids = []string{uuid(20), uuid(21), "odd"}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(21)}
	families, _ := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{11, 1, 8, 0, 3}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy, unknown = %v, want %v", got, want)
	}
	for _, reason := range []string{"allocatable_not_listed", "allocated_not_listed", "unknown_id_format"} {
		if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", reason); got != 1 {
			t.Errorf("%s: %g, want 1", reason, got)
		}
	}
	pods := podmap.Map{Allocatable: map[string]string{uuid(20): "nvidia.com/gpu"}}
	n := newCensus()
	n.countUnresolved(pods, nil)
	if n.counts[deviceGroup{"nvidia.com/gpu", "unknown"}]["unknown"] != 1 {
		t.Errorf("without any listed device: %v", n.counts)
	}
}

// HAMi's plugin lists each device several times. None is free for a pod that needs a whole
// device, and none is unhealthy.
func TestNodeDevicesOfHAMi(t *testing.T) {
	f := setup(t)
	f.kubelet.noDevices = true
	for i := range 8 {
		for replica := range 10 {
			f.kubelet.ids = append(f.kubelet.ids, fmt.Sprintf("%s-%d", uuid(i), replica))
		}
	}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(3) + "-7"}
	families, _ := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{8, 1, 0, 0, 0}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy, unknown = %v, want %v", got, want)
	}
	value(t, families, "plimsoll_device_owner_info", "uuid", uuid(3), "pod", "a")
}

// KAI Scheduler reserves a device with a pod of its own. The device is not free, and the
// reservation is not charged for it.
func TestNodeDevicesOfKAI(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["kai-resource-reservation/gpu-reservation-node-1-x7k2p/resource-reservation"] = []string{uuid(2)}
	families, text := f.collect(t)
	if got, want := nodeStates(t, families), [5]float64{8, 1, 7, 0, 0}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy, unknown = %v, want %v", got, want)
	}
	if strings.Contains(text, "gpu-reservation") {
		t.Error("the reservation pod holds the device")
	}
}

// With resource claims, the kubelet lists no allocatable device. An allocated id that
// belongs to no listed device may be any of them.
func TestNodeDevicesLowersFreeForUnresolvedClaims(t *testing.T) {
	instance := func(gi int, profile, placement string) device.Instance {
		return device.Instance{GI: gi, Profile: profile, Placement: placement}
	}
	instances := []device.Instance{instance(7, "1g.10gb", ""), instance(8, "1g.10gb", ""), instance(9, "1g.10gb+me", ""), instance(5, "2g.20gb", "")}
	for name, tc := range map[string]struct {
		instances   []device.Instance
		claims      []string
		free        float64            // whole devices
		unknown     float64            // whole devices
		freeMIG     map[string]float64 // by profile
		largestFree float64
	}{
		"resolved":                         {nil, []string{"gpu-3"}, 7, 0, nil, 7},
		"resolved instance":                {[]device.Instance{instance(7, "1g.10gb", "19-0"), instance(8, "1g.10gb", "19-1")}, []string{"gpu-0-mig-1g10gb-19-1"}, 7, 0, map[string]float64{"1g.10gb": 1}, 7},
		"device bound to vfio":             {nil, []string{"gpu-vfio-3"}, 7, 1, nil, 7},
		"unknown format":                   {nil, []string{"gpu-three", "gpu-four"}, 6, 2, nil, 6},
		"not prepared":                     {nil, nil, 7, 1, nil, 7},
		"not prepared, with instances":     {instances, nil, 6, 1, map[string]float64{"1g.10gb": 1, "1g.10gb+me": 0, "2g.20gb": 0}, 6},
		"instance of a whole device":       {nil, []string{"gpu-3-mig-1g10gb-19-0"}, 7, 1, nil, 7},
		"two instances of a whole device":  {nil, []string{"gpu-3-mig-1g10gb-19-0", "gpu-3-mig-1g10gb-19-1"}, 7, 1, nil, 7},
		"instance of an unknown device":    {nil, []string{"gpu-9-mig-1g10gb-19-0"}, 7, 1, nil, 7},
		"instance without placement":       {instances, []string{"gpu-0-mig-1g10gb-19-0"}, 7, 0, map[string]float64{"1g.10gb": 1, "1g.10gb+me": 1, "2g.20gb": 1}, 7},
		"media instance without placement": {instances, []string{"gpu-0-mig-1g10gb-me-20-0"}, 7, 0, map[string]float64{"1g.10gb": 2, "1g.10gb+me": 0, "2g.20gb": 1}, 7},
		"instance without profile":         {instances, []string{"gpu-0-mig-19-0-1"}, 7, 0, map[string]float64{"1g.10gb": 1, "1g.10gb+me": 0, "2g.20gb": 0}, 7},
		"more than there are":              {instances, []string{"gpu-0-mig-19-0-1", "gpu-0-mig-19-1-1", "gpu-0-mig-19-2-1"}, 7, 0, map[string]float64{"1g.10gb": 0, "1g.10gb+me": 0, "2g.20gb": 0}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.kubelet.noDevices, f.source.instances = true, tc.instances
			f.pods.ExpectClaims()
			f.kubelet.claims = map[string][]string{"ml/a/main": tc.claims}
			families, text := f.collect(t)
			whole := []string{"resource", "gpu.nvidia.com", "model", "NVIDIA-H100-80GB-HBM3"}
			for state, want := range map[string]float64{"free": tc.free, "unknown": tc.unknown, "unhealthy": 0} {
				if got := value(t, families, "plimsoll_node_devices", append(whole, "state", state)...); got != want {
					t.Errorf("%s: %g, want %g", state, got, want)
				}
			}
			if got := value(t, families, "plimsoll_node_largest_free_group", whole...); got != tc.largestFree {
				t.Errorf("the largest free group has %g devices, want %g", got, tc.largestFree)
			}
			for profile, want := range tc.freeMIG {
				if got := value(t, families, "plimsoll_node_free_mig_instances", "profile", profile); got != want {
					t.Errorf("%g free instances %s, want %g:\n%s", got, profile, want, text)
				}
				model := "NVIDIA-H100-80GB-HBM3-MIG-" + strings.ReplaceAll(profile, "+", "")
				if got := value(t, families, "plimsoll_node_devices", "resource", "mig.nvidia.com", "model", model, "state", "free"); got != want {
					t.Errorf("%g free devices %s, want %g", got, model, want)
				}
			}
		})
	}
}

// A device without a device node has an empty name. The id of another device is not its name.
func TestNodeDevicesWithoutDeviceNode(t *testing.T) {
	whole := func(i int, minor string) *deviceSnapshot {
		return &deviceSnapshot{fresh: true, device: device.Device{UUID: uuid(i), Minor: minor, Model: "m"}}
	}
	nameless := whole(0, "")
	nameless.lost = true
	all := []*deviceSnapshot{nameless, whole(1, "nvidia1"), whole(2, "nvidia2")}
	pods := podmap.Map{ClaimDrivers: map[string]bool{podmap.NVIDIADriver: true}, Allocated: map[string]string{"gpu.nvidia.com gpu-three": ""}}
	n := newCensus()
	for _, d := range all {
		n.countDevice(d, pods)
	}
	n.lowerFree(pods, namesOf(all))
	if got := len(n.free[deviceGroup{"gpu.nvidia.com", "m"}]); got != 1 {
		t.Errorf("%d devices are free, want 1", got)
	}
}
