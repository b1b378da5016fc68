package querycache

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestOneQuestionPerShapeAndRound(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{})
	b.source.responses["floor("] = series("cluster1", 3.0)
	for range 5 {
		b.Results(t.Context(), b.gate, b.facts)
	}
	if got := len(b.source.queries); got != 5 {
		t.Errorf("five workloads of one shape asked %d questions, want 5: %q", got, b.source.queries)
	}
	other := b.facts
	other.PodSets = []shape.PodSet{{Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 4, Pods: 1}}
	if b.Results(t.Context(), b.gate, other); len(b.source.queries) != 6 {
		t.Errorf("another size asks only what depends on it: %q", b.source.queries[5:])
	}
	b.add(time.Millisecond)
	if b.refreshAll(); len(b.source.queries) != 11 {
		t.Errorf("a new round asks anew, asked %d", len(b.source.queries))
	}
	if b.Results(t.Context(), b.gate, b.facts); len(b.source.queries) != 11 {
		t.Errorf("and its answers serve, asked %d", len(b.source.queries))
	}
}

// A slow or failing source is asked once for all that wait, not once for each.
func TestOneQuestionPerRoundOfASlowSource(t *testing.T) {
	for name, err := range map[string]error{"slow": nil, "slow and failing": errors.New("timeout")} {
		b := newFixture(v1alpha1.PlacementGateSpec{})
		b.source.responses["floor("] = series("cluster1", 3.0)
		b.source.fitTakes, b.source.err = 1100*time.Millisecond, err
		for range 5 {
			b.Results(t.Context(), b.gate, b.facts)
		}
		for expr, n := range b.source.queryCounts() {
			if n > 1 && strings.Contains(expr, "floor(") {
				t.Errorf("%s: five workloads of one shape asked %s %d times", name, expr, n)
			}
		}
	}
}

func TestAnswersAreExplicit(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{Conditions: []v1alpha1.GateCondition{
		{Name: "power", Query: `power_ok`, Scope: v1alpha1.ScopeCluster}, {Name: "freeze", Query: `freeze`, Scope: v1alpha1.ScopeFleet}}})
	b.source.responses["floor("] = series("cluster1", 3.0, "cluster2", math.NaN())
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5), "cluster2", b.unixAt(-7))
	b.source.responses["power_ok"] = series("cluster1", 0.0, "cluster2", 1.0)
	got, fleet := b.Results(t.Context(), b.gate, b.facts)
	if want := []gate.ConditionResult{{Name: "freeze", EvaluatedAt: noon}}; fleet.Problem != "" || cmp.Diff(want, fleet.Conditions) != "" {
		t.Errorf("an empty answer is one: %+v, want %+v", fleet, want)
	}
	if n := got["cluster1"].Shapes[0].Fit; n != gate.Known(3) || !got["cluster1"].SampledAt.Equal(b.clock.now().Add(-5*time.Second)) {
		t.Errorf("cluster1: %+v", got["cluster1"])
	}
	if got["cluster2"].Shapes[0].Fit.Known {
		t.Error("NaN is not an answer")
	}
	if one, two := got["cluster1"].Conditions, got["cluster2"].Conditions; len(one) != 1 || one[0].Name != "power" || one[0].Number != gate.Known(0) || two[0].Number != gate.Known(1) {
		t.Errorf("conditions: %v and %v", one, two)
	}
	b.source.responses["freeze"] = series("", 1.0)
	b.source.responses["floor("] = series("cluster1", 3.0, "cluster1", 4.0)
	b.add(time.Minute)
	got, fleet = b.Results(t.Context(), b.gate, b.facts)
	if c := fleet.Conditions[0]; c.Number != gate.Known(1) || got["cluster1"].Shapes[0].Fit.Known {
		t.Errorf("a series without cluster speaks for the fleet, two for one cluster for none: %+v %+v", fleet, got["cluster1"])
	}
}

// What a cluster's best node has is known whoever else has room: that may be no
// candidate, or one that a rule keeps out.
func TestTheBestNodeIsKnown(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{})
	b.source.responses["floor("] = series("cluster1", 0.0, "cluster2", 5.0, "elsewhere", 9.0)
	b.source.responses["node_free_devices:max"] = series("cluster1", 6.0, "cluster2", 8.0, "elsewhere", 8.0)
	got, _ := b.Results(t.Context(), b.gate, b.facts)
	if n := got["cluster1"].Shapes[0].Largest; n != gate.Known(6) {
		t.Errorf("the best node of cluster1 has %+v", n)
	}
}

