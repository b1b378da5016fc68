package charts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const root = "../.."

func TestMain(m *testing.M) {
	if err := Prepare(context.Background(), root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestValuesAreDocumented(t *testing.T) {
	want, err := Values()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, ValuesFile))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("%s is not up to date: run make charts (-want +got):\n%s", ValuesFile, d)
	}
}

var generated = map[string]map[string]string{}

// renderChart renders a chart, which is generated once.
func renderChart(name, namespace string, values map[string]any) (map[string]string, error) {
	if generated[name] == nil {
		files, err := Generate(root, name)
		if err != nil {
			return nil, err
		}
		generated[name] = files
	}
	return Render(generated[name], namespace, values)
}

// render returns the objects of a chart with the values, by kind, namespace and name. The
// release has the namespace of the kustomize folders.
func render(t *testing.T, name string, values map[string]any) map[string]any {
	t.Helper()
	objects, err := tryRender(name, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// readValues returns a file of values.
func readValues(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func tryRender(name string, values map[string]any) (map[string]any, error) {
	namespace := map[string]string{"plimsoll": "plimsoll-system", "plimsoll-exporter": "plimsoll-exporter"}[name]
	files, err := renderChart(name, namespace, values)
	if err != nil {
		return nil, err
	}
	return parse(files)
}

// parse returns the objects of rendered files, by kind, namespace and name.
func parse(files map[string]string) (map[string]any, error) {
	objects := map[string]any{}
	for file, text := range files {
		if strings.HasSuffix(file, ".txt") {
			continue
		}
		for _, document := range strings.Split("\n"+text, "\n---") {
			o := object{}
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", file, err, document)
			}
			if len(o) > 0 {
				objects[key(o)] = prune(map[string]any(o))
			}
		}
	}
	return objects, nil
}

func key(o object) string {
	namespace, _ := o["metadata"].(map[string]any)["namespace"].(string)
	return o.kind() + " " + namespace + "/" + o.name()
}

// prune removes empty maps and lists, which mean the same as none, and unifies numbers.
func prune(v any) any {
	switch x := v.(type) {
	case object:
		return prune(map[string]any(x))
	case map[string]any:
		kept := map[string]any{}
		for k, child := range x {
			if p := prune(child); p != nil {
				kept[k] = p
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		var kept []any
		for _, child := range x {
			kept = append(kept, prune(child))
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case int:
		return float64(x)
	case int64:
		return float64(x)
	}
	return v
}

// build returns the objects of kustomize folders. The namespace of the release is not part
// of a chart.
func build(t *testing.T, folders map[string][]string) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for folder, components := range folders {
		built, err := buildFolder(root, folder, components...)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range without(built, "Namespace") {
			objects[key(o)] = prune(o)
		}
	}
	return objects
}

// compare compares object by object.
func compare(t *testing.T, want, got map[string]any) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if d := cmp.Diff(want[k], got[k]); d != "" {
			t.Errorf("%s (-kustomize +chart):\n%s", k, d)
		}
	}
	for k := range got {
		if want[k] == nil {
			t.Errorf("only the chart has %s", k)
		}
	}
}

// The default render equals the kustomize build. The test renders without crds.keep,
// which adds an annotation for Helm.
func TestOperatorChartEqualsKustomize(t *testing.T) {
	values := map[string]any{"crds": map[string]any{"keep": false}}
	compare(t, build(t, map[string][]string{"crd": nil, "default": nil, "guard": nil}), render(t, "plimsoll", values))
}

func TestOperatorChartWithTrials(t *testing.T) {
	values := map[string]any{"crds": map[string]any{"keep": false}, "trials": map[string]any{"enabled": true}}
	compare(t, build(t, map[string][]string{"crd": nil, "default": {"trials"}, "guard": nil}), render(t, "plimsoll", values))
}

func TestCRDsAreKept(t *testing.T) {
	found := 0
	for k, o := range render(t, "plimsoll", nil) {
		if strings.HasPrefix(k, "CustomResourceDefinition ") {
			found++
			if o.(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any)["helm.sh/resource-policy"] != "keep" {
				t.Errorf("Helm would delete %s", k)
			}
		}
	}
	if found != 7 {
		t.Errorf("%d CRDs", found)
	}
}

func TestOperatorChartOptions(t *testing.T) {
	objects := render(t, "plimsoll", map[string]any{
		"image": map[string]any{"repository": "registry.example.com/op", "digest": "sha256:" + strings.Repeat("a", 64)}, "replicas": 3, "dispatch": "off", "logFormat": "json", "nomination": map[string]any{"enabled": true}, "gateFirst": map[string]any{"enabled": true},
		"extraArgs": []any{"--ledger-settle=1m"}, "extraTolerations": []any{map[string]any{"operator": "Exists"}}, "nodeSelector": map[string]any{"a": "b"},
		"prometheus": map[string]any{"enabled": true}, "dashboards": map[string]any{"enabled": true}, "guard": map[string]any{"enabled": false},
		"networkPolicy": map[string]any{"enabled": false}, "crds": map[string]any{"enabled": false},
	})
	text := fmt.Sprint(objects["Deployment plimsoll-system/plimsoll-operator"])
	for _, want := range []string{"registry.example.com/op@sha256:aaa", "replicas:3", "--multikueue-dispatch=off", "--log-format=json", "--ledger-settle=1m", "map[operator:Exists]", "nodeSelector:map[a:b]"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	kinds := map[string]int{}
	for k := range objects {
		kind, _, _ := strings.Cut(k, " ")
		kinds[kind]++
	}
	dashboards, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	// The ServiceMonitors are those of the operator and of Kueue.
	if kinds["ServiceMonitor"] != 2 || kinds["PrometheusRule"] == 0 || kinds["ConfigMap"] != len(dashboards) || kinds["MutatingAdmissionPolicy"] != 2 ||
		kinds["ValidatingAdmissionPolicy"] != 0 || kinds["NetworkPolicy"] != 0 || kinds["CustomResourceDefinition"] != 0 {
		t.Errorf("objects %v", kinds)
	}
}

// A Prometheus that selects by labels, as that of kube-prometheus-stack does, finds all monitors and
// rules.
func TestLabelsOfMonitorsAndRules(t *testing.T) {
	labels := map[string]any{"release": "kube-prometheus-stack"}
	for _, name := range []string{"plimsoll", "plimsoll-exporter"} {
		checkMonitorLabels(t, render(t, name, map[string]any{"prometheus": map[string]any{"enabled": true, "labels": labels}}), labels)
	}
	works := renderFleet(t, map[string]any{"workers": []any{"cluster1"}, "monitoring": map[string]any{"enabled": true, "labels": labels}})
	work := works["ManifestWork cluster1/plimsoll-fleet"].(map[string]any)["spec"].(map[string]any)["workload"].(map[string]any)
	objects := map[string]any{}
	for _, o := range work["manifests"].([]any) {
		objects[key(o.(map[string]any))] = o
	}
	checkMonitorLabels(t, objects, labels)
}

func checkMonitorLabels(t *testing.T, objects map[string]any, want map[string]any) {
	t.Helper()
	found := 0
	for k, o := range objects {
		kind, _, _ := strings.Cut(k, " ")
		if kind != "PodMonitor" && kind != "ServiceMonitor" && kind != "PrometheusRule" {
			continue
		}
		found++
		if d := cmp.Diff(want, o.(map[string]any)["metadata"].(map[string]any)["labels"]); d != "" {
			t.Errorf("%s: labels (-want +got):\n%s", k, d)
		}
	}
	if found < 2 {
		t.Errorf("%d monitors and rules", found)
	}
}

// doctorOf are the last words of the notes of each chart in another namespace. Only the chart of the
// operator knows the operator's namespace.
var doctorOf = map[string]string{
	"plimsoll":          "\n   kubectl plimsoll doctor --operator-namespace=elsewhere",
	"plimsoll-exporter": " If the operator is not in its default namespace, add --operator-namespace=NAMESPACE:\n   kubectl plimsoll doctor",
	"plimsoll-fleet":    " If the operator is not in its default namespace, add --operator-namespace=NAMESPACE:\n   kubectl plimsoll doctor",
}

// In its default namespace, the operator needs no flag of doctor.
func TestNotesInTheDefaultNamespace(t *testing.T) {
	files, err := renderChart("plimsoll", "plimsoll-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.TrimSpace(files["plimsoll/templates/NOTES.txt"]); !strings.HasSuffix(notes, "\n   kubectl plimsoll doctor") {
		t.Errorf("the notes end otherwise: %s", notes)
	}
}

// In another namespace, no reference to the default namespace remains.
func TestChartsInAnotherNamespace(t *testing.T) {
	for _, name := range []string{"plimsoll", "plimsoll-exporter", "plimsoll-fleet"} {
		files, err := renderChart(name, "elsewhere", nil)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			for _, old := range []string{"plimsoll-system", "namespace: plimsoll-exporter", "serviceaccount:plimsoll-exporter", "namespace: plimsoll-fleet", "namespace: plimsoll-addon"} {
				// OCM installs the add-on in a namespace of its own on the workers.
				if strings.Contains(text, old) && (name != "plimsoll-fleet" || old != "namespace: plimsoll-exporter") {
					t.Errorf("%s contains %q", file, old)
				}
			}
		}
		notes := strings.TrimSpace(files[name+"/templates/NOTES.txt"])
		if want := doctorOf[name]; !strings.HasSuffix(notes, want) {
			t.Errorf("%s: the notes do not end with %q: %s", name, want, notes)
		}
	}
}

func TestExporterChartEqualsKustomize(t *testing.T) {
	for _, platform := range slices.Sorted(maps.Keys(platforms)) {
		t.Run(platform, func(t *testing.T) {
			var components []string
			if c := platforms[platform]; c != "" {
				components = []string{c}
			}
			compare(t, build(t, map[string][]string{"exporter": components, "exporter-amd": nil, "exporter-tpu": nil}), render(t, "plimsoll-exporter", map[string]any{"platform": platform}))
		})
	}
}

func TestExporterChartOptions(t *testing.T) {
	enabled := map[string]any{"enabled": true}
	got := render(t, "plimsoll-exporter", map[string]any{"podOwners": enabled, "claimShares": enabled, "openshift": enabled, "prometheus": enabled, "kubeletRoot": "/var/lib/k0s/kubelet"})
	want := build(t, map[string][]string{"exporter": {"exporter/pod-owners", "exporter/claim-shares", "exporter/openshift", "exporter/kubelet-root"}, "exporter-amd": {"exporter/pod-owners", "exporter/claim-shares", "exporter/kubelet-root"},
		"exporter-tpu": {"exporter/pod-owners", "exporter/claim-shares", "exporter/kubelet-root"}, "prometheus/worker": nil})
	compare(t, want, got)
}

// KAI Scheduler shares NVIDIA GPUs, so only their exporter gets the argument.
func TestExporterChartWithKAI(t *testing.T) {
	enabled := map[string]any{"enabled": true}
	for k, o := range render(t, "plimsoll-exporter", map[string]any{"podOwners": enabled, "kaiShares": enabled}) {
		if has := strings.Contains(fmt.Sprint(o), "--kubernetes-kai-shares"); has != (k == "DaemonSet plimsoll-exporter/plimsoll-exporter") {
			t.Errorf("%s has the argument: %t", k, has)
		}
	}
	if _, err := tryRender("plimsoll-exporter", map[string]any{"kaiShares": enabled}); err == nil {
		t.Error("kaiShares is accepted without podOwners")
	}
}

// The notes name only DaemonSets and steps that the values leave.
func TestExporterNotes(t *testing.T) {
	disabled := map[string]any{"enabled": false}
	for _, tc := range []struct {
		name        string
		values      map[string]any
		want, never []string
	}{
		{"default", nil, []string{"daemonset/plimsoll-exporter --", "daemonset/plimsoll-exporter-amd --", "daemonset/plimsoll-exporter-tpu --", "load the recording rules"}, nil},
		{"TPUs", map[string]any{"gpu": disabled, "amd": disabled}, []string{"daemonset/plimsoll-exporter-tpu --"}, []string{"daemonset/plimsoll-exporter --", "exporter-amd"}},
		{"monitoring", map[string]any{"prometheus": map[string]any{"enabled": true}}, []string{"The PodMonitor scrapes"}, []string{"load the recording rules"}},
	} {
		files, err := renderChart("plimsoll-exporter", "gpu", tc.values)
		if err != nil {
			t.Fatal(err)
		}
		notes := files["plimsoll-exporter/templates/NOTES.txt"]
		for _, want := range tc.want {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: no %q in\n%s", tc.name, want, notes)
			}
		}
		for _, never := range tc.never {
			if strings.Contains(notes, never) {
				t.Errorf("%s: %q in\n%s", tc.name, never, notes)
			}
		}
	}
}

// TestExporterChartByVendor: a vendor that is disabled has no DaemonSet and no Service.
func TestExporterChartByVendor(t *testing.T) {
	disabled := map[string]any{"enabled": false}
	compare(t, build(t, map[string][]string{"exporter": nil}), render(t, "plimsoll-exporter", map[string]any{"amd": disabled, "tpu": disabled}))
}

func TestUnknownValuesAreRefused(t *testing.T) {
	for _, values := range []map[string]any{{"replica": 3}, {"image": map[string]any{"name": "x"}}, {"dispatch": "maybe"}, {"replicas": 0}} {
		if _, err := tryRender("plimsoll", values); err == nil {
			t.Errorf("%v is accepted", values)
		}
	}
	for _, values := range []map[string]any{{"platform": "aws"}, {"tpus": map[string]any{"enabled": true}}} {
		if _, err := tryRender("plimsoll-exporter", values); err == nil {
			t.Errorf("%v is accepted", values)
		}
	}
}
