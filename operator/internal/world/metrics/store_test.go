package metrics_test

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	exprs "plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// richSnapshot has every kind of series.
func richSnapshot() metrics.Snapshot {
	return metrics.Snapshot{
		Cluster: "c1",
		Nodes: []metrics.Node{
			{
				Name: "n1", Model: h100, Resource: gpu, Devices: 8, Allocated: 3, Unhealthy: 1, Ready: true, CriticalXIDs: 2,
				CPU: 96_000, CPUUsed: 5500, Memory: 1 << 20, MemoryUsed: 2048, Labels: map[string]string{"topology.kubernetes.io/zone": "zone-a"},
			},
			{Name: "n2", Model: v5e, Resource: tpu, Devices: 4, Taint: "maintenance", Ready: true, NoOwners: true, CollectedAt: start.Add(-7 * time.Second)},
			{Name: "n3", Model: h100, Resource: gpu, Devices: 8, Cordoned: true, KubeletDown: true, OwnersUnreachable: true},
			{Name: "n4", Ready: true, CPU: 4000},
			{Name: "n5", Model: h100, Resource: gpu, Devices: 8, Ready: true, Silent: true},
		},
		Pods: []metrics.Pod{
			{Namespace: "team-a", Name: "p1", Node: "n1", Resource: gpu, Model: h100, Devices: 2, CPU: 4000, Memory: 1024, OwnerKind: "JobSet", OwnerName: "train", Utilization: 0.5},
			{Namespace: "team-a", Name: "p2", Node: "n1", Resource: gpu, Model: h100, Devices: 1},
			{Namespace: "team-a", Name: "done", Node: "n1", Resource: gpu, Model: h100, Devices: 1, Phase: "Succeeded"},
			{Namespace: "team-a", Name: "waiting", Resource: gpu, Devices: 8, Phase: "Pending"},
		},
		Queues: []metrics.Queue{
			{Name: "q1", Cohort: "child", Flavor: "h100", Resource: gpu, Nominal: 8, Reserved: 5},
			{Name: "q2", Cohort: "idle", Flavor: "h100", Resource: gpu, Nominal: 4, BorrowingLimit: 2},
			{Name: "q3", Flavor: "v5e", Resource: tpu, Nominal: 4, Reserved: 1, BorrowingLimit: -1},
		},
		Cohorts: []metrics.Cohort{{Name: "child", Parent: "root", Flavor: "h100", Resource: gpu, Nominal: 3}},
		Objects: []metrics.Object{
			{Kind: metrics.KindNamespace, Name: "team-a"}, {Kind: metrics.KindLocalQueue, Namespace: "team-a", Name: "lq", ClusterQueue: "q1"}, {Kind: metrics.KindServiceAccount, Namespace: "team-a", Name: "sa"},
			{Kind: metrics.KindConfigMap, Namespace: "team-a", Name: "cm"}, {Kind: metrics.KindSecret, Namespace: "team-a", Name: "key"}, {Kind: metrics.KindPersistentVolumeClaim, Namespace: "team-a", Name: "data"},
		},
		Extra: []metrics.Sample{
			{Name: "odd", Labels: map[string]string{"a": "b"}, Value: 7},
			{Name: "elsewhere", Labels: map[string]string{"cluster": "c9"}, Value: 1},
			{Name: "plimsoll_exporter_kubelet_up", Labels: map[string]string{"node": "n1", "job": "plimsoll-exporter", "instance": "n1:9400"}, Value: 42},
		},
	}
}

