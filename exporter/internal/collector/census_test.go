package collector

import (
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// On a node with dynamic resources alone the kubelet tells of no allocatable device:
// those that there are count, by the device class that claims ask for.
func TestDevicesThatAreHandedOutByClaims(t *testing.T) {
	whole := func(i string) *known {
		return &known{device: device.Device{UUID: "GPU-" + i, Minor: "nvidia" + i, Model: "NVIDIA H100"}}
	}
	cut := whole("1")
	cut.reading.MIG = true
	part := &known{parent: cut, device: device.Device{UUID: "MIG-1", Minor: "nvidia1", Model: "NVIDIA H100",
		Instance: &device.Instance{Parent: "GPU-1", Profile: "1g.10gb", GI: 7, Placement: "19-0-1"}}}
	tpu := &known{device: device.Device{UUID: "TPU-0", Minor: "tpu0", Model: "tpu-v6e-slice"}}
	all := []*known{whole("0"), cut, part, whole("2"), tpu}
	who := podmap.Holder{Namespace: "ml", Pod: "a", Container: "main"}
	pods := podmap.Map{Claims: true, Holders: map[string][]podmap.Holder{"nvidia0": {who}, "nvidia1/mig-19-0-1": {who}}}
	census := func() *census {
		n := newCensus()
		var devices []device.Device
		for _, k := range all {
			devices = append(devices, k.device)
		}
		held := holders(pods, devices)
		for _, k := range all {
			n.count(k, pods, len(held[k.device.UUID]) > 0)
		}
		return n
	}
	n := census()
	for g, want := range map[group][3]float64{{"gpu.nvidia.com", "NVIDIA-H100"}: {2, 1, 1}, {"mig.nvidia.com", "NVIDIA-H100-MIG-1g.10gb"}: {1, 1, 0}} {
		if got := [3]float64{n.counts[g]["allocatable"], n.counts[g]["allocated"], n.counts[g]["free"]}; got != want {
			t.Errorf("%v: allocatable, allocated, free = %v, want %v", g, got, want)
		}
	}
	if len(n.counts) != 2 || n.mapped != 3 || n.absent != 1 {
		t.Errorf("%d groups, %g mapped and %g absent, want 2, 3 and 1: %v", len(n.counts), n.mapped, n.absent, n.counts)
	}
	// Beside a device plugin, what it has is counted as its resource.
	pods.Allocatable = map[string]string{"GPU-0": "nvidia.com/gpu"}
	if n = census(); n.counts[group{"nvidia.com/gpu", "NVIDIA-H100"}]["allocatable"] != 1 || n.counts[group{"gpu.nvidia.com", "NVIDIA-H100"}]["allocatable"] != 1 {
		t.Errorf("beside a device plugin: %v", n.counts)
	}
	// Where nothing is handed out by claims, a device that no plugin has is not free.
	pods = podmap.Map{}
	if n = census(); len(n.counts) != 0 || n.absent != 4 {
		t.Errorf("without claims: %v, %g absent", n.counts, n.absent)
	}
}

// What the kubelet would hand out, and nobody lists, is a device all the same: one
// that was lost before the exporter started.
func TestAnAllocatableDeviceThatIsNotThere(t *testing.T) {
	f := setup(t)
	f.kubelet.ids = []string{"GPU-gone", "GPU-held"}
	f.kubelet.held["ml/a/main"] = []string{"GPU-held"}
	families, text := f.collect(t)
	for state, want := range map[string]float64{"allocatable": 10, "allocated": 1, "free": 8, "unhealthy": 2} {
		if got := value(t, families, "plimsoll_node_devices", "model", "NVIDIA-H100-80GB-HBM3", "state", state); got != want {
			t.Errorf("%s is %g, want %g:\n%s", state, got, want, text)
		}
	}
	for _, reason := range []string{"allocatable, but not there", "held, but not there"} {
		if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", reason); got != 1 {
			t.Errorf("%s: %g, want 1", reason, got)
		}
	}
	pods := podmap.Map{Allocatable: map[string]string{"GPU-gone": "nvidia.com/gpu"}}
	n := newCensus()
	if n.miss(pods, nil) != 1 || n.counts[group{"nvidia.com/gpu", "unknown"}]["unhealthy"] != 1 {
		t.Errorf("where it was the only one: %v", n.counts)
	}
}
