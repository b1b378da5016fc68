package collector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// KAI Scheduler reserves a device through a pod of its own. The pods that share it name its group, and
// hold no device for the kubelet. Unallocated devices can be reserved.
func TestSharesOfKAI(t *testing.T) {
	const reserves = "kai-resource-reservation/r/main"
	of := func(ratio, mib float64) podmap.Fraction {
		return podmap.Fraction{Groups: []string{"g"}, Ratio: ratio, Memory: mib}
	}
	for _, tc := range []struct {
		name      string
		fractions map[string]podmap.Fraction // by pod of the namespace ml
		allocated map[int]float64            // MiB, by device with shares
		ofPods    []string
		claimed   bool   // a resource claim allocated device 0, too
		unknown   string // the pod that the API server has not shown yet
		unlisted  bool   // a pod holds an id that belongs to no device
	}{
		{name: "two pods", fractions: map[string]podmap.Fraction{"r": of(0, 0), "a": of(0.25, 0), "b": of(0, 2000)}, allocated: map[int]float64{0: 20375 + 2000, 2: 0}, ofPods: []string{"a memory 2.1364736e+10", "b memory 2.097152e+09"}},
		{name: "a third of 81,500 MiB is rounded down", fractions: map[string]podmap.Fraction{"r": of(0, 0), "a": of(0.333, 0)}, allocated: map[int]float64{0: 27139, 2: 0}, ofPods: []string{"a memory 2.8457304064e+10"}},
		{name: "more than the device", fractions: map[string]podmap.Fraction{"r": of(0, 0), "a": of(0, 9e18)}, allocated: map[int]float64{0: 81500, 2: 0}, ofPods: []string{"a memory 8.5458944e+10"}},
		{name: "no pod is known yet", fractions: map[string]podmap.Fraction{"r": of(0, 0)}, allocated: map[int]float64{2: 0}},
		{name: "the reservation is not known yet", fractions: map[string]podmap.Fraction{"a": of(0.5, 0)}, allocated: map[int]float64{2: 0}},
		{name: "a claim allocated the device, too", fractions: map[string]podmap.Fraction{"r": of(0, 0), "a": of(0.25, 0)}, allocated: map[int]float64{2: 0}, claimed: true},
		{name: "a pod that may share the device", fractions: map[string]podmap.Fraction{"r": of(0, 0), "a": of(0.25, 0)}, allocated: map[int]float64{2: 0}, unknown: "b"},
		{name: "an id that may be any unallocated device", fractions: map[string]podmap.Fraction{"r": of(0, 0), "a": of(0.25, 0)}, allocated: map[int]float64{0: 20375}, ofPods: []string{"a memory 2.1364736e+10"}, unlisted: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := setup(t)
			f.source.override = func(_ device.Device, r *device.Reading) { r.Set(device.FBTotal, 81559) }
			f.kubelet.noDevices = true
			f.kubelet.ids = []string{uuid(0), uuid(1), uuid(2)}
			f.kubelet.holdings[reserves] = []string{uuid(0)}
			f.kubelet.holdings["ml/whole/main"] = []string{uuid(1)}
			f.kubelet.holdings["ml/a/main"], f.kubelet.holdings["ml/b/main"] = nil, nil
			if families, _ := f.collect(t); families["plimsoll_device_share_capacity"] != nil {
				t.Error("there are shares without the option")
			}
			f.cfg.Fractions = func(_, pod string) (podmap.Fraction, bool) { return tc.fractions[pod], pod != tc.unknown }
			if tc.claimed {
				f.kubelet.claims = map[string][]string{"ml/claims/main": {"gpu-0"}}
			}
			if tc.unlisted {
				f.kubelet.holdings["ml/old/main"] = []string{migUUID(2, 7, 0)}
			}
			families, text := f.collect(t)
			got := map[int]float64{}
			for i := range 3 {
				if strings.Contains(text, fmt.Sprintf(`plimsoll_device_share_allocated{node="node-1",uuid=%q`, uuid(i))) {
					got[i] = value(t, families, "plimsoll_device_share_allocated", "uuid", uuid(i), "provider", "kai", "dimension", "memory") / (1 << 20)
					if capacity := value(t, families, "plimsoll_device_share_capacity", "uuid", uuid(i), "provider", "kai"); capacity != 81500<<20 {
						t.Errorf("device %d has %g bytes, want 81,500 MiB", i, capacity)
					}
				}
			}
			if diff := cmp.Diff(tc.allocated, got); diff != "" {
				t.Errorf("allocated (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ofPods, amountsOf(families, "plimsoll_pod_device_share")); diff != "" {
				t.Errorf("of pods (-want +got):\n%s", diff)
			}
			isOwner := strings.Contains(text, fmt.Sprintf(`plimsoll_device_owner_info{node="node-1",uuid=%q,gpu="0",model="NVIDIA-H100-80GB-HBM3",namespace="ml",pod="a",container="main"} 1`, uuid(0)))
			if isOwner != (len(tc.ofPods) > 0 || tc.claimed || tc.unknown != "") {
				t.Errorf("pod a owns the device: %t", isOwner)
			}
			if free := value(t, families, "plimsoll_node_devices", "resource", "nvidia.com/gpu", "state", "free"); free != 1-boolValue(tc.unlisted) {
				t.Errorf("%g devices are free", free)
			}
		})
	}
}