func TestSeries(t *testing.T) {
	at := float64(start.UnixMilli()) / 1000
	inf := math.Inf(1)
	for _, mode := range []metrics.Options{{Mode: metrics.ClosedForm}, {Mode: metrics.RulesEngine, Rules: loadRules(t)}} {
		s := newStore(t, mode)
		if err := s.Scrape(start, richSnapshot()); err != nil {
			t.Fatal(err)
		}
		if err := s.Evaluate(start); err != nil {
			t.Fatal(err)
		}
		for expr, want := range map[string]map[string]float64{
			// plimsoll-exporter.
			`sum by (state) (plimsoll_node_devices{node="n1",resource="nvidia.com/gpu",model="` + h100 + `"})`: {"state=allocatable": 8, "state=allocated": 3, "state=unhealthy": 1, "state=unknown": 0, "state=free": 4},
			`count by (node) (plimsoll_node_devices)`:                                                          {"node=n1": 5, "node=n2": 5},
			`sum by (node) (plimsoll_exporter_last_collection_timestamp_seconds)`:                              {"node=n1": at, "node=n2": at - 7, "node=n3": at},
			`sum by (node) (plimsoll_exporter_kubelet_up)`:                                                     {"node=n1": 42, "node=n2": 1, "node=n3": 0},
			`sum by (cluster, node) (plimsoll_exporter_api_server_reachable)`:                                  {"cluster=c1,node=n1": 1, "cluster=c1,node=n3": 0},
			`sum by (namespace, pod, owner_kind, owner_name, node) (plimsoll_pod_owner_info)`:                  {"namespace=team-a,node=n1,owner_kind=JobSet,owner_name=train,pod=p1": 1, "namespace=team-a,node=n1,owner_kind=Pod,owner_name=p2,pod=p2": 1},
			`count by (node, pod) (plimsoll_device_owner_info)`:                                                {"node=n1,pod=p1": 2, "node=n1,pod=p2": 1},
			`count by (node) (plimsoll_device_lost == 0)`:                                                      {"node=n1": 8, "node=n2": 4, "node=n3": 8},
			`sum by (node, severity) (plimsoll_xid_total)`:                                                     {"node=n1,severity=critical": 2},
			`sum by (Hostname, pod) (DCGM_FI_DEV_GPU_UTIL)`:                                                    {"Hostname=n1,pod=p1": 100, "Hostname=n1,pod=p2": 0, "Hostname=n1": 0, "Hostname=n3": 0},
			`count by (node) (plimsoll_device_busy_ratio)`:                                                     {"node=n2": 4},
			`sum by (job, instance) (up)`: {
				"instance=n1:9400,job=plimsoll-exporter": 1, "instance=n2:9400,job=plimsoll-exporter": 1, "instance=n3:9400,job=plimsoll-exporter": 1, "instance=n5:9400,job=plimsoll-exporter": 0,
				"instance=kube-state-metrics:8080,job=kube-state-metrics": 1, "instance=kueue-controller-manager:8443,job=kueue": 1,
			},
			// kube-state-metrics.
			`sum by (node) (kube_node_status_condition{condition="Ready",status="true"})`:  {"node=n1": 1, "node=n2": 1, "node=n3": 0, "node=n4": 1, "node=n5": 1},
			`sum by (node) (kube_node_status_condition{condition="Ready",status="false"})`: {"node=n1": 0, "node=n2": 0, "node=n3": 1, "node=n4": 0, "node=n5": 0},
			`sum by (node) (kube_node_spec_unschedulable)`:                                 {"node=n1": 0, "node=n2": 0, "node=n3": 1, "node=n4": 0, "node=n5": 0},
			`sum by (node, key, effect) (kube_node_spec_taint)`: {
				"effect=NoSchedule,key=maintenance,node=n2": 1, "effect=NoSchedule,key=node.kubernetes.io/unschedulable,node=n3": 1, "effect=NoExecute,key=node.kubernetes.io/not-ready,node=n3": 1,
			},
			`sum by (node, label_nvidia_com_gpu_product, label_topology_kubernetes_io_zone) (kube_node_labels{node=~"n1|n2"})`: {"label_nvidia_com_gpu_product=" + h100 + ",label_topology_kubernetes_io_zone=zone-a,node=n1": 1, "node=n2": 1},
			`sum by (resource) (kube_node_status_capacity{node="n1"})`:                                                         {"resource=pods": 110, "resource=cpu": 96, "resource=memory": 1 << 40, "resource=nvidia_com_gpu": 8},
			`sum by (resource) (kube_node_status_allocatable{node="n1"})`:                                                      {"resource=pods": 110, "resource=cpu": 96, "resource=memory": 1 << 40, "resource=nvidia_com_gpu": 7},
			`sum by (node, pod, resource) (kube_pod_container_resource_requests{resource!="memory"})`:                          {"node=n1,pod=p1,resource=cpu": 4, "node=n1,pod=p1,resource=nvidia_com_gpu": 2, "node=n1,pod=p2,resource=nvidia_com_gpu": 1, "node=n1,pod=done,resource=nvidia_com_gpu": 1, "pod=waiting,resource=nvidia_com_gpu": 8, "node=n1,pod=system-n1,resource=cpu": 1.5},
			`sum(kube_pod_container_resource_requests{resource="memory"})`:                                                     {"": 2 << 30},
			`sum by (pod, phase) (kube_pod_status_phase == 1)`:                                                                 {"phase=Running,pod=p1": 1, "phase=Running,pod=p2": 1, "phase=Succeeded,pod=done": 1, "phase=Pending,pod=waiting": 1, "phase=Running,pod=system-n1": 1, "phase=Running,pod=kube-state-metrics": 1},
			`sum by (pod, owner_kind, owner_name) (kube_pod_owner)`:                                                            {"owner_kind=JobSet,owner_name=train,pod=p1": 1},
			`sum by (daemonset) (kube_daemonset_status_desired_number_scheduled)`:                                              {"daemonset=plimsoll-exporter": 4},
			`sum by (namespace) (kube_namespace_status_phase{phase="Active"} == 1)`:                                            {"namespace=team-a": 1},
			`sum by (serviceaccount) (kube_serviceaccount_info)`:                                                               {"serviceaccount=sa": 1},
			`sum by (configmap) (kube_configmap_info)`:                                                                         {"configmap=cm": 1},
			`sum by (secret) (kube_secret_info)`:                                                                               {"secret=key": 1},
			`sum by (namespace, persistentvolumeclaim) (kube_persistentvolumeclaim_info)`:                                      {"namespace=team-a,persistentvolumeclaim=data": 1},
			// Kueue.
			`sum by (namespace, localqueue, cluster_queue) (kube_localqueue_info)`:       {"cluster_queue=q1,localqueue=lq,namespace=team-a": 1},
			`sum by (name, namespace, active) (kueue_local_queue_status == 1)`:           {"active=True,name=lq,namespace=team-a": 1},
			`sum by (cohort, cluster_queue, flavor) (kueue_cluster_queue_nominal_quota)`: {"cluster_queue=q1,cohort=child,flavor=h100": 8, "cluster_queue=q2,cohort=idle,flavor=h100": 4, "cluster_queue=q3,flavor=v5e": 4},
			`sum by (cluster_queue) (kueue_cluster_queue_borrowing_limit)`:               {"cluster_queue=q1": inf, "cluster_queue=q2": 2, "cluster_queue=q3": 0},
			`sum by (cluster_queue) (kueue_cluster_queue_resource_reservation)`:          {"cluster_queue=q1": 5, "cluster_queue=q2": 0, "cluster_queue=q3": 1},
			`sum by (cohort) (kueue_cohort_subtree_quota)`:                               {"cohort=child": 11, "cohort=root": 11, "cohort=idle": 4},
			`sum by (cohort) (kueue_cohort_subtree_resource_reservations)`:               {"cohort=child": 5, "cohort=root": 5},
			`sum by (cohort, parent_cohort, root_cohort) (kueue_cohort_info)`:            {"cohort=child,parent_cohort=root,root_cohort=root": 1, "cohort=root,root_cohort=root": 1, "cohort=idle,root_cohort=idle": 1},
			// Samples of the caller.
			`odd`:       {"__name__=odd,a=b,cluster=c1": 7},
			`elsewhere`: {"__name__=elsewhere,cluster=c9": 1},
			// Results of rules.
			`node_resource_model:plimsoll_free_devices:placeable`: {
				"__name__=node_resource_model:plimsoll_free_devices:placeable,cluster=c1,model=" + h100 + ",node=n1,resource=nvidia.com/gpu": 4,
				"__name__=node_resource_model:plimsoll_free_devices:placeable,cluster=c1,model=" + v5e + ",node=n2,resource=google.com/tpu":  0,
			},
			`cluster:plimsoll_sample_timestamp_seconds:min`:                             {"__name__=cluster:plimsoll_sample_timestamp_seconds:min,cluster=c1": at - 7},
			`cluster:kueue_sample_timestamp_seconds:min`:                                {"__name__=cluster:kueue_sample_timestamp_seconds:min,cluster=c1": at},
			`sum by (cluster_queue) (cluster_queue:kueue_unreserved_quota:max)`:         {"cluster_queue=q1": inf, "cluster_queue=q2": 4, "cluster_queue=q3": 3},
			`sum by (cluster_queue) (cluster_queue:kueue_nominal_unreserved_quota:max)`: {"cluster_queue=q1": 3, "cluster_queue=q2": 4},
		} {
			if diff := cmp.Diff(want, seriesOf(t, s, expr, start), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("mode %v: %s (-want +got):\n%s", mode.Mode, expr, diff)
			}
		}
	}
}

