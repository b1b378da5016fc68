package querycache

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// clock that tests move.
type clock struct {
	mu   sync.Mutex
	time time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
}

// recorded answers by the first key that the expression contains, and counts.
type recorded struct {
	mu sync.Mutex
	// clock moves on by takes while it finds what fits.
	clock   *clock
	takes   time.Duration
	answers map[string]query.Result
	err     error
	// fails is what the expressions contain that fail.
	fails string
	asked []string
}

func (s *recorded) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, expr)
	if strings.Contains(expr, "floor(") {
		s.clock.add(s.takes)
	}
	if s.err != nil {
		return query.Result{}, s.err
	}
	if s.fails != "" && strings.Contains(expr, s.fails) {
		return query.Result{}, errors.New("too heavy")
	}
	for key, answer := range s.answers {
		if strings.Contains(expr, key) {
			return answer, nil
		}
	}
	return query.Result{}, nil
}

// times that each expression was asked.
func (s *recorded) times() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, expr := range s.asked {
		n[expr]++
	}
	return n
}

func series(values ...any) query.Result {
	var a query.Result
	for i := 0; i < len(values); i += 2 {
		labels := map[string]string{}
		if name := values[i].(string); name != "" {
			labels["cluster"] = name
		}
		a.Samples = append(a.Samples, query.Sample{Labels: labels, Value: values[i+1].(float64)})
	}
	return a
}

type bench struct {
	*Cache
	*clock
	source *recorded
	gate   registry.Gate
	facts  shape.Facts
}

func newBench(spec v1alpha1.PlacementGateSpec) *bench {
	c := &clock{time: noon}
	b := &bench{source: &recorded{answers: map[string]query.Result{}, clock: c}, clock: c}
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, b.source)
	b.Cache = New(sources, ledger.New(time.Second, time.Hour), nil, c.now)
	spec.SourceRef.Name = "thanos"
	b.gate = registry.Gate{Name: "gpu", Spec: spec, Clusters: []registry.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}}
	b.facts = shape.Facts{UID: "uid", Namespace: "team-a", Name: "job", Queue: "gpu",
		PodSets: []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 2, Pods: 1}}}
	return b
}

func (b *bench) at(seconds float64) float64 { return float64(b.clock.now().Unix()) + seconds }

// round of questions about the workload's shape that are newer than now.
func (b *bench) round() {
	b.Refresh(b.KeyOf(b.gate, b.facts), b.clock.now())
	b.refreshNext(context.Background(), b.due())
}

// due to be renewed: shapes of the source.
func (b *bench) due() workqueue.TypedInterface[Key] {
	b.Cache.mu.Lock()
	defer b.Cache.mu.Unlock()
	if b.queues["thanos"] == nil {
		b.queues["thanos"] = workqueue.NewTyped[Key]()
	}
	return b.queues["thanos"]
}

func TestOneQuestionPerShapeAndRound(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	b.source.answers["floor("] = series("cluster1", 3.0)
	for range 5 {
		b.Results(t.Context(), b.gate, b.facts)
	}
	if got := len(b.source.asked); got != 5 {
		t.Errorf("five workloads of one shape asked %d questions, want 5: %q", got, b.source.asked)
	}
	other := b.facts
	other.PodSets = []shape.PodSet{{Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 4, Pods: 1}}
	if b.Results(t.Context(), b.gate, other); len(b.source.asked) != 6 {
		t.Errorf("another size asks only what depends on it: %q", b.source.asked[5:])
	}
	b.add(time.Millisecond)
	if b.round(); len(b.source.asked) != 11 {
		t.Errorf("a new round asks anew, asked %d", len(b.source.asked))
	}
	if b.Results(t.Context(), b.gate, b.facts); len(b.source.asked) != 11 {
		t.Errorf("and its answers serve, asked %d", len(b.source.asked))
	}
}

// A slow or failing source is asked once for all that wait, not once for each.
func TestOneQuestionPerRoundOfASlowSource(t *testing.T) {
	for name, err := range map[string]error{"slow": nil, "slow and failing": errors.New("timeout")} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		b.source.answers["floor("] = series("cluster1", 3.0)
		b.source.takes, b.source.err = 1100*time.Millisecond, err
		for range 5 {
			b.Results(t.Context(), b.gate, b.facts)
		}
		for expr, n := range b.source.times() {
			if n > 1 && strings.Contains(expr, "floor(") {
				t.Errorf("%s: five workloads of one shape asked %s %d times", name, expr, n)
			}
		}
	}
}

func TestAnswersAreExplicit(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{Conditions: []v1alpha1.GateCondition{
		{Name: "power", Query: `power_ok`, Scope: v1alpha1.ScopeCluster}, {Name: "freeze", Query: `freeze`, Scope: v1alpha1.ScopeFleet}}})
	b.source.answers["floor("] = series("cluster1", 3.0, "cluster2", math.NaN())
	b.source.answers["sample_timestamp"] = series("cluster1", b.at(-5), "cluster2", b.at(-7))
	b.source.answers["power_ok"] = series("cluster1", 0.0, "cluster2", 1.0)
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
	b.source.answers["freeze"] = series("", 1.0)
	b.source.answers["floor("] = series("cluster1", 3.0, "cluster1", 4.0)
	b.add(time.Minute)
	got, fleet = b.Results(t.Context(), b.gate, b.facts)
	if c := fleet.Conditions[0]; c.Number != gate.Known(1) || got["cluster1"].Shapes[0].Fit.Known {
		t.Errorf("a series without cluster speaks for the fleet, two for one cluster for none: %+v %+v", fleet, got["cluster1"])
	}
}

