package collector

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// sumByDevice sums the series with a pod, by the label that identifies the device.
func sumByDevice(family *dto.MetricFamily, label string) map[string]float64 {
	sums := map[string]float64{}
	for _, m := range family.GetMetric() {
		var uuid, pod string
		for _, l := range m.Label {
			switch l.GetName() {
			case label:
				uuid = l.GetValue()
			case "pod":
				pod = l.GetValue()
			}
		}
		if pod != "" {
			sums[uuid] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sums
}

func TestAttributionBySplit(t *testing.T) {
	f := setup(t)
	mj := 5e9
	f.source.override = func(_ device.Device, r *device.Reading) {
		r.Set(device.FBUsed, 1000)
		r.Set(device.PowerUsage, 400)
		r.Set(device.GPUUtil, 80)
		r.Set(device.TotalEnergy, mj)
	}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "::0", uuid(0) + "::1"}
	f.kubelet.holdings["ml/a/side"] = []string{uuid(0) + "::2"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "::3"}
	f.kubelet.holdings["ml/c/main"] = []string{uuid(1)}
	f.collect(t)
	mj += 8000 * 1000
	families, text := f.collect(t)
	for name, want := range map[string][3]float64{
		"plimsoll_pod_device_memory_used_bytes":   {750 << 20, 250 << 20, 1000 << 20},
		"plimsoll_pod_device_power_watts":         {300, 100, 400},
		"plimsoll_pod_device_utilization_ratio":   {0.6, 0.2, 0.8},
		"plimsoll_pod_device_energy_joules_total": {6000, 2000, 8000},
	} {
		for i, pod := range []string{"a", "b", "c"} {
			how := map[bool]string{true: "device", false: "split"}[pod == "c"]
			if got := value(t, families, name, "namespace", "ml", "pod", pod, "attribution", how); got < want[i]*0.999 || got > want[i]*1.001 {
				t.Errorf("%s of %s is %g, want %g\n%s", name, pod, got, want[i], text)
			}
		}
	}
	// Pod b ends. The split energy of a stays, and later energy belongs to a alone.
	f.kubelet.mu.Lock()
	delete(f.kubelet.holdings, "ml/b/main")
	f.kubelet.mu.Unlock()
	mj += 1000 * 1000
	families, _ = f.collect(t)
	if split, alone := value(t, families, "plimsoll_pod_device_energy_joules_total", "pod", "a", "attribution", "split"),
		value(t, families, "plimsoll_pod_device_energy_joules_total", "pod", "a", "attribution", "device"); split != 6000 || alone != 1000 {
		t.Errorf("a has %g J by split and %g J as only holder, want 6000 and 1000", split, alone)
	}
	// The driver restarts and resets its energy counter. Then the kubelet becomes unreachable.
	mj = 0
	f.collect(t)
	mj = 500 * 1000
	f.kubelet.server.Stop()
	families, _ = f.collect(t)
	if got := value(t, families, "plimsoll_pod_device_energy_joules_total", "pod", "a", "attribution", "device"); got != 1000 {
		t.Errorf("a has %g J after the kubelet became unreachable, want 1000 as before", got)
	}
}

func TestAttributionByProcess(t *testing.T) {
	f := setup(t)
	f.cfg.Attribution = ByProcess
	mj := 0.0
	processes := &device.Processes{Memory: map[int]float64{1: 100 << 20, 2: 200 << 20, 3: 300 << 20, 4: 50 << 20, 5: 10 << 20}, Busy: map[int]float64{1: 10, 2: 20, 3: 10}}
	f.cfg.PodOf = func(pid int) (string, string, bool) {
		name, ok := map[int]string{1: "a", 2: "a", 3: "b", 5: "elsewhere"}[pid]
		return "ml", name, ok
	}
	f.source.override = func(_ device.Device, r *device.Reading) {
		r.Set(device.FBUsed, 1000)
		r.Set(device.PowerUsage, 400)
		r.Set(device.GPUUtil, 80)
		r.Set(device.TotalEnergy, mj)
		r.Processes = processes
	}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "::0"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "::1"}
	f.kubelet.holdings["ml/idle/main"] = []string{uuid(0) + "::2"}
	f.collect(t)
	mj = 8000 * 1000
	families, text := f.collect(t)
	for name, want := range map[string][3]float64{
		"plimsoll_pod_device_memory_used_bytes":   {300 << 20, 300 << 20, 0},
		"plimsoll_pod_device_power_watts":         {150, 50, 0},
		"plimsoll_pod_device_utilization_ratio":   {0.3, 0.1, 0},
		"plimsoll_pod_device_energy_joules_total": {3000, 1000, 0},
	} {
		for i, pod := range []string{"a", "b", "idle"} {
			if got := value(t, families, name, "pod", pod, "attribution", "process"); got < want[i]*0.999 || got > want[i]*1.001 {
				t.Errorf("%s of %s is %g, want %g\n%s", name, pod, got, want[i], text)
			}
		}
	}
	if strings.Contains(text, `pod="elsewhere"`) {
		t.Error("usage is attributed to a pod that does not hold the device")
	}
	if got := value(t, families, "plimsoll_exporter_unattributed_processes", "uuid", uuid(0)); got != 1 {
		t.Errorf("%g processes without a pod, want 1", got)
	}
	processes = &device.Processes{Memory: processes.Memory}
	if families, text = f.collect(t); families["plimsoll_pod_device_power_watts"] != nil || families["plimsoll_pod_device_memory_used_bytes"] == nil {
		t.Errorf("a device that reports memory but not time by process:\n%s", text)
	}
	processes = nil
	if families, text = f.collect(t); families["plimsoll_pod_device_memory_used_bytes"] != nil {
		t.Errorf("usage without any reported process:\n%s", text)
	}
}

