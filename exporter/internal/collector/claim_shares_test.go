package collector

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// fakeClaims is an API server with fixed ResourceSlices and claims.
type fakeClaims struct {
	devices     []podmap.SharedDevice
	unlisted    bool                          // the slices were not listed yet
	consumption map[string]podmap.Consumption // by name of the claim
}

func (f *fakeClaims) Devices() ([]podmap.SharedDevice, bool) { return f.devices, !f.unlisted }

func (f *fakeClaims) Reachable() bool { return !f.unlisted }

func (f *fakeClaims) Consumption(claims []podmap.Claim) map[podmap.Claim]podmap.Consumption {
	out := map[podmap.Claim]podmap.Consumption{}
	for _, c := range claims {
		out[c] = f.consumption[c.Name]
	}
	return out
}

// gib is the number of bytes in a GiB.
const gib = 1 << 30

// sharedGPU is gpu-0 of NVIDIA's DRA driver with 80 GiB and 100 cores.
func sharedGPU() podmap.SharedDevice {
	return podmap.SharedDevice{Driver: podmap.NVIDIADriver, Pool: "node-1", Device: "gpu-0", Capacities: map[string]podmap.DeviceCapacity{
		"memory": {Value: 80 * gib, Default: 2 * gib, Min: gib, Max: 40 * gib, Step: gib / 2}, "cores": {Value: 100, Default: 50, Max: 100, Step: 1, Values: []float64{25, 50, 100}}}}
}

func consumes(memory, cores float64) podmap.Consumption {
	return podmap.Consumption{Amounts: map[string]float64{"memory": memory * gib, "cores": cores}}
}

// amountsOf returns the series of a metric as text, sorted as in the exposition, without the labels
// of the device.
func amountsOf(families map[string]*dto.MetricFamily, metric string) (out []string) {
	for _, m := range families[metric].GetMetric() {
		var labels []string
		for _, l := range m.Label {
			if name := l.GetName(); name == "dimension" || name == "pod" || name == "bound" || name == "reason" {
				labels = append(labels, l.GetValue())
			}
		}
		out = append(out, fmt.Sprintf("%s %g", strings.Join(labels, " "), m.GetGauge().GetValue()))
	}
	return out
}

