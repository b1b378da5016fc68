package querycache

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// The largest node of a cluster is known even if a cluster outside of the gate has a
// larger one, or another cluster has room.
func TestCandidateLargest(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.source.responses["floor("] = series("cluster1", 0.0, "cluster2", 5.0, "elsewhere", 9.0)
	f.source.responses["node_free_devices:max"] = series("cluster1", 6.0, "cluster2", 8.0, "elsewhere", 8.0)
	got, _ := f.results(t)
	if n := got["cluster1"].Shapes[0].Largest; n != gate.Known(6) {
		t.Errorf("largest node of cluster1: %+v, want 6", n)
	}
}

// defaultQuotaQuery is the default quota query.
const defaultQuotaQuery = `sum by (cluster, cluster_queue) (cluster_queue:kueue_unreserved_quota:max{flavor=~".+",resource="nvidia.com/gpu"}) or ` +
	`sum by (cluster, cluster_queue) (cluster_queue:kueue_unreserved_quota:max{resource="nvidia.com/gpu"})`

// localQueuesQuery is the query for the LocalQueues of all clusters.
const localQueuesQuery = "group by (cluster, namespace, localqueue, cluster_queue) (kube_localqueue_info{exported_namespace=\"\"})"

// ofQueue adds the label of a ClusterQueue to all series.
func ofQueue(queue string, r query.Result) query.Result {
	for _, s := range r.Samples {
		s.Labels["cluster_queue"] = queue
	}
	return r
}

// localQueue adds a LocalQueue of a cluster, as kube-state-metrics reports it.
func localQueue(r query.Result, cluster, namespace, name, queue string) query.Result {
	r.Samples = append(r.Samples, query.Sample{Value: 1, Labels: map[string]string{"cluster": cluster, "namespace": namespace, "localqueue": name, "cluster_queue": queue}})
	return r
}

// The LocalQueue of a worker may point to a ClusterQueue with another name than the hub's. Where it is not
// reported, the hub's name is assumed.
func TestCandidateQuotaOfLocalQueue(t *testing.T) {
	local := localQueue(localQueue(query.Result{}, "cluster1", "team-a", "gpu", "own"), "cluster2", "team-b", "gpu", "own")
	for _, tc := range []struct {
		name     string
		local    query.Result
		one, two gate.Number
		missing  [2]bool
	}{
		{"cluster1 points to another name", local, gate.Known(5), gate.Known(12), [2]bool{}},
		{"to a queue without quota", localQueue(query.Result{}, "cluster1", "team-a", "gpu", "poor"), gate.Number{}, gate.Known(12), [2]bool{true, false}},
		{"not reported", query.Result{}, gate.Known(9), gate.Known(12), [2]bool{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRemoteFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
			quota := ofQueue("cq", series("cluster1", 9.0, "cluster2", 12.0))
			quota.Samples = append(quota.Samples, ofQueue("own", series("cluster1", 5.0, "cluster2", 7.0)).Samples...)
			f.source.responses["floor("], f.source.responses[kueueMetricsQuery] = series("cluster1", 3.0, "cluster2", 3.0), series("cluster1", 3.0, "cluster2", 3.0)
			f.source.responses[defaultQuotaQuery], f.source.responses[localQueuesQuery] = quota, tc.local
			for range 2 {
				one, two := f.shapeOf(t, "cluster1"), f.shapeOf(t, "cluster2")
				if one.Quota != tc.one || two.Quota != tc.two || one.QueueMissing != tc.missing[0] || two.QueueMissing != tc.missing[1] {
					t.Errorf("cluster1 %+v, cluster2 %+v", one, two)
				}
				f.source.failing = "kube_localqueue_info" // the last result stays in use
				f.clock.add(time.Minute)
				f.refresh()
			}
		})
	}
}

// kueueMetricsQuery is the start of the query for clusters whose Kueue exports quota.
const kueueMetricsQuery = "count by (cluster) (cluster_queue:"

func newRemoteFixture(spec v1alpha1.PlacementGateSpec) *fixture {
	f := newFixture(spec)
	f.facts.Remote, f.facts.ClusterQueue = true, "cq"
	return f
}

