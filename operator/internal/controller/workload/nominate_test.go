package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// roomy bench: two clusters of one size with much room, sampled just now.
func roomy() *bench {
	b := newBench(v1alpha1.PlacementGateSpec{})
	b.source.answers["floor("] = series("cluster1", 9.0, "cluster2", 9.0)
	b.source.answers["sample_timestamp"] = series("cluster1", b.at(-5), "cluster2", b.at(-5))
	return b
}

// A nomination that nobody takes up holds devices for the time to live, not for ever.
func TestDebitsOfANomination(t *testing.T) {
	for name, tc := range map[string]struct {
		sent, reserved time.Duration // ago
		want           map[string]int64
	}{
		"of a minute ago":     {time.Minute, time.Minute, map[string]int64{"cluster1": 2, "cluster2": 2}},
		"that had its time":   {61 * time.Minute, 61 * time.Minute, map[string]int64{"cluster2": 2}},
		"of an older attempt": {61 * time.Minute, 60 * time.Minute, map[string]int64{"cluster1": 2, "cluster2": 2}},
	} {
		b := roomy()
		now := b.clock.now()
		wl := nominating(b.holder(now.Add(-tc.reserved)), "cluster1")
		r, s := b.operator(t, dispatched(wl, gate.Dispatch{}.Begin([]string{"cluster1"}, "", now.Add(-tc.sent))))
		s.usable = []string{"cluster1", "cluster2"}
		r.reserve(t.Context(), s, b.gate, b.facts, 1, func(gate.Decision) []string { return []string{"cluster1", "cluster2", "full"} })
		if diff := cmp.Diff(tc.want, b.ledger.Size()); diff != "" {
			t.Errorf("widening a nomination %s: devices held (-want +got):\n%s", name, diff)
		}
	}
}

// An evicted workload need not go again where it was. Explain tells of the decision
// that follows, not of another.
func TestExplainTellsTheDecisionThatFollows(t *testing.T) {
	for _, nominated := range [][]string{nil, {"cluster2"}} {
		first := map[string]bool{}
		for evictions := range int32(20) {
			b := roomy()
			wl := nominating(b.holder(b.clock.now()), nominated...)
			wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: evictions}}}
			r, s := b.operator(t, wl)
			s.usable = []string{"cluster1", "cluster2"}
			e := &gate.Explanation{}
			r.explainDecision(t.Context(), s, b.gate, e)
			r.reserve(t.Context(), s, b.gate, e.Facts, 1, func(d gate.Decision) []string {
				if diff := cmp.Diff(d.Order, e.Decision.Order); diff != "" {
					t.Errorf("nominated to %v after %d evictions (-decided +explained):\n%s", nominated, evictions, diff)
				}
				first[d.Order[0]] = true
				return nil
			})
		}
		if want := max(1, 2-len(nominated)); len(first) != want || !first["cluster2"] {
			t.Errorf("nominated to %v it would go to %v", nominated, first)
		}
	}
}