// Series of clusters that nobody manages are no cluster's, and several of them no
// contradiction; to the fleet they count.
func TestSeriesOfUnknownClusters(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{Conditions: []v1alpha1.GateCondition{{Name: "budget", Query: `budget`, Scope: v1alpha1.ScopeFleet}}})
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: string(v1alpha1.MatchLabel), Key: "prometheus"}, b.source)
	scheme := runtime.NewScheme()
	if err := clusterv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", Labels: map[string]string{"prometheus": "eu"}}}).Build()
	b.source.responses["floor("] = series("eu", 3.0, "us", 4.0, "asia", 5.0)
	b.source.responses["budget"] = series("us", 0.0, "asia", 1.0)
	got, fleet := b.Results(t.Context(), b.gate, b.facts)
	if fleet.Incomplete || fleet.Conditions[0].Number != gate.Known(1) {
		t.Errorf("two clusters that nobody manages: %+v", fleet)
	}
	if n := got["cluster1"].Shapes[0].Fit; n != gate.Known(3) {
		t.Errorf("cluster1 is eu, and has room for %+v", n)
	}
}

// A workload is rejected for good only on answers without doubt.
func TestDoubtfulAnswers(t *testing.T) {
	partly := series("cluster1", 0.0)
	partly.Partial = true
	for name, tc := range map[string]struct {
		fit  query.Result
		err  error
		want bool
	}{
		"none": {fit: series("cluster1", 0.0)}, "no number": {fit: series("cluster1", 0.0, "cluster2", math.NaN()), want: true},
		"two for one cluster": {fit: series("cluster1", 0.0, "cluster1", 1.0), want: true}, "in part": {fit: partly, want: true},
		"not answered": {fit: series("cluster1", 0.0), err: errors.New("timeout"), want: true},
	} {
		b := newFixture(v1alpha1.PlacementGateSpec{})
		b.source.responses["floor("], b.source.responses["sample_timestamp"] = tc.fit, series("cluster1", b.unixAt(-5), "cluster2", b.unixAt(-7))
		b.Results(t.Context(), b.gate, b.facts)
		b.source.err = tc.err
		b.add(time.Minute)
		if _, fleet := b.Results(t.Context(), b.gate, b.facts); fleet.Incomplete != tc.want {
			t.Errorf("%s: doubtful %t, want %t (%+v)", name, fleet.Incomplete, tc.want, fleet)
		}
	}
}

func TestQuotaOfAWorkersQueue(t *testing.T) {
	const queue, kueue = "floor(", "count by (cluster) (cluster_queue:"
	quota := func(b *fixture) map[string]gate.ShapeMetrics {
		b.facts.Remote, b.facts.ClusterQueue = true, "cq"
		got, _ := b.Results(t.Context(), b.gate, b.facts)
		return map[string]gate.ShapeMetrics{"cluster1": got["cluster1"].Shapes[0], "cluster2": got["cluster2"].Shapes[0]}
	}
	exact := `sum by (cluster) (cluster_queue:kueue_unreserved_quota:max{cluster_queue="cq",flavor=~".+",resource="nvidia.com/gpu"}) or ` +
		`sum by (cluster) (cluster_queue:kueue_unreserved_quota:max{cluster_queue="cq",resource="nvidia.com/gpu"})`
	for _, tc := range []struct {
		name    string
		queue   query.Result
		kueue   query.Result
		partial bool
		quota   gate.Number
		noQuota bool
	}{
		{"known", series("cluster1", 12.0), series("cluster1", 3.0), false, gate.Known(12), false},
		{"no such queue", series(), series("cluster1", 3.0), false, gate.Number{}, true},
		{"no metrics of Kueue's", series(), series("cluster2", 3.0), false, gate.Number{}, false},
		{"may borrow without limit", series("cluster1", math.Inf(1)), series("cluster1", 3.0), false, gate.Number{Value: math.Inf(1)}, false},
		{"an answer in part says nothing by its absence", series(), series("cluster1", 3.0), true, gate.Number{}, false},
	} {
		b := newFixture(v1alpha1.PlacementGateSpec{})
		tc.queue.Partial = tc.partial
		b.source.responses[queue] = series("cluster1", 3.0)
		b.source.responses[exact], b.source.responses[kueue] = tc.queue, tc.kueue
		if got := quota(b)["cluster1"]; got.Quota != tc.quota || got.QueueMissing != tc.noQuota {
			t.Errorf("%s: quota %+v, none %t, want %+v, %t; asked %q", tc.name, got.Quota, got.QueueMissing, tc.quota, tc.noQuota, b.source.queries)
		}
	}
	// A failure takes nothing back that was known, and what was never known is no leave.
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.responses["floor("], b.source.responses["sample_timestamp"] = series("cluster1", 3.0), series("cluster1", b.unixAt(-5))
	b.source.responses[exact], b.source.responses[kueue] = series(), series("cluster1", 3.0)
	quota(b)
	b.source.failing = "unreserved_quota"
	b.add(time.Minute)
	b.refreshAll()
	if !quota(b)["cluster1"].QueueMissing {
		t.Error("the queue that cluster1 lacks is not there because a question about it failed")
	}
	again := newFixture(v1alpha1.PlacementGateSpec{})
	again.source.responses, again.source.failing, again.facts = b.source.responses, `flavor=~`, b.facts
	if got, fleet := again.Results(t.Context(), again.gate, again.facts); !got["cluster1"].Shapes[0].QuotaFailed || got["cluster1"].Shapes[0].QueueMissing || fleet.Problem == "" {
		t.Errorf("quota that nobody ever told is neither enough nor none: %+v, problem %q", got["cluster1"], fleet.Problem)
	}
	own := newFixture(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Quota: `my_quota`}})
	own.source.responses[kueue] = series("cluster1", 3.0, "cluster2", 3.0)
	own.source.responses["my_quota"] = series("cluster1", 1.0)
	if got := quota(own); got["cluster1"].Quota != gate.Known(1) || got["cluster2"].QueueMissing {
		t.Errorf("absent from a query of the gate's own means unknown: %+v", got)
	}
}

