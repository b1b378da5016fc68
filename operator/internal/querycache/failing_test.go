package querycache

import (
	"errors"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// newOpen is a bench with onStale Open whose team-a is frozen.
func newOpen() *fixture {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15, Freshness: v1alpha1.GateFreshness{OnStale: v1alpha1.StaleOpen}, Conditions: []v1alpha1.GateCondition{
		{Name: "freeze", Query: `freeze{ns="$namespace"}`, Scope: v1alpha1.ScopeFleet}}})
	b.source.responses["floor("], b.source.responses["freeze"] = series("cluster1", 3.0, "cluster2", 3.0), series("", 0.0)
	b.samples()
	return b
}

// samples of now.
func (b *fixture) samples() {
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5), "cluster2", b.unixAt(-5))
}

// decides about the bench's workload.
func (b *fixture) decides(t *testing.T) gate.Decision {
	t.Helper()
	got, fleet := b.Results(t.Context(), b.gate, b.facts)
	var list []gate.Candidate
	for _, c := range b.gate.Clusters {
		a := got[c.Name]
		list = append(list, gate.Candidate{Name: c.Name, SampledAt: a.SampledAt, Shapes: a.Shapes, Conditions: a.Conditions})
	}
	return gate.Decide(b.facts, list, fleet, ledger.View{}, gate.RulesOf(&b.gate.Spec), 1, b.clock.now())
}

// waits says that the workload does, for that reason.
func (b *fixture) waits(t *testing.T, name, reason string) {
	t.Helper()
	if d := b.decides(t); d.State != gate.Pending || d.Reason != reason {
		t.Errorf("%s: %s %s: %s, want Pending %s", name, d.State, d.Reason, d.Message, reason)
	}
}

// passes says that the workload does, with that message.
func (b *fixture) passes(t *testing.T, name, message string) {
	t.Helper()
	if d := b.decides(t); d.State != gate.Ready || d.Message != message {
		t.Errorf("%s: %s: %s, want Ready: %s", name, d.State, d.Message, message)
	}
}

// rounds of questions for that long.
func (b *fixture) rounds(t *testing.T, long time.Duration) {
	t.Helper()
	for range long / (15 * time.Second) {
		b.add(15 * time.Second)
		b.samples()
		b.Results(t.Context(), b.gate, b.facts)
		b.refreshAll()
	}
}

// What one workload's answers were tells nothing of how long another's question fails.
func TestOneFailureForgivesNothing(t *testing.T) {
	const unmeasured = "may take it: nothing is known of any cluster, and onStale is Open"
	const unasked = "nobody answers condition freeze, and onStale is Open"
	for _, tc := range []struct {
		name string
		fail func(*fixture)
		then string
	}{
		{"a condition of another namespace", func(b *fixture) { b.facts.Namespace, b.source.failing = "team-b", `freeze{ns="team-b"}` },
			"cluster1 can take it: room for 3 such pods there, " + unasked},
		{"fit of another size", func(b *fixture) {
			b.source.responses["freeze"] = series("", 1.0)
			b.facts.PodSets, b.source.failing = []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", DevicesPerPod: 8, Pods: 100}}, "/ 8"
		}, "cluster1 " + unmeasured},
		{"the source, asked for another namespace", func(b *fixture) { b.facts.Namespace, b.source.err = "team-b", errors.New("timeout") },
			"cluster1 may take it: nothing is known of any cluster, " + unasked},
	} {
		b := newOpen()
		b.rounds(t, 10*time.Minute)
		b.waits(t, tc.name+", as long as all is answered", gate.ReasonFleetConditionUnmet)
		tc.fail(b)
		b.add(time.Minute)
		b.samples()
		b.waits(t, tc.name, gate.ReasonNoMetrics)
		b.rounds(t, 5*time.Minute)
		b.waits(t, tc.name+", for as long as it may be", gate.ReasonNoMetrics)
		b.rounds(t, 15*time.Second)
		b.passes(t, tc.name+", for longer", tc.then)
		b.facts.Namespace = "team-c"
		if b.source.err != nil {
			b.passes(t, tc.name+", where nothing else is asked either", tc.then)
		}
	}
}

// A failure of what only ranks says nothing of who may go.
func TestWhatRanksTakesNoForgivenessBack(t *testing.T) {
	b := newOpen()
	b.source.failing = "free_devices:sum"
	if _, fleet := b.Results(t.Context(), b.gate, b.facts); fleet.Problem == "" || !fleet.FailingSince.IsZero() {
		t.Errorf("all that decides is answered: %+v", fleet)
	}
}

// Gates that share a question hold its answer for as long as the most patient of them.
func TestASharedAnswerIsKeptForAll(t *testing.T) {
	for _, last := range []string{"asked by the other last", "served to the other first"} {
		b := newOpen()
		b.gate.Spec.Freshness.MaxSampleAgeSeconds, b.gate.Spec.Freshness.UnknownAfterSeconds = 600, 900
		mine, other := b.gate, b.gate
		other.Name, other.Spec.Freshness.OnStale, other.Spec.Freshness.MaxSampleAgeSeconds, other.Spec.Freshness.UnknownAfterSeconds = "other", v1alpha1.StaleClosed, 120, 300
		if last == "served to the other first" {
			b.gate = other
			b.decides(t)
			b.gate = mine
			b.decides(t)
		} else {
			b.decides(t)
			b.gate = other
			b.add(20 * time.Second)
			b.decides(t)
		}
		b.add(3 * time.Minute)
		b.cleanUp()
		b.gate, b.source.err = mine, errors.New("timeout")
		b.waits(t, last, gate.ReasonFleetConditionUnmet)
	}
}

