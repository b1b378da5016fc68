package collector

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// nodeStates returns plimsoll_node_devices for allocatable, allocated, free and unhealthy.
func nodeStates(t *testing.T, families map[string]*dto.MetricFamily) [4]float64 {
	t.Helper()
	var out [4]float64
	for i, state := range []string{"allocatable", "allocated", "free", "unhealthy"} {
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
	if got, want := nodeStates(t, families), [4]float64{8, 3, 4, 2}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy = %v, want %v", got, want)
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
	if got, want := nodeStates(t, families), [4]float64{8, 1, 7, 0}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy = %v, want %v", got, want)
	}
}

func TestNodeDevicesCountsFailedAsUnhealthy(t *testing.T) {
	f := setup(t)
	f.source.fails = map[string]bool{uuid(2): true}
	families, text := f.collect(t)
	if got, want := nodeStates(t, families), [4]float64{8, 0, 7, 1}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy: %v, want %v", got, want)
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
	if got, want := nodeStates(t, families), [4]float64{8, 0, 8, 0}; got != want {
		t.Fatalf("after the kubelet restarted: %v, want %v", got, want)
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
		return &deviceSnapshot{device: device.Device{UUID: "GPU-" + i, Minor: "nvidia" + i, Model: "NVIDIA H100"}}
	}
	partitioned := wholeDevice("1")
	partitioned.reading.MIG = true
	instance := &deviceSnapshot{parent: partitioned, device: device.Device{UUID: "MIG-1", Minor: "nvidia1", Model: "NVIDIA H100",
		Instance: &device.Instance{Parent: "GPU-1", Profile: "1g.10gb", GI: 7, Placement: "19-0-1"}}}
	tpu := &deviceSnapshot{device: device.Device{UUID: "TPU-0", Minor: "tpu0", Model: "tpu-v6e-slice"}}
	all := []*deviceSnapshot{wholeDevice("0"), partitioned, instance, wholeDevice("2"), tpu}
	holder := podmap.Holder{Namespace: "ml", Pod: "a", Container: "main"}
	pods := podmap.Map{UsesClaims: true, Holders: map[string][]podmap.Holder{"nvidia0": {holder}, "nvidia1/mig-19-0-1": {holder}}}
	takeCensus := func() *census {
		n := newCensus()
		holders := holdersByUUID(pods, all)
		for _, d := range all {
			n.countDevice(d, pods, len(holders[d.device.UUID]) > 0)
		}
		return n
	}
	n := takeCensus()
	for g, want := range map[deviceGroup][3]float64{{"gpu.nvidia.com", "NVIDIA-H100"}: {2, 1, 1}, {"mig.nvidia.com", "NVIDIA-H100-MIG-1g.10gb"}: {1, 1, 0}} {
		if got := [3]float64{n.counts[g]["allocatable"], n.counts[g]["allocated"], n.counts[g]["free"]}; got != want {
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

// An allocatable device that no source lists was lost before the exporter started.
func TestCensusCountsUnlistedDevicesAsUnhealthy(t *testing.T) {
	f := setup(t)
	f.kubelet.ids = []string{"GPU-lost", "GPU-held"}
	f.kubelet.holdings["ml/a/main"] = []string{"GPU-held"}
	families, text := f.collect(t)
	for state, want := range map[string]float64{"allocatable": 10, "allocated": 1, "free": 8, "unhealthy": 2} {
		if got := value(t, families, "plimsoll_node_devices", "model", "NVIDIA-H100-80GB-HBM3", "state", state); got != want {
			t.Errorf("%s is %g, want %g:\n%s", state, got, want, text)
		}
	}
	for _, reason := range []string{"allocatable_not_listed", "allocated_not_listed"} {
		if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", reason); got != 1 {
			t.Errorf("%s: %g, want 1", reason, got)
		}
	}
	pods := podmap.Map{Allocatable: map[string]string{"GPU-lost": "nvidia.com/gpu"}}
	n := newCensus()
	if n.countUnlisted(pods, nil) != 1 || n.counts[deviceGroup{"nvidia.com/gpu", "unknown"}]["unhealthy"] != 1 {
		t.Errorf("without any listed device: %v", n.counts)
	}
}
