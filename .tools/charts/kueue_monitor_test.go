package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// kueueMonitor is the key of the ServiceMonitor of Kueue in each chart, in the namespace of its release. The
// fleet's is on the workers, beside the exporter.
var kueueMonitor = map[string]string{
	"plimsoll":          "ServiceMonitor plimsoll-system/plimsoll-kueue",
	"plimsoll-exporter": "ServiceMonitor plimsoll-exporter/plimsoll-exporter-kueue",
	"plimsoll-fleet":    "ServiceMonitor plimsoll-exporter/plimsoll-exporter-kueue",
}

// monitors returns the objects that a chart with monitoring installs for prometheus-operator.
func monitors(t *testing.T, name string, kueue map[string]any) map[string]any {
	t.Helper()
	settings := map[string]any{"enabled": true}
	if kueue != nil {
		settings["kueue"] = kueue
	}
	if name != "plimsoll-fleet" {
		return render(t, name, map[string]any{"prometheus": settings})
	}
	works := renderFleet(t, map[string]any{"workers": []any{"cluster1"}, "monitoring": settings})
	work := works["ManifestWork cluster1/plimsoll-fleet"].(map[string]any)["spec"].(map[string]any)["workload"].(map[string]any)
	objects := map[string]any{}
	for _, o := range work["manifests"].([]any) {
		objects[key(o.(map[string]any))] = o
	}
	return objects
}

// A cluster without Kueue has no namespace kueue-system: no chart may put an object there.
func TestMonitoringNeedsNoNamespaceOfKueue(t *testing.T) {
	for name, want := range kueueMonitor {
		t.Run(name, func(t *testing.T) {
			objects := monitors(t, name, nil)
			for _, k := range slices.Sorted(maps.Keys(objects)) {
				if strings.Contains(k, " kueue-system/") {
					t.Errorf("%s is in the namespace of Kueue", k)
				}
			}
			if text := fmt.Sprint(objects[want]); !strings.Contains(text, "namespaceSelector:map[matchNames:[kueue-system]]") {
				t.Errorf("%s does not select Kueue's namespace: %s", want, text)
			}
		})
	}
}

// Two releases on one cluster own different monitors, also in one namespace.
func TestMonitorsOfKueueDoNotCollide(t *testing.T) {
	name := func(key string) string { return key[strings.Index(key, "/"):] }
	if name(kueueMonitor["plimsoll"]) == name(kueueMonitor["plimsoll-exporter"]) {
		t.Errorf("both charts have a monitor %s", name(kueueMonitor["plimsoll"]))
	}
}

func TestMonitorOfKueueIsConfigurable(t *testing.T) {
	for name, monitor := range kueueMonitor {
		t.Run(name, func(t *testing.T) {
			if text := fmt.Sprint(monitors(t, name, map[string]any{"namespace": "queues"})[monitor]); !strings.Contains(text, "matchNames:[queues]") {
				t.Errorf("the namespace does not apply: %s", text)
			}
			without := monitors(t, name, map[string]any{"enabled": false})
			if without[monitor] != nil {
				t.Errorf("%s although it is off", monitor)
			}
			if len(without) != len(monitors(t, name, nil))-1 {
				t.Error("other objects depend on kueue.enabled")
			}
		})
	}
}

// The component without-kueue is what the value kueue.enabled is for the charts.
func TestComponentWithoutKueue(t *testing.T) {
	for _, folder := range []string{"prometheus/hub", "prometheus/worker"} {
		with, without := build(t, map[string][]string{folder: nil}), build(t, map[string][]string{folder: {"prometheus/without-kueue"}})
		if len(without) != len(with)-1 {
			t.Errorf("%s: %d objects of %d", folder, len(without), len(with))
		}
		for k := range without {
			if strings.HasSuffix(k, "kueue") {
				t.Errorf("%s: %s", folder, k)
			}
		}
	}
}