func TestLastGoodAnswersAreHeldWithTheirAge(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5))
	sampled := b.clock.now().Add(-5 * time.Second)
	b.Results(t.Context(), b.gate, b.facts)
	b.source.err = errors.New("connection refused")
	b.add(time.Minute)
	got, fleet := b.Results(t.Context(), b.gate, b.facts)
	if got["cluster1"].Shapes[0].Fit != gate.Known(3) || !got["cluster1"].SampledAt.Equal(sampled) {
		t.Errorf("the last good answer and its sample time must be kept: %+v", got["cluster1"])
	}
	if !strings.Contains(fleet.Problem, "connection refused") {
		t.Errorf("problem %q", fleet.Problem)
	}
}

// What ranks clusters is held no longer than what says that they have room.
func TestRankingForgetsOldAnswers(t *testing.T) {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.source.responses["free_devices:sum"] = series("cluster1", 24.0)
	headroom := func() gate.Number {
		got, _ := b.Results(t.Context(), b.gate, b.facts)
		return got["cluster1"].Shapes[0].Headroom
	}
	headroom()
	b.source.failing = "free_devices:sum"
	b.add(timing.DefaultMaxSampleAge)
	b.refreshAll()
	if got := headroom(); got != gate.Known(24) {
		t.Errorf("headroom %+v, want 24 as held", got)
	}
	b.add(time.Second)
	b.refreshAll()
	if got := headroom(); got.Known {
		t.Errorf("nobody answers it for two minutes, and it is %+v", got)
	}
}

func TestHostileFactsCannotChangeAQuestion(t *testing.T) {
	const hostile = `a"} or vector(1) #`
	for _, tc := range []struct{ query, want string }{
		{`sum by (cluster) (quota{namespace="$namespace"})`, `sum by (cluster) (quota{namespace="a\"} or vector(1) #"})`},
		{`sum by (cluster) (quota{zone="$node_selector_zone",tier="$flavor_label_tier"})`,
			`sum by (cluster) (quota{tier="a\"} or vector(1) #",zone="a\"} or vector(1) #"})`},
		{`sum by (cluster) (quota{zone="$node_selector_absent"})`, `sum by (cluster) (quota{zone=~".+"})`},
	} {
		b := newFixture(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.query}})
		b.facts.Namespace = hostile
		b.facts.PodSets[0].NodeSelector = map[string]string{"zone": hostile}
		b.facts.PodSets[0].FlavorLabels = map[string]string{"tier": hostile}
		b.Results(t.Context(), b.gate, b.facts)
		if !slices.Contains(b.source.queries, tc.want) {
			t.Errorf("%s\nasked %q\nwant %s", tc.query, b.source.queries, tc.want)
		}
	}
}
