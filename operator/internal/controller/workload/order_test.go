package workload

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A workload that has room does not pass one that ranks before and waits for the same devices.
// Its check stays as it is until its turn comes.
func TestWorkloadWaitsForItsTurn(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(onlyCluster1)
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	urgent := waitqueue.Entry{Workload: types.NamespacedName{Namespace: "team-b", Name: "urgent"}, Key: gatestate.QueryKey{Gate: "gpu", Facts: "eight devices"},
		Rank: ledger.Rank{Priority: 1000, Since: fixture.Noon, Name: "team-b/urgent"}, PodSets: b.look().Request.Facts.PodSets}
	b.engine.Waiting.Add(urgent)
	b.reconcile()
	if c := b.check(); c.State != kueue.CheckStatePending || c.Message != "" || len(b.workload().Status.NominatedClusterNames) > 0 {
		t.Fatalf("check %s %q, nominated %v, want Pending without a message", c.State, c.Message, b.workload().Status.NominatedClusterNames)
	}
	if d := *lifecycle.Next(b.look()).Decision; d.Reason != gate.ReasonQueued || d.Message != "there is room, but team-b/urgent is decided first" {
		t.Errorf("decision %s %q, want %s with the name of the urgent workload", d.Reason, d.Message, gate.ReasonQueued)
	}
	b.expectExplained()
	b.engine.Waiting.Remove(urgent.Workload)
	b.expectExplained()
	b.clock.add(time.Second)
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) != 1 || got[0] != "cluster1" {
		t.Errorf("nominated %v after the urgent workload left, want cluster1", got)
	}
}

// Without MultiKueue, too, an explanation says for which workload this one waits.
func TestExplanationOfAQueuedWorkloadWithoutMultiKueue(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.PendingWorkload(fixture.Noon))
	b.engine.Waiting.Add(waitqueue.Entry{Workload: types.NamespacedName{Namespace: "team-a", Name: "urgent"}, Key: gatestate.QueryKey{Gate: "gpu", Facts: "eight devices"},
		Rank: ledger.Rank{Priority: 1000, Since: fixture.Noon, Name: "team-a/urgent"}, PodSets: b.look().Request.Facts.PodSets})
	b.expectExplained()
}

// controller-runtime logs a panic and retries with growing pauses. Other workloads of the gate must
// not wait for that.
func TestPanicEndsTheTurn(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	b.clock.add(timing.DefaultPeriod)
	b.engine.Waiting.StartWakeUps()
	for _, key := range b.refreshed {
		b.engine.Waiting.Refreshed(key, b.now())
	}
	if !b.engine.Waiting.HasTurn(b.key) {
		t.Fatal("the workload has no turn")
	}
	b.client = nil
	defer func() {
		if recover() == nil {
			t.Error("Reconcile swallowed the panic")
		}
		if b.engine.Waiting.HasTurn(b.key) {
			t.Error("the workload keeps its turn")
		}
	}()
	_, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key})
	t.Errorf("Reconcile returned %v", err)
}
