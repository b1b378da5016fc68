package querycache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// noon is the time at which every test starts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock that tests advance.
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

// fakeSource returns the response of the first key that the expression contains, and
// records every expression.
type fakeSource struct {
	mu sync.Mutex
	// fitTakes is the time by which each fit query advances the clock.
	clock     *clock
	fitTakes  time.Duration
	responses map[string]query.Result
	// err fails every query. failing fails those whose expression contains it.
	err     error
	failing string
	queries []string
}

func (s *fakeSource) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, expr)
	if strings.Contains(expr, "floor(") {
		s.clock.add(s.fitTakes)
	}
	if s.err != nil {
		return query.Result{}, s.err
	}
	if s.failing != "" && strings.Contains(expr, s.failing) {
		return query.Result{}, errors.New("too heavy")
	}
	for key, response := range s.responses {
		if strings.Contains(expr, key) {
			return response, nil
		}
	}
	return query.Result{}, nil
}

// queryCounts returns the number of queries by expression.
func (s *fakeSource) queryCounts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, expr := range s.queries {
		n[expr]++
	}
	return n
}

// series builds a response from pairs of cluster name and value. An empty name stands
// for a series without the cluster label.
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

// fixture is a cache with a fake source, a gate over two clusters and a workload that
// requests two devices for one pod.
type fixture struct {
	*Cache
	clock  *clock
	source *fakeSource
	gate   gatestate.Gate
	facts  shape.Facts
}

func newFixture(spec v1alpha1.PlacementGateSpec) *fixture {
	if spec.Hold.Mode == "" {
		spec.Queries.EmptyFit = "empty_pods" // the fake source tells queries apart by a part of them
	}
	c := &clock{time: noon}
	f := &fixture{source: &fakeSource{responses: map[string]query.Result{}, clock: c}, clock: c}
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, f.source)
	f.Cache = New(sources, ledger.New(time.Second, time.Hour), nil, c.now)
	spec.SourceRef.Name = "thanos"
	f.gate = gatestate.Gate{Name: "gpu", Spec: spec, Clusters: []gatestate.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}}
	f.facts = shape.Facts{UID: "uid", Namespace: "team-a", Name: "job", Queue: "gpu", PodSets: podSets("NVIDIA-L4", 2)}
	return f
}

// newRequirementFixture has a requirement of each scope. Both are met, and cluster1 has room.
func newRequirementFixture() *fixture {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15, Requirements: []v1alpha1.GateRequirement{
		{Name: "power", Query: `power_ok`, Scope: v1alpha1.ScopeCluster}, {Name: "freeze", Query: `freeze`, Scope: v1alpha1.ScopeFleet},
	}})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.source.responses["power_ok"] = series("cluster1", 1.0)
	f.source.responses["freeze"] = series("", 1.0)
	return f
}

// newOpenFixture has a gate with onStale Open. Both clusters have room, and the requirement
// "freeze" of the workload's namespace is not met.
func newOpenFixture() *fixture {
	f := newFixture(v1alpha1.PlacementGateSpec{
		PeriodSeconds: 15, Freshness: v1alpha1.GateFreshness{OnStale: v1alpha1.StaleOpen},
		Requirements: []v1alpha1.GateRequirement{{Name: "freeze", Query: `freeze{ns="$namespace"}`, Scope: v1alpha1.ScopeFleet}},
	})
	f.source.responses["floor("], f.source.responses["freeze"] = series("cluster1", 3.0, "cluster2", 3.0), series("", 0.0)
	f.setSampleAge(5)
	return f
}

// podSets returns one pod set with one pod.
func podSets(model string, devicesPerPod int64) []shape.PodSet {
	return []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: devicesPerPod, Pods: 1}}
}

// setSampleAge sets the age of both clusters' samples in seconds.
func (f *fixture) setSampleAge(seconds float64) {
	f.source.responses["sample_timestamp"] = series("cluster1", f.unixIn(-seconds), "cluster2", f.unixIn(-seconds))
}

// unixIn returns the time in the given number of seconds as a sample value.
func (f *fixture) unixIn(seconds float64) float64 { return float64(f.clock.now().Unix()) + seconds }

// mapByLabel makes the series of the source name clusters by the label "prometheus" of
// their ManagedCluster.
func (f *fixture) mapByLabel(hub client.Reader) {
	f.hub = hub
	f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: string(v1alpha1.MatchLabel), Key: "prometheus"}, f.source)
}

