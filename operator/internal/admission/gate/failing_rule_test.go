package gate_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
)

// lasting are rules that gates depend on whose result may be older than the sample time.
var lasting = map[string]string{
	"plimsoll:tolerated_taint:info":                    "a constant",
	"plimsoll:tpu_dimension:count":                     "a constant",
	"cluster_topology:plimsoll_tpu_chips:count":        "follows from a name",
	"node:kube_accelerators:sum":                       "capacity of nodes",
	"node:plimsoll_model:info":                         "labels of nodes",
	"node:plimsoll_tpu_slice:info":                     "labels of nodes",
	"node:plimsoll_expected:info":                      "the nodes of a day",
	"node:plimsoll_last_report_timestamp_seconds:max":  "the nodes of a day",
	"cluster_resource_model:plimsoll_free_devices:sum": "a gate only reads whether it exists",
}

// Prometheus writes nothing if a rule fails, and finds its last result for five minutes. The other rules of
// the group go on. A gate would read old free devices beside a new sample time, and place jobs on devices
// that others got in between.
func TestFailingRuleEndsSampleTime(t *testing.T) {
	const file = "rules/recording-nodes.yaml"
	rules, err := promengine.DecodeRules(file, read(t, file))
	if err != nil {
		t.Fatal(err)
	}
	if got := sampleTimes(t, rules, -1, nil); len(got) != 3 {
		t.Fatalf("without a failure: sample times %v", got)
	}
	needed := seriesOfGates(t)
	for i, r := range rules {
		if !needed[r.Record] || lasting[r.Record] != "" {
			continue
		}
		t.Run(fmt.Sprint(r.Record, r.Labels), func(t *testing.T) {
			clusters := map[string]bool{}
			got := sampleTimes(t, rules, i, clusters)
			if len(clusters) == 0 {
				t.Error("no cluster has a result of the rule")
			}
			for cluster := range clusters {
				if at, ok := got[cluster]; ok && at > 1000 {
					t.Errorf("%s has the sample time %v although a rule failed after 1000", cluster, at)
				}
			}
		})
	}
	for name := range lasting {
		if !needed[name] {
			t.Errorf("no gate depends on %s", name)
		}
	}
}

// After five minutes, the last result of a rule that still fails is gone. What depends on it must be gone
// as well, or the cluster has no sample time: a gate would count devices as free that the rule counted as
// in use.
func TestRuleFailingForLongFreesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	const file = "rules/recording-nodes.yaml"
	rules, err := promengine.DecodeRules(file, read(t, file))
	if err != nil {
		t.Fatal(err)
	}
	needed, all := seriesOfGates(t), recordedRules(t)
	for i, r := range rules {
		if !needed[r.Record] || lasting[r.Record] != "" {
			continue
		}
		t.Run(fmt.Sprint(r.Record, r.Labels), func(t *testing.T) {
			clusters := map[string]bool{}
			query := evaluate(t, rules, i, 1420, clusters)
			times := query("cluster:plimsoll_sample_timestamp_seconds:min")
			for name := range fitSeries(t) {
				if !readBy(t, all, name)[r.Record] {
					continue
				}
				for cluster, value := range query(name) {
					if at, ok := times[cluster]; ok && clusters[cluster] {
						t.Errorf("%s has the sample time %v and %v of %s without a result of the rule since 1000", cluster, at, value, name)
					}
				}
			}
		})
	}
}

