//go:build !race

package collector

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// readEverything reports every field of every device.
func readEverything(_ device.Device, r *device.Reading) {
	for f := range device.FirstTPUField {
		r.Set(f, 1)
	}
}

// The number of series does not grow with the number of pods that share a device, and a
// metric says how many pods have no series.
func TestSharedDeviceHasBoundedSeries(t *testing.T) {
	const pods = 4000
	f := setup(t)
	f.source.override = readEverything
	share := func(n int) int {
		for i := range n {
			f.kubelet.holdings[fmt.Sprintf("ml/p%04d/main", i)] = []string{fmt.Sprintf("%s::%d", uuid(0), i)}
		}
		_, text := f.collect(t)
		return strings.Count(text, "\n") - 2*strings.Count(text, "# TYPE")
	}
	atLimit := share(maxShares)
	all := share(pods)
	families, text := f.scrape(t)
	if all > atLimit || all > 75_000 {
		t.Errorf("%d series with %d pods, %d with %d", all, pods, atLimit, maxShares)
	}
	if got := value(t, families, "plimsoll_exporter_omitted_shares", "node", "node-1"); got != pods-maxShares {
		t.Errorf("%g shares are omitted, want %d", got, pods-maxShares)
	}
	for name, want := range map[string]int{"plimsoll_device_owner_info": maxShares, "plimsoll_pod_device_power_watts": maxShares, "plimsoll_pod_device_energy_joules_total": maxShares,
		"DCGM_FI_DEV_GPU_UTIL": maxShares + 7, "DCGM_FI_DEV_FB_USED": 8} {
		if got := len(families[name].GetMetric()); got != want {
			t.Errorf("%d series of %s, want %d", got, name, want)
		}
	}
	if !strings.Contains(text, `pod="p0999"`) || strings.Contains(text, `pod="p1000"`) {
		t.Error("the first pods do not keep their series")
	}
	if got := value(t, families, "plimsoll_pod_device_power_watts", "pod", "p0000"); got != 1./pods {
		t.Errorf("a pod is charged for %g W, want %g", got, 1./pods)
	}
	if got := value(t, families, "plimsoll_node_devices", "state", "free"); got != 7 {
		t.Errorf("%g devices are free", got)
	}
	t.Logf("%d series with %d pods on a device, %d bytes", all, pods, len(text))
}

// A device keeps at least one holder, and a quantity never names it as the only one.
func TestShareLimitDividesShares(t *testing.T) {
	f := setup(t)
	f.source.override = readEverything
	f.cfg.Labels.VirtualGPUs = true
	f.kubelet.holdings["ml/alone/main"] = []string{uuid(7)}
	for i := range 2 {
		for replica := range 600 {
			pod := fmt.Sprintf("ml/p%d/main", i)
			f.kubelet.holdings[pod] = append(f.kubelet.holdings[pod], fmt.Sprintf("%s::%d", uuid(i), replica))
		}
	}
	two := []string{"one", "two"}
	f.cfg.Jobs = jobsByIndex(map[int][]string{5: two, 6: two, 7: two})
	families, _ := f.collect(t)
	// The five devices with shares keep 200 each.
	if got := len(families["DCGM_FI_DEV_GPU_UTIL"].GetMetric()); got != 2*200+3+3*2 {
		t.Errorf("%d series", got)
	}
	if got := value(t, families, "plimsoll_exporter_omitted_shares", "node", "node-1"); got != 2*400 {
		t.Errorf("%g shares are omitted", got)
	}
	f.cfg.Labels.VirtualGPUs = false
	if families, _ = f.collect(t); value(t, families, "plimsoll_exporter_omitted_shares", "node", "node-1") != 0 {
		t.Error("shares are omitted without need")
	}
}

// What HAMi assigned to pods without series of their own is allocated all the same.
func TestShareLimitKeepsAssignmentsOfHAMi(t *testing.T) {
	const pods, part = maxShares + 100, 10 << 20
	f := setup(t)
	f.source.override = func(_ device.Device, r *device.Reading) { r.Set(device.FBTotal, 81559) }
	f.kubelet.noDevices = true
	meta := metaPods{}
	for i := range pods {
		id, pod := fmt.Sprintf("%s-%d", uuid(0), i), fmt.Sprintf("p%04d", i)
		f.kubelet.ids = append(f.kubelet.ids, id)
		f.kubelet.holdings["ml/"+pod+"/main"] = []string{id}
		meta[pod] = podmap.Meta{HAMi: []podmap.Assignment{{Device: uuid(0), Memory: part, Cores: 0.0005}}}
	}
	f.cfg.Pods = meta
	families, _ := f.collect(t)
	for dimension, want := range map[string]float64{"memory": pods * part, "cores": pods * 0.0005, "shares": pods} {
		if got := value(t, families, "plimsoll_device_share_allocated", "uuid", uuid(0), "dimension", dimension); math.Abs(got-want) > 1e-9 {
			t.Errorf("allocated %s: %g, want %g", dimension, got, want)
		}
	}
	// A pod without memory in its annotation makes the sizes unknown, also without series.
	meta[fmt.Sprintf("p%04d", pods-1)] = podmap.Meta{HAMi: []podmap.Assignment{{Device: uuid(0), Cores: 0.0005}}, UID: "another"}
	families, _ = f.collect(t)
	if n := len(families["plimsoll_device_share_allocated"].Metric); n != 1 {
		t.Errorf("%d dimensions with a pod without memory, want shares only", n)
	}
}