func (f *fixture) shapeOf(t *testing.T, cluster string) gate.ShapeMetrics {
	t.Helper()
	got, _ := f.results(t)
	return got[cluster].Shapes[0]
}

// The quota of the worker's queue for CPU and memory is queried for pods that request them, and its failure is one of the quota.
func TestCandidateQuotaOfRequests(t *testing.T) {
	f := newRemoteFixture(v1alpha1.PlacementGateSpec{})
	f.facts.PodSets[0].Requests = shape.Requests{MilliCPU: 500}
	f.source.responses["floor("], f.source.responses[kueueMetricsQuery] = series("cluster1", 3.0), series("cluster1", 3.0)
	f.source.responses[`unreserved_quota:max{resource="cpu"}`] = ofQueue("cq", series("cluster1", 1.5))
	if got := f.shapeOf(t, "cluster1"); got.CPUQuota != gate.Known(1.5) || got.MemoryQuota.Known || got.QuotaFailed {
		t.Errorf("got %+v", got)
	}
	failing := newRemoteFixture(v1alpha1.PlacementGateSpec{})
	failing.facts, failing.source.failing = f.facts, `resource="cpu"}) or`
	failing.source.responses["floor("] = series("cluster1", 3.0)
	if got := failing.shapeOf(t, "cluster1"); !got.QuotaFailed || got.CPUQuota.Known {
		t.Errorf("got %+v after a failed query", got)
	}
}

func TestCandidateQuota(t *testing.T) {
	partial := func(a query.Result) query.Result { a.Partial = true; return a }
	for _, tc := range []struct {
		name         string
		quota, kueue query.Result
		want         gate.Number
		queueMissing bool
	}{
		{"known", series("cluster1", 12.0), series("cluster1", 3.0), gate.Known(12), false},
		{"no such queue", series(), series("cluster1", 3.0), gate.Number{}, true},
		{"no metrics from Kueue", series(), series("cluster2", 3.0), gate.Number{}, false},
		{"unlimited borrowing", series("cluster1", math.Inf(1)), series("cluster1", 3.0), gate.Number{}, false},
		{"absent from an incomplete response", partial(series()), series("cluster1", 3.0), gate.Number{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRemoteFixture(v1alpha1.PlacementGateSpec{})
			f.source.responses["floor("] = series("cluster1", 3.0)
			f.source.responses[defaultQuotaQuery], f.source.responses[kueueMetricsQuery] = ofQueue("cq", tc.quota), tc.kueue
			if got := f.shapeOf(t, "cluster1"); got.Quota != tc.want || got.QueueMissing != tc.queueMissing {
				t.Errorf("quota %+v, queue missing %t, want %+v, %t; queries %q", got.Quota, got.QueueMissing, tc.want, tc.queueMissing, f.source.queries)
			}
		})
	}
	t.Run("a failure keeps a missing queue missing", func(t *testing.T) {
		f := newRemoteFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
		f.source.responses["floor("], f.source.responses["sample_timestamp"] = series("cluster1", 3.0), series("cluster1", f.unixIn(-5))
		f.source.responses[defaultQuotaQuery], f.source.responses[kueueMetricsQuery] = series(), series("cluster1", 3.0)
		f.results(t)
		f.source.failing = "unreserved_quota"
		f.clock.add(time.Minute)
		f.refresh()
		if !f.shapeOf(t, "cluster1").QueueMissing {
			t.Error("the queue is no longer missing after a failed query")
		}
	})
	t.Run("a failure without an earlier success leaves the quota unknown", func(t *testing.T) {
		f := newRemoteFixture(v1alpha1.PlacementGateSpec{})
		f.source.responses["floor("], f.source.responses["sample_timestamp"] = series("cluster1", 3.0), series("cluster1", f.unixIn(-5))
		f.source.responses[kueueMetricsQuery], f.source.failing = series("cluster1", 3.0), `flavor=~`
		got, fleet := f.results(t)
		if s := got["cluster1"].Shapes[0]; !s.QuotaFailed || s.QueueMissing || fleet.Problem == "" {
			t.Errorf("got %+v, problem %q", got["cluster1"], fleet.Problem)
		}
	})
	t.Run("absent from the gate's own query", func(t *testing.T) {
		f := newRemoteFixture(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Quota: `my_quota`}})
		f.source.responses[kueueMetricsQuery] = series("cluster1", 3.0, "cluster2", 3.0)
		f.source.responses["my_quota"] = series("cluster1", 1.0)
		if one, two := f.shapeOf(t, "cluster1"), f.shapeOf(t, "cluster2"); one.Quota != gate.Known(1) || two.QueueMissing {
			t.Errorf("cluster1 %+v, cluster2 %+v", one, two)
		}
	})
}