// The series of a part end when its targets do not respond, and those of a node when it is gone.
func TestSeriesEnd(t *testing.T) {
	const (
		exported = `count(plimsoll_exporter_last_collection_timestamp_seconds)`
		kube     = `count(kube_node_status_condition{status="true"})`
		kueue    = `count(kueue_cluster_queue_nominal_quota)`
		extra    = `odd`
		up       = `sum(up)`
	)
	fail := func(parts ...metrics.Part) func(*testing.T, *metrics.Store, time.Time) {
		return func(t *testing.T, s *metrics.Store, at time.Time) {
			t.Helper()
			for _, part := range parts {
				if err := s.ScrapeFailed(at, "c1", part); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	scrape := func(change func(*metrics.Snapshot)) func(*testing.T, *metrics.Store, time.Time) {
		return func(t *testing.T, s *metrics.Store, at time.Time) {
			t.Helper()
			snap := richSnapshot()
			change(&snap)
			if err := s.Scrape(at, snap); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		do   func(*testing.T, *metrics.Store, time.Time)
		want []float64 // exported, kube, kueue, extra, up
	}{
		"nothing happens":       {fail(), []float64{3, 5, 3, 7, 5}},
		"all fail":              {fail(metrics.All), []float64{0, 0, 0, 0, 0}},
		"exporters fail":        {fail(metrics.Exporters), []float64{0, 5, 3, 7, 2}},
		"one exporter fails":    {fail(metrics.NodeExporter("n1")), []float64{2, 5, 3, 7, 4}},
		"kube-state-metrics":    {fail(metrics.KubeState), []float64{3, 0, 3, 7, 4}},
		"Kueue":                 {fail(metrics.Kueue), []float64{3, 5, 0, 7, 4}},
		"two parts":             {fail(metrics.Kueue, metrics.NodeExporter("n2")), []float64{2, 5, 0, 7, 3}},
		"a part of a scrape":    {scrape(func(s *metrics.Snapshot) { s.Failed = []metrics.Part{metrics.Kueue} }), []float64{3, 5, 0, 7, 4}},
		"Kueue without metrics": {scrape(func(s *metrics.Snapshot) { s.Queues = nil }), []float64{3, 5, 0, 7, 5}},
		"a node is gone":        {scrape(func(s *metrics.Snapshot) { s.Nodes = s.Nodes[1:] }), []float64{2, 4, 3, 7, 4}},
		"a node is silent":      {scrape(func(s *metrics.Snapshot) { s.Nodes[0].Silent = true }), []float64{2, 5, 3, 7, 4}},
		"nothing extra":         {scrape(func(s *metrics.Snapshot) { s.Extra = nil }), []float64{3, 5, 3, 0, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, metrics.Options{})
			if err := s.Scrape(start, richSnapshot()); err != nil {
				t.Fatal(err)
			}
			at := start.Add(15 * time.Second)
			tc.do(t, s, at)
			for i, expr := range []string{exported, kube, kueue, extra, up} {
				var got float64
				for _, v := range seriesOf(t, s, expr, at) {
					got = v
				}
				if got != tc.want[i] {
					t.Errorf("%s is %v, want %v", expr, got, tc.want[i])
				}
			}
		})
	}
}

// Without further scrapes, a series is visible for less than 5 minutes.
func TestLookback(t *testing.T) {
	s := newStore(t, metrics.Options{})
	if err := s.Scrape(start, richSnapshot()); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]int{-time.Millisecond: 0, 0: 1, 5*time.Minute - time.Millisecond: 1, 5 * time.Minute: 0} {
		if got := len(seriesOf(t, s, "odd", start.Add(after))); got != want {
			t.Errorf("after %v there are %d series, want %d", after, got, want)
		}
	}
}

// Old samples are dropped. A series that returns later than that has samples again.
func TestRetention(t *testing.T) {
	s := newStore(t, metrics.Options{Retention: 10 * time.Minute})
	for minute := range 30 {
		snap := richSnapshot()
		if minute > 2 && minute < 20 {
			snap.Extra = nil
		}
		if err := s.Scrape(start.Add(time.Duration(minute)*time.Minute), snap); err != nil {
			t.Fatal(err)
		}
	}
	at := start.Add(29 * time.Minute)
	got := seriesOf(t, s, `count_over_time(kube_secret_info[1h])`, at)
	for _, n := range got {
		if n < 10 || n > 15 {
			t.Errorf("%v samples are kept of 30, want those of 10 minutes", n)
		}
	}
	if got := seriesOf(t, s, `odd`, at); len(got) != 1 {
		t.Errorf("the series that returned is %v", got)
	}
	if _, err := metrics.NewStore(metrics.Options{Retention: 5 * time.Minute}); err == nil {
		t.Error("a retention of the lookback is accepted")
	}
}

func TestInvalidUse(t *testing.T) {
	s := newStore(t, metrics.Options{})
	if err := s.Scrape(start, metrics.Snapshot{}); err == nil {
		t.Error("a snapshot without a cluster is accepted")
	}
	for range 2 {
		if err := s.Scrape(start, metrics.Snapshot{Cluster: "c1"}); err == nil {
			continue
		} else if !strings.Contains(err.Error(), "already has a sample") {
			t.Error(err)
		}
	}
	if _, err := metrics.NewStore(metrics.Options{Mode: metrics.RulesEngine}); err == nil {
		t.Error("RulesEngine works without rules")
	}
	if _, err := metrics.LoadRules(t.TempDir()); err == nil {
		t.Error("LoadRules finds rules in an empty folder")
	}
}

// notModeled are series that rules of gates and ReclaimPolicies read and that no cluster of the world has.
var notModeled = regexp.MustCompile(`^(kube_pod_init_container_.*|kube_pod_overhead_.*|DCGM_FI_DEV_FB_USED(_BYTES)?|DCGM_FI_DEV_GPU_UTIL_RATIO|DCGM_FI_PROF_GR_ENGINE_(ACTIVE|UTIL_RATIO)|plimsoll_device_idle_allocated_seconds|plimsoll_node_largest_free_group|plimsoll_device_(share_(capacity|allocated)|fabric_info))$`)

// The store exports all series that the rules of a gate's queries depend on.
func TestRulesOfGatesHaveTheirSeries(t *testing.T) {
	reads := map[string][]string{} // metrics that each rule reads
	files, err := filepath.Glob(filepath.Join(rulesDir, "recording-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups struct {
			Groups []struct {
				Rules []struct{ Record, Expr string }
			}
		}
		if err := yaml.Unmarshal(content, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				reads[r.Record] = append(reads[r.Record], metricsOf(t, r.Expr)...)
			}
		}
	}
	s := newStore(t, metrics.Options{Mode: metrics.RulesEngine, Rules: loadRules(t), Devices: true})
	if err := s.Scrape(start, richSnapshot()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if _, isRule := reads[name]; !isRule && !notModeled.MatchString(name) && len(seriesOf(t, s, name, start)) == 0 {
			t.Errorf("the store has no %s", name)
		}
		for _, next := range reads[name] {
			visit(next)
		}
	}
	for _, expr := range append(operatorQueries(), recorded...) {
		for _, name := range metricsOf(t, expr) {
			visit(name)
		}
	}
	if !seen["kube_node_status_capacity"] || !seen["kueue_cohort_info"] || len(seen) < 60 {
		t.Errorf("the queries depend on %d metrics only", len(seen))
	}
}

func metricsOf(t *testing.T, expr string) []string {
	t.Helper()
	parsed, err := parser.NewParser(exprs.Options).ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if selector, ok := n.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

// The exporter's series have the labels of its documentation.
func TestExporterLabelsAreDocumented(t *testing.T) {
	content, err := os.ReadFile("../../../../exporter/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `(plimsoll_[a-z_]+)` \\| [a-z]+ \\| (.*?) \\|")
	for _, m := range row.FindAllStringSubmatch(string(content), -1) {
		documented[m[1]] = strings.Fields(strings.ReplaceAll(m[2], "`", ""))
	}
	s := newStore(t, metrics.Options{})
	if err := s.Scrape(start, richSnapshot()); err != nil {
		t.Fatal(err)
	}
	result, err := s.Query(t.Context(), `{__name__=~"plimsoll_.*"}`, start)
	if err != nil || len(result.Samples) == 0 {
		t.Fatal(result, err)
	}
	for _, sample := range result.Samples {
		name := sample.Labels["__name__"]
		var names []string
		for _, label := range slices.Sorted(maps.Keys(sample.Labels)) {
			if !slices.Contains([]string{"__name__", "cluster", "job", "instance"}, label) {
				names = append(names, label)
			}
		}
		if want := slices.Sorted(slices.Values(documented[name])); !slices.Equal(names, want) {
			t.Errorf("%s has the labels %v, documented are %v", name, names, want)
		}
	}
}