// That nobody answers about quota takes nothing from what is known of the room.
func TestQuotaThatFailsIsNotRoomThatFails(t *testing.T) {
	const unknown = "cluster1 can take it: room for 3 such pods there, as far as its queue has quota (QuotaUnknown)"
	for _, before := range []bool{false, true} {
		b := newOpen()
		b.facts.Remote, b.facts.ClusterQueue = true, "cq"
		b.source.responses["freeze"], b.source.responses["unreserved_quota"] = series("", 1.0), series("cluster1", 12.0, "cluster2", 12.0)
		if before {
			b.passes(t, "as long as it is answered", "cluster1 can take it: room for 3 such pods there")
		}
		b.source.failing = "unreserved_quota"
		b.rounds(t, 5*time.Minute)
		b.waits(t, "as long as it may be", gate.ReasonNoMetrics)
		b.rounds(t, 30*time.Second)
		b.passes(t, "for longer", unknown)
		b.source.responses["floor("] = series("cluster1", 0.0, "cluster2", 0.0)
		b.rounds(t, 30*time.Second)
		b.waits(t, "and no room is no room", gate.ReasonNoRoom)
		b.gate.Spec.Freshness.OnStale, b.gate.Generation = v1alpha1.StaleClosed, 2
		b.source.responses["floor("] = series("cluster1", 3.0, "cluster2", 3.0)
		b.rounds(t, 5*time.Minute)
		want := "no cluster can take it; cluster1 has no answer about its queue's quota, cluster2 has no answer about its queue's quota; quota: too heavy"
		if d := b.decides(t); d.State != gate.Pending || d.Message != want {
			t.Errorf("closed: %s: %s, want Pending: %s", d.State, d.Message, want)
		}
	}
}

// What only tells what is missing is no reason to doubt that nobody has room.
func TestTheMessagesQuestionMayFail(t *testing.T) {
	b := newOpen()
	b.source.responses["freeze"], b.source.responses["floor("] = series("", 1.0), series("cluster1", 0.0, "cluster2", 0.0)
	b.source.failing = "node_free_devices:max"
	d := b.decides(t)
	if want := "no cluster has 2 free NVIDIA-L4 on one node: best is cluster1 with 0 in all"; !d.NoRoomAnywhere || d.Message != want {
		t.Errorf("full %t: %s, want true: %s", d.NoRoomAnywhere, d.Message, want)
	}
	if got, want := b.told(), "not answered: largest: too heavy"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// A store that is dead for good leaves every answer in part, however often it is asked.
func TestAnAnswerInPartIsForgivenInTime(t *testing.T) {
	part := query.Result{Partial: true}
	without := func(names ...string) query.Result {
		a := query.Result{Failed: map[string]string{}}
		for _, name := range names {
			a.Failed[name] = "Unauthorized"
		}
		return a
	}
	no := series("", 0.0)
	no.Partial = true
	const ready = " can take it: room for 3 such pods there, nobody answers condition freeze, and onStale is Open"
	for _, scope := range []v1alpha1.ConditionScope{v1alpha1.ScopeFleet, v1alpha1.ScopeCluster} {
		b := newOpen()
		b.gate.Spec.Conditions[0].Scope = scope
		b.source.responses["freeze"] = series("cluster1", 1.0, "cluster2", 1.0)
		b.rounds(t, 10*time.Minute)
		b.source.responses["freeze"] = part
		b.rounds(t, 5*time.Minute)
		b.waits(t, string(scope)+", as long as it may be", gate.ReasonNoMetrics)
		b.rounds(t, 30*time.Second)
		b.passes(t, string(scope)+", for longer", "cluster1"+ready)
		b.source.err = errors.New("timeout")
		b.rounds(t, 30*time.Second)
		b.waits(t, string(scope)+", and then fails", gate.ReasonNoMetrics)
	}
	b := newOpen()
	b.source.failing = "freeze"
	b.rounds(t, 6*time.Minute)
	b.source.responses["freeze"], b.source.failing = part, ""
	b.add(time.Minute)
	b.samples()
	b.passes(t, "after it failed for as long", "cluster1"+ready)

	b = newOpen()
	b.source.responses["freeze"] = no
	b.rounds(t, time.Hour)
	b.waits(t, "a no, as far as all have answered", gate.ReasonNoMetrics)

	b = newOpen()
	b.gate.Spec.Conditions[0].Scope = v1alpha1.ScopeCluster
	b.source.responses["freeze"] = without("cluster2")
	b.rounds(t, 10*time.Minute)
	b.passes(t, "the endpoint of cluster2", "cluster2"+ready)
	b.source.responses["freeze"] = without("cluster1", "cluster2")
	b.gate.Clusters = b.gate.Clusters[:1]
	b.rounds(t, 30*time.Second)
	b.waits(t, "that of cluster1 not for so long", gate.ReasonNoMetrics)
	b.gate.Spec.Conditions[0].Scope, b.gate.Generation = v1alpha1.ScopeFleet, 2
	b.waits(t, "nor the fleet", gate.ReasonNoMetrics)
	b.rounds(t, 5*time.Minute)
	b.passes(t, "then it is", "cluster1"+ready)
}