// What a cluster's best node has is known whoever else has room: that may be no
// candidate, or one that a rule keeps out.
func TestTheBestNodeIsKnown(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	b.source.answers["floor("] = series("cluster1", 0.0, "cluster2", 5.0, "elsewhere", 9.0)
	b.source.answers["node_free_devices:max"] = series("cluster1", 6.0, "cluster2", 8.0, "elsewhere", 8.0)
	got, _ := b.Results(t.Context(), b.gate, b.facts)
	if n := got["cluster1"].Shapes[0].Largest; n != gate.Known(6) {
		t.Errorf("the best node of cluster1 has %+v", n)
	}
}

// Series of clusters that nobody manages are no cluster's, and several of them no
// contradiction; to the fleet they count.
func TestSeriesOfUnknownClusters(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{Conditions: []v1alpha1.GateCondition{{Name: "budget", Query: `budget`, Scope: v1alpha1.ScopeFleet}}})
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: string(v1alpha1.MatchLabel), Key: "prometheus"}, b.source)
	scheme := runtime.NewScheme()
	if err := clusterv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", Labels: map[string]string{"prometheus": "eu"}}}).Build()
	b.source.answers["floor("] = series("eu", 3.0, "us", 4.0, "asia", 5.0)
	b.source.answers["budget"] = series("us", 0.0, "asia", 1.0)
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
		b := newBench(v1alpha1.PlacementGateSpec{})
		b.source.answers["floor("], b.source.answers["sample_timestamp"] = tc.fit, series("cluster1", b.at(-5), "cluster2", b.at(-7))
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
	quota := func(b *bench) map[string]gate.ShapeMetrics {
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
		b := newBench(v1alpha1.PlacementGateSpec{})
		tc.queue.Partial = tc.partial
		b.source.answers[queue] = series("cluster1", 3.0)
		b.source.answers[exact], b.source.answers[kueue] = tc.queue, tc.kueue
		if got := quota(b)["cluster1"]; got.Quota != tc.quota || got.QueueMissing != tc.noQuota {
			t.Errorf("%s: quota %+v, none %t, want %+v, %t; asked %q", tc.name, got.Quota, got.QueueMissing, tc.quota, tc.noQuota, b.source.asked)
		}
	}
	// A failure takes nothing back that was known, and what was never known is no leave.
	b := newBench(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.answers["floor("], b.source.answers["sample_timestamp"] = series("cluster1", 3.0), series("cluster1", b.at(-5))
	b.source.answers[exact], b.source.answers[kueue] = series(), series("cluster1", 3.0)
	quota(b)
	b.source.fails = "unreserved_quota"
	b.add(time.Minute)
	b.round()
	if !quota(b)["cluster1"].QueueMissing {
		t.Error("the queue that cluster1 lacks is not there because a question about it failed")
	}
	again := newBench(v1alpha1.PlacementGateSpec{})
	again.source.answers, again.source.fails, again.facts = b.source.answers, `flavor=~`, b.facts
	if got, fleet := again.Results(t.Context(), again.gate, again.facts); !got["cluster1"].Shapes[0].QuotaFailed || got["cluster1"].Shapes[0].QueueMissing || fleet.Problem == "" {
		t.Errorf("quota that nobody ever told is neither enough nor none: %+v, problem %q", got["cluster1"], fleet.Problem)
	}
	own := newBench(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Quota: `my_quota`}})
	own.source.answers[kueue] = series("cluster1", 3.0, "cluster2", 3.0)
	own.source.answers["my_quota"] = series("cluster1", 1.0)
	if got := quota(own); got["cluster1"].Quota != gate.Known(1) || got["cluster2"].QueueMissing {
		t.Errorf("absent from a query of the gate's own means unknown: %+v", got)
	}
}

func TestLastGoodAnswersAreHeldWithTheirAge(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	b.source.answers["floor("] = series("cluster1", 3.0)
	b.source.answers["sample_timestamp"] = series("cluster1", b.at(-5))
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
	b := newBench(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	b.source.answers["floor("] = series("cluster1", 3.0)
	b.source.answers["free_devices:sum"] = series("cluster1", 24.0)
	headroom := func() gate.Number {
		got, _ := b.Results(t.Context(), b.gate, b.facts)
		return got["cluster1"].Shapes[0].Headroom
	}
	headroom()
	b.source.fails = "free_devices:sum"
	b.add(timing.DefaultMaxSampleAge)
	b.round()
	if got := headroom(); got != gate.Known(24) {
		t.Errorf("headroom %+v, want 24 as held", got)
	}
	b.add(time.Second)
	b.round()
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
		b := newBench(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.query}})
		b.facts.Namespace = hostile
		b.facts.PodSets[0].NodeSelector = map[string]string{"zone": hostile}
		b.facts.PodSets[0].FlavorLabels = map[string]string{"tier": hostile}
		b.Results(t.Context(), b.gate, b.facts)
		if !slices.Contains(b.source.asked, tc.want) {
			t.Errorf("%s\nasked %q\nwant %s", tc.query, b.source.asked, tc.want)
		}
	}
}
