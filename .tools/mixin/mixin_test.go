package mixin

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-jsonnet"
	"sigs.k8s.io/yaml"
)

const root = "../.."

var (
	recordingFiles = []string{"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml", "recording-owners.yaml", "recording-queues.yaml", "recording-fleet.yaml"}
	alertFiles     = []string{"alerts-capacity.yaml", "alerts-devices.yaml", "alerts-pipeline.yaml", "alerts-prometheus.yaml", "alerts-hub.yaml"}
)

// rule is a rule of a group.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func (r rule) name() string { return r.Record + r.Alert }

type group struct {
	Name  string
	Rules []rule
}

// rendered is what a mixin offers.
type rendered struct {
	Rules, Alerts struct{ Groups []group }
	Dashboards    map[string]any
}

// evaluate returns the mixin with a change of its settings, as JSON.
func evaluate(t *testing.T, change, fields string) []byte {
	t.Helper()
	text, err := jsonnet.MakeVM().EvaluateAnonymousSnippet("test.jsonnet", fmt.Sprintf(
		`local m = (import '%s/config/prometheus/mixin.libsonnet') + { _config+:: %s }; %s`, root, change, fields))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

const (
	onlyRules     = "{ rules: m.prometheusRules, alerts: m.prometheusAlerts }"
	andDashboards = onlyRules + " + { dashboards: m.grafanaDashboards }"
)

func render(t *testing.T, change, fields string) rendered {
	t.Helper()
	var r rendered
	if err := json.Unmarshal(evaluate(t, change, fields), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// rules returns the rules with the name of each. Rules of one name are numbered.
func (r rendered) rules() map[string]rule {
	all := map[string]rule{}
	for _, g := range slices.Concat(r.Rules.Groups, r.Alerts.Groups) {
		for _, rule := range g.Rules {
			name := rule.name()
			for i := 2; all[name].name() != ""; i++ {
				name = fmt.Sprint(rule.name(), " ", i)
			}
			all[name] = rule
		}
	}
	return all
}

func readFile(t *testing.T, elements ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{root}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestDefaultsAreTheRulesAndDashboards(t *testing.T) {
	var got struct {
		Rules, Alerts struct{ Groups []any }
		Dashboards    map[string]any
	}
	if err := json.Unmarshal(evaluate(t, "{}", andDashboards), &got); err != nil {
		t.Fatal(err)
	}
	groups := func(files []string) []any {
		var all []any
		for _, file := range files {
			var content struct{ Groups []any }
			if err := yaml.Unmarshal(readFile(t, "rules", file), &content); err != nil {
				t.Fatal(err)
			}
			all = append(all, content.Groups...)
		}
		return all
	}
	if diff := cmp.Diff(groups(recordingFiles), got.Rules.Groups); diff != "" {
		t.Errorf("recording rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(groups(alertFiles), got.Alerts.Groups); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	files, err := filepath.Glob(filepath.Join(root, "dashboards", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	for _, file := range files {
		var board any
		if err := json.Unmarshal(readFile(t, "dashboards", filepath.Base(file)), &board); err != nil {
			t.Fatal(err)
		}
		want[filepath.Base(file)] = board
	}
	if diff := cmp.Diff(want, got.Dashboards); diff != "" {
		t.Errorf("dashboards (-want +got):\n%s", diff)
	}
}

// Each setting changes the rules that it names, and no others.
func TestThresholdsAndObjective(t *testing.T) {
	before := render(t, "{}", onlyRules).rules()
	for _, tc := range []struct {
		change string
		want   map[string][]string
	}{
		{"{ thresholds+: { capacityLowRatio: 0.02 } }", map[string][]string{"PlimsollCapacityLow": {"< 0.02"}}},
		{"{ thresholds+: { demandPeakRatio: 0.8 } }", map[string][]string{"PlimsollDemandExceedsCapacity": {"> 0.8 *"}, "PlimsollDemandExceedsCapacity 2": {"> 0.8 *"}}},
		{"{ thresholds+: { idleSeconds: 3600 } }", map[string][]string{"PlimsollDevicesIdle": {"for 60 minutes"}, "owner:plimsoll_idle_devices:count": {"> 3600"}}},
		{"{ thresholds+: { idleUtilization: 0.05 } }", map[string][]string{
			"PlimsollDevicesIdle": {"less than 5%"}, "PlimsollNamespaceIdle": {"less than 5%"},
			"device:plimsoll_idle_since_timestamp_seconds:min": {"< 0.05"}, "namespace:plimsoll_idle_devices:count": {"< 0.05"},
		}},
		{"{ thresholds+: { namespaceIdleHours: 500 } }", map[string][]string{"PlimsollNamespaceIdle": {"> 500"}}},
		{"{ thresholds+: { namespaceIdleRatio: 0.25 } }", map[string][]string{"PlimsollNamespaceIdle": {"> 0.25", "more than 25%"}}},
		{"{ thresholds+: { correctableErrors: 1000 } }", map[string][]string{"PlimsollDeviceCorrectableECC": {"> 1000"}}},
		{"{ thresholds+: { throttledRatio: 0.1 } }", map[string][]string{"PlimsollDeviceThrottled": {"> 0.1"}}},
		{"{ thresholds+: { nvlinkErrors: 50 } }", map[string][]string{"PlimsollNVLinkErrors": {"> 50"}}},
		{"{ thresholds+: { stragglerRatio: 0.85 } }", map[string][]string{"PlimsollDeviceStraggler": {"< 0.85"}}},
		{"{ thresholds+: { interferenceUtilization: 0.85 } }", map[string][]string{
			"PlimsollDeviceInterference": {"Above 85%"}, "device:plimsoll_interference_exposure:bool": {"> bool 0.85"},
		}},
		{"{ thresholds+: { tpuStalledSeconds: 1200 } }", map[string][]string{"PlimsollTPUStalled": {"> 1200", "more than 20 minutes"}}},
		{"{ thresholds+: { gateWaitSeconds: 7200 } }", map[string][]string{"PlimsollGateBlocking": {"> 7200"}}},
		{"{ thresholds+: { mispredictionRatio: 0.1 } }", map[string][]string{"PlimsollGateMispredicts": {"0.1 * sum"}}},
		{"{ objective+: { share: 0.95 } }", map[string][]string{
			"PlimsollStartsLate": {"> 6 * 0.05", "objective is 5%"}, "PlimsollStartsLate 2": {"> 0.05", "> 6 * 0.05", "objective is 5%"},
		}},
		{"{ objective+: { seconds: 320 } }", map[string][]string{
			"PlimsollStartsLate": {"longer than 320 s"}, "PlimsollStartsLate 2": {"longer than 320 s"},
			"cluster_queue:kueue_late_starts:ratio30m": {`"320(`}, "cluster_queue:kueue_late_starts:ratio6h": {`"320(`}, "cluster_queue:kueue_late_starts:ratio3d": {`"320(`},
		}},
	} {
		t.Run(tc.change, func(t *testing.T) {
			changed := map[string]bool{}
			for name, r := range render(t, tc.change, onlyRules).rules() {
				if cmp.Equal(r, before[name]) {
					continue
				}
				changed[name] = true
				text := r.Expr + strings.Join(slices.Collect(maps.Values(r.Annotations)), "\n")
				for _, want := range tc.want[name] {
					if !strings.Contains(text, want) {
						t.Errorf("%s does not contain %q:\n%s", name, want, text)
					}
				}
			}
			want := slices.Sorted(maps.Keys(tc.want))
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(changed))); diff != "" {
				t.Errorf("changed rules (-want +got):\n%s", diff)
			}
		})
	}
}

// label cluster as a word of a query: no part of a name, and no variable.
var labelCluster = regexp.MustCompile(`(^|[^\w:$])cluster($|[^\w:])`)

// queries returns all queries of a dashboard.
func queries(v any) []string {
	var found []string
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if text, isText := value.(string); isText && (key == "expr" || key == "query" || key == "definition") {
				found = append(found, text)
				continue
			}
			found = append(found, queries(value)...)
		}
	case []any:
		for _, element := range v {
			found = append(found, queries(element)...)
		}
	}
	return found
}

func TestClusterLabel(t *testing.T) {
	got := render(t, "{ clusterLabel: 'k8s_cluster' }", andDashboards)
	renamed := 0
	check := func(where, query string) {
		if strings.Contains(query, "plimsoll_gate_") || strings.Contains(query, "plimsoll_score") {
			return // the label cluster of the operator
		}
		if strings.Contains(query, "ALERTS{") {
			return // TestFiringAlerts
		}
		if labelCluster.MatchString(query) {
			t.Errorf("%s still has the label cluster: %s", where, query)
		}
		if strings.Contains(query, "k8s_cluster_") || strings.Contains(query, "k8s_cluster:") || strings.Contains(query, "$k8s_cluster") {
			t.Errorf("%s: a name was changed: %s", where, query)
		}
		renamed += strings.Count(query, "k8s_cluster")
	}
	for name, r := range got.rules() {
		check(name, r.Expr)
		for key, text := range r.Annotations {
			if key == "summary" || key == "description" {
				continue
			}
			if strings.Contains(text, "k8s_cluster=") {
				t.Errorf("%s: the variable of a dashboard was changed: %s", name, text)
			}
		}
		if url := r.Annotations["dashboard_url"]; strings.Contains(url, "$labels.cluster") {
			t.Errorf("%s still has the label cluster: %s", name, url)
		}
		if strings.Contains(r.Annotations["description"], "$externalLabels.cluster") {
			t.Errorf("%s still reads the external label cluster", name)
		}
	}
	for file, board := range got.Dashboards {
		for _, q := range queries(board) {
			check(file, q)
		}
	}
	if renamed < 900 {
		t.Errorf("the label was renamed %d times", renamed)
	}
	lost := got.rules()["PlimsollDeviceLost"]
	if !strings.Contains(lost.Annotations["summary"], `or $labels.k8s_cluster $externalLabels.k8s_cluster "this cluster"`) || !strings.HasSuffix(lost.Annotations["dashboard_url"], "?{{ with $labels.k8s_cluster }}var-cluster={{ . }}&{{ end }}var-node={{ $labels.node }}") {
		t.Errorf("annotations of PlimsollDeviceLost: %v", lost.Annotations)
	}
	settles := got.rules()["PlimsollLedgerNotSettling"]
	if !strings.Contains(settles.Annotations["summary"], "$labels.cluster") {
		t.Errorf("PlimsollLedgerNotSettling lost the name of the ManagedCluster: %v", settles.Annotations)
	}
}

// The panel Firing alerts shows alerts about a ManagedCluster with the cluster label. A unit test
// of promtool has the same queries, and checks which alerts they return.
func TestFiringAlerts(t *testing.T) {
	tested := string(readFile(t, "rules", "tests", "mixin_cluster_label_test.yaml"))
	n := 0
	for _, query := range queries(render(t, "{ clusterLabel: 'k8s_cluster' }", andDashboards).Dashboards["fleet.json"]) {
		if !strings.HasPrefix(query, "count by (severity, alertname") {
			continue
		}
		n++
		for _, cluster := range []string{"east", ".*"} {
			if want := strings.ReplaceAll(query, "$cluster", cluster); !strings.Contains(tested, want) {
				t.Errorf("the unit test does not contain %s", want)
			}
		}
	}
	if n != 1 {
		t.Errorf("the panel has %d queries", n)
	}
}

func TestSelectors(t *testing.T) {
	got := render(t, `{ selectors+: { kube_: 'job="ksm"', DCGM_FI_: 'job="dcgm"' } }`, andDashboards)
	metric := regexp.MustCompile(`(^|[^\w:"])(kube|DCGM_FI)_\w+(\S{0,12})`)
	n := 0
	var all []string
	for _, r := range got.rules() {
		all = append(all, r.Expr)
	}
	for _, board := range got.Dashboards {
		all = append(all, queries(board)...)
	}
	for _, query := range all {
		for _, m := range metric.FindAllStringSubmatch(query, -1) {
			n++
			if want := map[string]string{"kube": `{job="ksm"`, "DCGM_FI": `{job="dcgm"`}[m[2]]; !strings.HasPrefix(m[3], want) {
				t.Errorf("no matcher %s at %q in %s", want, m[0], query)
			}
		}
	}
	if n < 50 {
		t.Errorf("found %d selectors", n)
	}
	source := got.rules()["node:plimsoll_device_source:info"].Expr
	if !strings.Contains(source, `"kube_state_metrics"`) {
		t.Errorf("a string was changed: %s", source)
	}
}

func TestToleratedTaintsPartsAndRunbooks(t *testing.T) {
	before := render(t, "{}", onlyRules).rules()
	got := render(t, "{ toleratedTaints: ['own.example/gpu'], runbookURL: 'https://wiki.example/%s.html' }", onlyRules).rules()
	taints := func(rules map[string]rule) []string {
		var keys []string
		for _, r := range rules {
			if r.Record == "plimsoll:tolerated_taint:info" {
				keys = append(keys, r.Labels["key"])
			}
		}
		return keys
	}
	if n := len(taints(before)); n != 9 {
		t.Errorf("%d taints are tolerated by default", n)
	}
	if diff := cmp.Diff([]string{"own.example/gpu"}, taints(got)); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if url := got["PlimsollDeviceLost"].Annotations["runbook_url"]; url != "https://wiki.example/PlimsollDeviceLost.html" {
		t.Errorf("runbook: %s", url)
	}
	groups := func(change string) []string {
		var names []string
		r := render(t, change, onlyRules)
		for _, g := range slices.Concat(r.Rules.Groups, r.Alerts.Groups) {
			names = append(names, g.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{"plimsoll-queues", "plimsoll-queues-history", "plimsoll-fleet", "plimsoll-fleet-daily", "plimsoll-prometheus-alerts", "plimsoll-hub-alerts"}, groups("{ worker: false }")); diff != "" {
		t.Errorf("groups of a hub (-want +got):\n%s", diff)
	}
	worker := groups("{ hub: false, fleet: false }")
	if slices.Contains(worker, "plimsoll-hub-alerts") || slices.Contains(worker, "plimsoll-fleet") || !slices.Contains(worker, "plimsoll-device-alerts") {
		t.Errorf("groups of a worker: %v", worker)
	}
}