// Collections of another vendor update the attribution without a new reading. They must
// not attribute the same energy again.
func TestEnergyIsAttributedOnce(t *testing.T) {
	var a podAttribution
	var r device.Reading
	r.Set(device.TotalEnergy, 1000)
	holders := map[podName]int{{"ml", "a"}: 1}
	a.update(BySplit, holders, true, r, nil)
	r.Set(device.TotalEnergy, 3000)
	for range 3 {
		a.update(BySplit, holders, true, r, nil)
	}
	if got := a.joules[account{podName{"ml", "a"}, ByDevice}]; got != 2 {
		t.Errorf("%g J, want 2", got)
	}
}

// A pod has no part in the energy before the collection that first saw it hold the device,
// even if the device could not be read when the pod arrived.
func TestEnergyBeforePodIsSeenIsNotAttributed(t *testing.T) {
	a, b := podName{"ml", "a"}, podName{"ml", "b"}
	start := time.Unix(1700000000, 0)
	for name, steps := range map[string][]struct {
		joules, at  float64 // of the last reading
		holders     map[podName]int
		holdersLost bool
		want        map[podName]float64 // joules in total, attributed with any method
	}{
		"another pod takes the device": {
			{100, 0, map[podName]int{a: 1}, false, map[podName]float64{a: 0}},
			{150, 10, map[podName]int{a: 1}, false, map[podName]float64{a: 50}},
			{250, 20, map[podName]int{b: 1}, false, map[podName]float64{b: 0}},
			{260, 30, map[podName]int{b: 1}, false, map[podName]float64{b: 10}},
		},
		"a pod joins": {
			{100, 0, map[podName]int{a: 1}, false, map[podName]float64{a: 0}},
			{200, 10, map[podName]int{a: 1, b: 1}, false, map[podName]float64{a: 50, b: 0}},
			{300, 20, map[podName]int{a: 1, b: 1}, false, map[podName]float64{a: 100, b: 50}},
		},
		"the device is not read when the pod arrives": {
			{100, 0, map[podName]int{a: 1}, false, map[podName]float64{a: 0}},
			{100, 0, map[podName]int{b: 1}, false, map[podName]float64{b: 0}},
			{900, 60, map[podName]int{b: 1}, false, map[podName]float64{b: 0}},
			{910, 70, map[podName]int{b: 1}, false, map[podName]float64{b: 10}},
		},
		"the device uses no energy when the pod arrives": {
			{100, 0, nil, false, map[podName]float64{}},
			{100, 10, map[podName]int{b: 1}, false, map[podName]float64{b: 0}},
			{110, 20, map[podName]int{b: 1}, false, map[podName]float64{b: 10}},
		},
		"the kubelet is unreachable for a while": {
			{100, 0, map[podName]int{a: 1}, false, map[podName]float64{a: 0}},
			{200, 10, nil, true, map[podName]float64{a: 0}},
			{300, 20, map[podName]int{a: 1}, false, map[podName]float64{a: 0}},
			{310, 30, map[podName]int{a: 1}, false, map[podName]float64{a: 10}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var attribution podAttribution
			for i, step := range steps {
				r := device.Reading{Time: start.Add(time.Duration(step.at * float64(time.Second)))}
				r.Set(device.TotalEnergy, step.joules*1000)
				got := map[podName]float64{}
				for account, joules := range attribution.update(BySplit, step.holders, !step.holdersLost, r, nil).joules {
					got[account.podName] += joules
				}
				if diff := cmp.Diff(step.want, got, cmp.AllowUnexported(podName{})); diff != "" {
					t.Errorf("step %d: %s", i, diff)
				}
			}
		})
	}
}