// If each cluster has its own endpoint, the failure of one endpoint concerns this cluster
// only. Another cluster's empty response means that it has no such devices.
func TestCandidateOfAFailedEndpoint(t *testing.T) {
	f := newRequirementFixture()
	f.setSampleAge(5)
	fit := series()
	fit.Failed = map[string]string{"cluster2": "Unauthorized"}
	f.source.responses["floor("] = fit
	got, _ := f.results(t)
	if got["cluster1"].SampledAt.IsZero() || !got["cluster2"].SampledAt.IsZero() {
		t.Errorf("want a sample time for cluster1 only, got %+v and %+v", got["cluster1"], got["cluster2"])
	}
}

func TestClusterRequirementWithoutSuccess(t *testing.T) {
	f := newRequirementFixture()
	f.source.failing = "freeze"
	if cluster, fleet := f.requirements(t); !fleet.EvaluatedAt.IsZero() || fleet.Known || cluster.EvaluatedAt.IsZero() {
		t.Errorf("freeze has never succeeded: %+v; power has: %+v", fleet, cluster)
	}
}

// JSON has no NaN. A requirement without a finite number must still be encodable for
// explanations.
func TestClusterRequirementThatIsNoNumber(t *testing.T) {
	f := newRequirementFixture()
	f.source.responses["power_ok"], f.source.responses["freeze"] = series("cluster1", math.NaN()), series("", math.Inf(1))
	cluster, fleet := f.requirements(t)
	if cluster.Known || cluster.EvaluatedAt.IsZero() || !fleet.Known {
		t.Errorf("got %+v and %+v", cluster, fleet)
	}
	if _, err := json.Marshal([]gate.RequirementResult{cluster, fleet}); err != nil {
		t.Errorf("encode the requirements: %v", err)
	}
}

// queueSeries is the quota that a ClusterQueue of a cluster borrows.
func queueSeries(cluster, queue string, devices float64) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster, "cluster_queue": queue}, Value: devices}
}

// Borrowed quota counts by ClusterQueue. A cluster that an incomplete response lacks has none, and a
// failed query keeps the last values.
func TestCandidateBorrowed(t *testing.T) {
	f := newRemoteFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.facts.Reclaims = true
	f.source.responses["floor("], f.source.responses["sample_timestamp"] = series("cluster1", 3.0, "cluster2", 3.0), series("cluster1", f.unixIn(-5), "cluster2", f.unixIn(-5))
	f.source.responses["by (cluster, cluster_queue)"] = query.Result{Samples: []query.Sample{queueSeries("cluster1", "friend", 4), queueSeries("cluster1", "lender", 8)}}
	want := map[string]gate.Number{"friend": gate.Known(4), "lender": gate.Known(8)}
	for _, failing := range []string{"", "cluster_queue) (-"} {
		f.source.failing = failing
		f.clock.add(20 * time.Second)
		f.refresh()
		if diff := cmp.Diff(want, f.shapeOf(t, "cluster1").Borrowed); diff != "" {
			t.Errorf("failing queries %q: borrowed of cluster1 (-want +got):\n%s", failing, diff)
		}
	}
	if got := f.shapeOf(t, "cluster2").Borrowed; len(got) != 0 {
		t.Errorf("borrowed of cluster2: %v, want none", got)
	}
}
