package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// sliceText returns a ResourceSlice of the driver gpu.nvidia.com as JSON. devices are JSON, too.
func sliceText(name, pool string, generation, count int, devices ...string) string {
	return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":%q,"resourceVersion":"1"},"spec":{"driver":"gpu.nvidia.com","nodeName":"n","pool":{"name":%q,"generation":%d,"resourceSliceCount":%d},"devices":[%s]}}`,
		name, pool, generation, count, strings.Join(devices, ","))
}

func sharedGPU(name, capacity string) string {
	return fmt.Sprintf(`{"name":%q,"allowMultipleAllocations":true,"capacity":{%s}}`, name, capacity)
}

// sharedDevicesOf returns the shared devices of slices as JSON.
func sharedDevicesOf(t *testing.T, texts ...string) []podmap.SharedDevice {
	t.Helper()
	w := &sliceWatcher{log: slog.New(slog.DiscardHandler)}
	var all []*resourceSlice
	for _, text := range texts {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		s, err := w.decode(u)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.(*resourceSlice))
	}
	return sharedDevices(all)
}

func TestSharedDevices(t *testing.T) {
	a, b := sharedGPU("gpu-0", ""), sharedGPU("gpu-1", "")
	for name, tc := range map[string]struct {
		slices []string
		want   string
	}{
		"one slice":                   {[]string{sliceText("s", "n", 1, 1, a, b)}, "gpu-0 gpu-1"},
		"a device that is not shared": {[]string{sliceText("s", "n", 1, 1, `{"name":"gpu-0"}`, b)}, "gpu-1"},
		"tainted devices": {[]string{sliceText("s", "n", 1, 1, strings.Replace(a, "{", `{"taints":[{"key":"k","effect":"NoSchedule"}],`, 1), strings.Replace(b, "{", `{"taints":[{"key":"k","effect":"NoExecute"}],`, 1),
			strings.Replace(sharedGPU("gpu-2", ""), "{", `{"taints":[{"key":"k","effect":"None"}],`, 1))}, "gpu-2"},
		"two slices":                      {[]string{sliceText("s", "n", 1, 2, a), sliceText("t", "n", 1, 2, b)}, "gpu-0 gpu-1"},
		"a missing slice":                 {[]string{sliceText("s", "n", 1, 2, a)}, ""},
		"more slices than the pool has":   {[]string{sliceText("s", "n", 1, 1, a), sliceText("t", "n", 1, 1, b)}, ""},
		"an outdated slice":               {[]string{sliceText("s", "n", 1, 1, a), sliceText("t", "n", 2, 1, b)}, "gpu-1"},
		"the new generation is partial":   {[]string{sliceText("s", "n", 1, 1, a), sliceText("t", "n", 2, 2, b)}, ""},
		"a device twice":                  {[]string{sliceText("s", "n", 1, 2, a), sliceText("t", "n", 1, 2, a)}, ""},
		"two pools":                       {[]string{sliceText("s", "n", 1, 1, a), sliceText("t", "m", 1, 1, b)}, "gpu-1 gpu-0"},
		"a slice that cannot be read":     {[]string{sliceText("s", "n", 1, 2, a), sliceText("t", "n", 1, 2, sharedGPU("gpu-1", `"memory":{"value":"x"}`))}, ""},
		"no devices and a negative count": {[]string{sliceText("s", "n", 1, -1)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, d := range sharedDevicesOf(t, tc.slices...) {
				names = append(names, d.Device)
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestCapacities(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		capacity string
		want     map[string]podmap.DeviceCapacity
	}{
		"no policy":            {`"memory":{"value":"80Gi"}`, map[string]podmap.DeviceCapacity{"memory": {Value: 80 * gib, Default: 80 * gib, Max: 80 * gib, Step: 1}}},
		"domain of the driver": {`"gpu.nvidia.com/memory":{"value":"1"}`, map[string]podmap.DeviceCapacity{"memory": {Value: 1, Default: 1, Max: 1, Step: 1}}},
		"another domain":       {`"example.com/memory":{"value":"1"}`, map[string]podmap.DeviceCapacity{"example.com/memory": {Value: 1, Default: 1, Max: 1, Step: 1}}},
		"a default":            {`"memory":{"value":"8","requestPolicy":{"default":"2"}}`, map[string]podmap.DeviceCapacity{"memory": {Value: 8, Default: 2, Max: 8, Step: 1}}},
		"a range": {`"memory":{"value":"80Gi","requestPolicy":{"default":"2Gi","validRange":{"min":"1Gi","max":"40Gi","step":"512Mi"}}}`,
			map[string]podmap.DeviceCapacity{"memory": {Value: 80 * gib, Default: 2 * gib, Min: gib, Max: 40 * gib, Step: gib / 2}}},
		"a range without end": {`"memory":{"value":"8","requestPolicy":{"default":"2","validRange":{"min":"1"}}}`, map[string]podmap.DeviceCapacity{"memory": {Value: 8, Default: 2, Min: 1, Max: 8, Step: 1}}},
		"values": {`"cores":{"value":"100","requestPolicy":{"default":"50","validValues":["100","50","25"]}}`,
			map[string]podmap.DeviceCapacity{"cores": {Value: 100, Default: 50, Max: 100, Step: 1, Values: []float64{25, 50, 100}}}},
		"a step below a unit": {`"cores":{"value":"100","requestPolicy":{"default":"1","validRange":{"min":"500m","step":"500m"}}}`,
			map[string]podmap.DeviceCapacity{"cores": {Value: 100, Default: 1, Min: 1, Max: 100, Step: 1}}},
		"negative":            {`"memory":{"value":"-1"},"cores":{"value":"100","requestPolicy":{"default":"-1"}}`, map[string]podmap.DeviceCapacity{}},
		"a step of 0":         {`"memory":{"value":"8","requestPolicy":{"default":"1","validRange":{"min":"1","step":"0"}}}`, map[string]podmap.DeviceCapacity{}},
		"more than int64 has": {`"memory":{"value":"99999999999999999999"}`, map[string]podmap.DeviceCapacity{"memory": {Value: 99999999999999999999, Default: 99999999999999999999, Max: 99999999999999999999, Step: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			devices := sharedDevicesOf(t, sliceText("s", "n", 1, 1, sharedGPU("gpu-0", tc.capacity)))
			if len(devices) != 1 {
				t.Fatalf("devices %+v", devices)
			}
			if diff := cmp.Diff(tc.want, devices[0].Capacities); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The devices of the node are known after the first list.
func TestDevicesOfTheNode(t *testing.T) {
	s := startClaimServer(t)
	s.slices = []string{sliceText("s", "n", 1, 1, sharedGPU("gpu-0", `"memory":{"value":"80Gi"}`))}
	r := runReader(t, s, slog.New(slog.DiscardHandler))
	if !r.WaitForList(t.Context()) || !r.Reachable() {
		t.Fatal("the slices are not listed")
	}
	if devices, ok := r.Devices(); !ok || len(devices) != 1 {
		t.Errorf("devices %+v, known: %t", devices, ok)
	}
	if n, err := CountSharedDevices(t.Context(), &rest.Config{Host: s.URL}, "n"); n != 1 || err != nil {
		t.Errorf("%d devices, %v", n, err)
	}
}

// FuzzResourceSlice checks that no slice stops the exporter, and that each capacity of a device is a
// finite amount that a request can be rounded to.
func FuzzResourceSlice(f *testing.F) {
	for _, seed := range []string{"80Gi 2Gi 1Gi 40Gi 512Mi", "100 1 1 100 1", "9223372036854775807 1 0 1 1", "99999999999999999999 1e99 1n 1E 0.1", "-1 -1 -1 -1 -1", "NaN Inf 0x1 1e400 ", "8 1 9 1 0", "1E99999 1e-99999 1E99999 1 1e-99999"} {
		f.Add(seed, int64(1), int64(1))
	}
	f.Add("1 1 1 1 1", int64(math.MaxInt64), int64(math.MinInt64))
	hangs := regexp.MustCompile(`[eE][+-]?\d{6}`) // in ParseQuantity, also of the API server
	f.Fuzz(func(t *testing.T, amounts string, generation, count int64) {
		if hangs.MatchString(amounts) {
			return
		}
		part := append(strings.Fields(amounts), "", "", "", "", "")
		for i := range part {
			part[i] = fmt.Sprintf("%q", part[i])
		}
		text := sliceText("s", "n", 1, 1, sharedGPU("gpu-0", fmt.Sprintf(
			`"memory":{"value":%s,"requestPolicy":{"default":%s,"validRange":{"min":%s,"max":%s,"step":%s}}},"cores":{"value":%s,"requestPolicy":{"default":%s,"validValues":[%s,%s]}}`,
			part[0], part[1], part[2], part[3], part[4], part[0], part[1], part[2], part[3])))
		if !json.Valid([]byte(text)) {
			return
		}
		for _, d := range sharedDevicesOf(t, text, sliceText("t", "m", int(generation), int(count), sharedGPU("gpu-1", ""))) {
			for name, c := range d.Capacities {
				all := append([]float64{c.Value, c.Default, c.Min, c.Max, c.Step}, c.Values...)
				if !isPlausible(all...) || c.Step <= 0 || !slices.IsSorted(c.Values) {
					t.Errorf("%s of %s is %+v", name, text, c)
				}
			}
		}
	})
}