// results returns the results for the workload.
func (f *fixture) results(t *testing.T) (map[string]gate.Candidate, gate.Fleet) {
	t.Helper()
	candidates, fleet := f.Candidates(t.Context(), f.gate, f.facts)
	results := map[string]gate.Candidate{}
	for _, c := range candidates {
		results[c.Name] = c
	}
	return results, fleet
}

// fit returns the fit of cluster1 for the workload.
func (f *fixture) fit(t *testing.T) gate.Number {
	t.Helper()
	clusters, _ := f.results(t)
	return clusters["cluster1"].Shapes[0].Fit
}

// sampledAt returns the sample time of cluster1.
func (f *fixture) sampledAt(t *testing.T) time.Time {
	t.Helper()
	clusters, _ := f.results(t)
	return clusters["cluster1"].SampledAt
}

// requirements returns the requirement of cluster1 and the requirement of the fleet.
func (f *fixture) requirements(t *testing.T) (cluster, fleet gate.RequirementResult) {
	t.Helper()
	clusters, all := f.results(t)
	return clusters["cluster1"].Requirements[0], all.Requirements[0]
}

// decide decides the workload with the current results.
func (f *fixture) decide(t *testing.T) gate.Decision {
	t.Helper()
	candidates, fleet := f.Candidates(t.Context(), f.gate, f.facts)
	return gate.Decide(f.facts, candidates, fleet, ledger.View{}, gate.RulesOf(&f.gate.Spec), 1, f.clock.now())
}

func (f *fixture) wantPending(t *testing.T, when, reason string) {
	t.Helper()
	if d := f.decide(t); d.State != gate.Pending || d.Reason != reason {
		t.Errorf("%s: got %s %s: %s, want Pending %s", when, d.State, d.Reason, d.Message, reason)
	}
}

// outcome is what a Ready decision rests on.
type outcome struct {
	Cluster string
	Room    gate.Number
	// WithoutMetrics: no cluster has usable metrics.
	WithoutMetrics bool
	QuotaUnknown   bool
	// IgnoresFreeze: the decision ignores the requirement "freeze", which has no result.
	IgnoresFreeze bool
}

func (f *fixture) wantReady(t *testing.T, when string, want outcome) {
	t.Helper()
	d := f.decide(t)
	if d.State != gate.Ready {
		t.Errorf("%s: got %s %s: %s, want Ready", when, d.State, d.Reason, d.Message)
		return
	}
	v := d.Verdicts[slices.IndexFunc(d.Verdicts, func(v gate.Verdict) bool { return v.Cluster == d.Order[0] })]
	got := outcome{
		Cluster: v.Cluster, Room: v.Room, WithoutMetrics: v.WithoutMetrics, QuotaUnknown: v.QuotaUnknown,
		IgnoresFreeze: strings.Contains(d.Message, "requirement freeze"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s (-want +got):\n%s", when, d.Message, diff)
	}
}

// refresh refreshes every result of the workload's key that is older than now.
func (f *fixture) refresh() {
	f.Refresh(f.KeyOf(f.gate, f.facts), f.clock.now())
	f.refreshNext(context.Background(), f.refreshQueue())
}

// runRounds decides and refreshes every 15 s for a duration. The samples stay 5 s old.
func (f *fixture) runRounds(t *testing.T, d time.Duration) {
	t.Helper()
	for range d / (15 * time.Second) {
		f.clock.add(15 * time.Second)
		f.setSampleAge(5)
		f.results(t)
		f.refresh()
	}
}

// refreshQueue returns the queue of keys to refresh.
func (f *fixture) refreshQueue() workqueue.TypedInterface[gatestate.QueryKey] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queueOf("thanos")
}

// failureMessage runs a cleanup and returns the message for the gate.
func (f *fixture) failureMessage() string {
	message := ""
	f.OnFaults(func(faults map[string]gatestate.QueryFaults) { message = faults["gpu"].Failing })
	f.cleanUp()
	return message
}

// ledgerEntry returns the reservation of another workload with the same pod sets.
func (f *fixture) ledgerEntry() ledger.Entry {
	return ledger.Entry{UID: "other", Cluster: "cluster1", PodSets: f.facts.PodSets, DebitedAt: f.clock.now()}
}

// refreshQueued refreshes the next key in the queue.
func (f *fixture) refreshQueued(t *testing.T) {
	t.Helper()
	if f.refreshQueue().Len() == 0 {
		t.Fatal("no key is queued")
	}
	f.refreshNext(t.Context(), f.refreshQueue())
}