func TestSharesOfClaims(t *testing.T) {
	claim := func(name, share string) podmap.Claim {
		return podmap.Claim{Name: name, Namespace: "ml", Driver: podmap.NVIDIADriver, Pool: "node-1", Device: "gpu-0", ShareID: share}
	}
	held := func(pod, name, share string) podmap.HeldClaim {
		return podmap.HeldClaim{Holder: podmap.Holder{Namespace: "ml", Pod: pod, Container: "main"}, Claim: claim(name, share)}
	}
	other := held("b", "b", "s2")
	other.Claim.Driver, other.Claim.Device = podmap.HAMiDriver, "hami-gpu-0"
	bandwidth := sharedGPU()
	bandwidth.Capacities["bandwidth"] = podmap.DeviceCapacity{Value: 10, Default: 4}
	multiprocessors := sharedGPU()
	multiprocessors.Capacities["cores"] = podmap.DeviceCapacity{Value: 132, Default: 132}
	hamiToo := sharedGPU()
	hamiToo.Driver, hamiToo.Device = podmap.HAMiDriver, "hami-gpu-0"
	withBandwidth := consumes(10, 25)
	withBandwidth.Amounts["bandwidth"] = 1
	for _, tc := range []struct {
		name        string
		devices     []podmap.SharedDevice
		held        []podmap.HeldClaim
		plugin      bool // a device plugin allocated the device, too
		unprepared  bool // the kubelet lists a claim without devices
		unlisted    bool
		consumption map[string]podmap.Consumption
		capacity    []string
		allocated   []string
		ofPods      []string
		reason      string // default pending
		unknown     float64
	}{
		{name: "no claim", devices: []podmap.SharedDevice{sharedGPU()}, capacity: []string{"memory 8.589934592e+10", "cores 1"}, allocated: []string{"memory 0", "cores 0"}},
		{name: "two claims", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1"), held("b", "b", "s2")},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 25), "b": consumes(20, 50)},
			capacity:    []string{"memory 8.589934592e+10", "cores 1"}, allocated: []string{"memory 3.221225472e+10", "cores 0.75"},
			ofPods: []string{"a memory 1.073741824e+10", "b memory 2.147483648e+10", "a cores 0.25", "b cores 0.5"}},
		{name: "a claim of two pods", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1"), held("b", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 25)},
			capacity:    []string{"memory 8.589934592e+10", "cores 1"}, allocated: []string{"memory 1.073741824e+10", "cores 0.25"},
			ofPods: []string{"a memory 1.073741824e+10", "b memory 1.073741824e+10", "a cores 0.25", "b cores 0.25"}},
		{name: "two shares of a pod", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1"), held("a", "a", "s2")},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 25)},
			capacity:    []string{"memory 8.589934592e+10", "cores 1"}, allocated: []string{"memory 2.147483648e+10", "cores 0.5"},
			ofPods: []string{"a memory 2.147483648e+10", "a cores 0.5"}},
		{name: "more than the device", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": consumes(math.MaxFloat64/gib, 900)},
			capacity:    []string{"memory 8.589934592e+10", "cores 1"}, allocated: []string{"memory 8.589934592e+10", "cores 1"},
			ofPods: []string{"a memory 8.589934592e+10", "a cores 1"}},
		{name: "admin access", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": {AdminAccess: true}},
			capacity:    []string{"memory 8.589934592e+10", "cores 1"}, allocated: []string{"memory 0", "cores 0"}},
		{name: "a capacity without a dimension limits the claims", devices: []podmap.SharedDevice{bandwidth}, held: []podmap.HeldClaim{held("a", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": withBandwidth},
			capacity:    []string{"shares 3", "memory 8.589934592e+10", "cores 1"}, allocated: []string{"shares 1", "memory 1.073741824e+10", "cores 0.25"},
			ofPods: []string{"a shares 1", "a memory 1.073741824e+10", "a cores 0.25"}},
		{name: "cores in another unit limit the claims", devices: []podmap.SharedDevice{multiprocessors}, held: []podmap.HeldClaim{held("a", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 132)},
			capacity:    []string{"shares 1", "memory 8.589934592e+10"}, allocated: []string{"shares 1", "memory 1.073741824e+10"},
			ofPods: []string{"a shares 1", "a memory 1.073741824e+10"}},
		{name: "a claim that was not read yet", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1"), held("b", "b", "s2")},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 25), "b": {Unknown: podmap.ClaimPending}}, unknown: 1},
		{name: "a claim without a capacity of the device", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": {Amounts: map[string]float64{"memory": gib}}}, reason: podmap.ClaimInvalid, unknown: 1},
		{name: "a device plugin allocated it, too", devices: []podmap.SharedDevice{sharedGPU()}, plugin: true, held: []podmap.HeldClaim{held("a", "a", "s1")},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 25)}},
		{name: "another driver allocated it, too", devices: []podmap.SharedDevice{sharedGPU()}, held: []podmap.HeldClaim{held("a", "a", "s1"), other},
			consumption: map[string]podmap.Consumption{"a": consumes(10, 25), "b": consumes(1, 1)}},
		{name: "a claim that is not prepared", devices: []podmap.SharedDevice{sharedGPU()}, unprepared: true},
		{name: "two drivers offer it", devices: []podmap.SharedDevice{sharedGPU(), hamiToo}},
		{name: "before the list", devices: []podmap.SharedDevice{sharedGPU()}, unlisted: true},
		{name: "a device of an unknown driver", devices: []podmap.SharedDevice{{Driver: "nic.example.com", Pool: "p", Device: "gpu-0"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := setup(t)
			f.collect(t)
			f.cfg.Claims = &fakeClaims{tc.devices, tc.unlisted, tc.consumption}
			pods, err := f.Collector.pods.Last()
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range tc.held {
				pods.Claims["nvidia0"] = append(pods.Claims["nvidia0"], h)
				pods.Holders["nvidia0"], pods.Allocated["nvidia0"] = append(pods.Holders["nvidia0"], h.Holder), ""
			}
			if tc.plugin {
				pods.Allocated[uuid(0)], pods.Holders[uuid(0)] = "nvidia.com/gpu", []podmap.Holder{{Namespace: "ml", Pod: "a", Container: "main"}}
			}
			if tc.unprepared {
				pods.Allocated["claim ml/c"], pods.Unprepared["claim ml/c"] = "", true
			}
			f.mu.Lock()
			f.publish(f.cfg.Now())
			f.mu.Unlock()
			families, _ := f.scrape(t)
			for metric, want := range map[string][]string{"plimsoll_device_share_capacity": tc.capacity, "plimsoll_device_share_allocated": tc.allocated, "plimsoll_pod_device_share": tc.ofPods} {
				if diff := cmp.Diff(want, amountsOf(families, metric)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", metric, diff)
				}
			}
			reason := podmap.ClaimPending
			if tc.reason != "" {
				reason = tc.reason
			}
			if got := value(t, families, "plimsoll_exporter_unknown_claims", "reason", reason); got != tc.unknown || len(families["plimsoll_exporter_unknown_claims"].Metric) != 5 {
				t.Errorf("%g unknown claims, want %g", got, tc.unknown)
			}
			if got := value(t, families, "plimsoll_exporter_resource_slices_reachable"); (got == 0) != tc.unlisted {
				t.Errorf("the slices are reachable: %g", got)
			}
		})
	}
}

// The policy states what a request is rounded up to.
func TestPolicyOfShares(t *testing.T) {
	f := setup(t)
	f.cfg.Claims = &fakeClaims{devices: []podmap.SharedDevice{sharedGPU()}}
	families, text := f.collect(t)
	want := []string{"memory default 2.147483648e+09", "memory max 4.294967296e+10", "memory min 1.073741824e+09", "memory step 5.36870912e+08",
		"cores default 0.5", "cores value0 0.25", "cores value1 0.5", "cores value2 1"}
	if diff := cmp.Diff(want, amountsOf(families, "plimsoll_device_share_policy")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(text, `provider="dra"`) {
		t.Errorf("no provider:\n%s", text)
	}
}

// The memory of a device in MIG mode is that of its instances, no matter which pods hold them.
func TestNoSharesOfClaimsInMIGMode(t *testing.T) {
	for name, set := range map[string]func(r *device.Reading){
		"MIG mode":       func(r *device.Reading) { r.MIG = true },
		"an unknown one": func(r *device.Reading) { r.PartitionsUnknown = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.cfg.Claims = &fakeClaims{devices: []podmap.SharedDevice{sharedGPU()}}
			f.source.override = func(_ device.Device, r *device.Reading) { set(r) }
			if families, _ := f.collect(t); families["plimsoll_device_share_capacity"] != nil {
				t.Error("the device has shares")
			}
		})
	}
}

// Without the kubelet the claims of a device are unknown, and so is what is free of it.
func TestNoSharesOfClaimsWithoutTheKubelet(t *testing.T) {
	f := setup(t)
	f.cfg.Claims = &fakeClaims{devices: []podmap.SharedDevice{sharedGPU()}}
	f.kubelet.server.Stop()
	if families, _ := f.collect(t); families["plimsoll_device_share_capacity"] != nil {
		t.Error("the device has shares")
	}
}

// Without the option there is no metric about claims.
func TestNoMetricsOfClaimsWithoutTheOption(t *testing.T) {
	if _, text := setup(t).collect(t); strings.Contains(text, "unknown_claims") || strings.Contains(text, "slices_reachable") {
		t.Errorf("metrics of claims:\n%s", text)
	}
}