// fitSeries returns the recorded series that the fit of gates reads itself, except for those whose result
// does not change it.
func fitSeries(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, spec := range sampleGates(t) {
		for _, q := range gate.Queries(&spec, "cluster") {
			if q.Name != gate.QueryFit && q.Name != gate.QueryEmptyFit {
				continue
			}
			for _, name := range seriesOf(t, q.Expr) {
				found[name] = untimed[name] == "" && lasting[name] == ""
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, read bool) bool { return !read })
	return found
}

// seriesOfGates returns the recorded series that the fit of gates depends on, except for untimed ones.
func seriesOfGates(t *testing.T) map[string]bool {
	t.Helper()
	all, rules := map[string]bool{}, recordedRules(t)
	for _, spec := range sampleGates(t) {
		for _, q := range gate.Queries(&spec, "cluster") {
			if q.Name == gate.QueryFit || q.Name == gate.QueryEmptyFit {
				maps.Copy(all, readBy(t, rules, q.Expr))
			}
		}
	}
	for name := range untimed {
		delete(all, name)
	}
	return all
}

// sampleTimes evaluates the rules at 1000 s and 1030 s, the second time without the rule at failing, and
// returns the sample times of all clusters. It adds the clusters of that rule's first result to clusters.
func sampleTimes(t *testing.T, rules []promengine.Rule, failing int, clusters map[string]bool) map[string]float64 {
	t.Helper()
	return evaluate(t, rules, failing, 1030, clusters)("cluster:plimsoll_sample_timestamp_seconds:min")
}

// evaluate evaluates the rules every 30 s from 1000 s until end, after the first time without the rule at
// failing. It adds the clusters of that rule's first result to clusters, and returns a function that
// queries values by cluster at the end.
func evaluate(t *testing.T, rules []promengine.Rule, failing int, end int64, clusters map[string]bool) func(expr string) map[string]float64 {
	t.Helper()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	s := series{teststorage.New(t)}
	var recorders []*promengine.Recorder
	for _, r := range rules {
		recorders = append(recorders, promengine.NewRecorder(engine, s, []promengine.Rule{r}))
	}
	for seconds := int64(1000); seconds <= end; seconds += 30 {
		at := time.Unix(seconds, 0)
		if err := s.Store(t.Context(), at, threeClusters(float64(seconds))); err != nil {
			t.Fatal(err)
		}
		for i, r := range recorders {
			if i == failing && seconds > 1000 {
				continue
			}
			if err := r.Evaluate(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		if failing >= 0 && seconds == 1000 {
			for cluster := range valuesByCluster(t, engine, s, rules[failing].Record, at) {
				clusters[cluster] = true
			}
		}
	}
	return func(expr string) map[string]float64 {
		return valuesByCluster(t, engine, s, expr, time.Unix(end, 0))
	}
}

func valuesByCluster(t *testing.T, engine *promql.Engine, s series, expr string, at time.Time) map[string]float64 {
	t.Helper()
	result, err := promengine.Query(t.Context(), engine, s, expr, at)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, sample := range result.Samples {
		values[sample.Labels["cluster"]] = sample.Value
	}
	return values
}

// threeClusters returns samples of one node of each cluster: gpu has shared GPUs with NVLink, tpu a slice,
// and bridge no exporter.
func threeClusters(now float64) []promengine.Sample {
	var m shareMetrics
	for _, cluster := range []string{"gpu", "tpu", "bridge"} {
		node := []string{"cluster", cluster, "node", "n"}
		m.add(1, "kube_node_status_condition", append(node, "condition", "Ready", "status", "true")...)
		m.add(0, "kube_node_spec_unschedulable", node...)
		m.add(1, "kube_pod_status_phase", "cluster", cluster, "namespace", "ml", "pod", "p", "phase", "Running")
		if cluster != "bridge" {
			m.add(now, "plimsoll_exporter_last_collection_timestamp_seconds", node...)
			resource := map[string]string{"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"}[cluster]
			for state, n := range map[string]float64{"free": 3, "allocatable": 4, "allocated": 1, "unhealthy": 0} {
				m.add(n, "plimsoll_node_devices", append(node, "resource", resource, "model", "m", "state", state)...)
			}
		}
	}
	// The exporter reports a device more than kube-state-metrics.
	m.add(3, "kube_node_status_capacity", "cluster", "gpu", "node", "n", "resource", "nvidia_com_gpu", "unit", "integer")
	m.add(2, "kube_node_status_allocatable", "cluster", "gpu", "node", "n", "resource", "nvidia_com_gpu", "unit", "integer")
	m.add(2, "plimsoll_node_largest_free_group", "cluster", "gpu", "node", "n", "resource", "nvidia.com/gpu", "model", "m")
	share := []string{"cluster", "gpu", "node", "n", "model", "m", "uuid", "u", "provider", "hami", "dimension", "shares"}
	m.add(10, "plimsoll_device_share_capacity", share...)
	m.add(1, "plimsoll_device_share_allocated", share...)
	m.add(4, "kube_node_status_capacity", "cluster", "tpu", "node", "n", "resource", "google_com_tpu")
	m.add(1, "kube_node_labels", "cluster", "tpu", "node", "n", "label_cloud_google_com_gke_tpu_topology", "2x2", "label_cloud_google_com_gke_nodepool", "s")
	m.add(8, "kube_node_status_capacity", "cluster", "bridge", "node", "n", "resource", "nvidia_com_gpu")
	m.add(8, "kube_node_status_allocatable", "cluster", "bridge", "node", "n", "resource", "nvidia_com_gpu")
	m.add(1, "kube_pod_container_resource_requests", "cluster", "bridge", "namespace", "ml", "pod", "p", "container", "c", "node", "n", "resource", "nvidia_com_gpu")
	for _, container := range []string{"init", "sidecar"} {
		m.add(1, "kube_pod_init_container_resource_requests", "cluster", "bridge", "namespace", "ml", "pod", "p", "container", container, "node", "n", "resource", "nvidia_com_gpu")
	}
	m.add(1, "kube_pod_init_container_info", "cluster", "bridge", "namespace", "ml", "pod", "p", "container", "sidecar", "restart_policy", "Always")
	return m
}
