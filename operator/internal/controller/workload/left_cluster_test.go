package workload

import (
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// The nomination that completes the eviction of a moved workload is still there when the workload gets
// quota again, and MultiKueue may create a copy before the operator withdraws it. So the repair does not
// nominate the cluster that the workload left, as long as another one is connected.
func TestRepairAvoidsTheClusterThatWasLeft(t *testing.T) {
	for _, tc := range []struct {
		name         string
		disconnected string
		want         []string
	}{
		{"no room anywhere", "", []string{"cluster2"}},
		{"only the cluster that was left is connected", "cluster2", []string{"cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			if tc.disconnected != "" {
				b.disconnect(tc.disconnected)
			}
			wl, inactive := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), false
			wl.Spec.Active = &inactive
			fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
			b.create(fixture.WithRecord(wl, fixture.RecordOf(fixture.Noon, "cluster1").Reclaim("rebalance", "big waits", 0, fixture.Noon).Avoid("cluster1", fixture.Noon.Add(timing.MoveAvoidance), "was left for team-a/big")))
			b.clock.add(fixture.StuckAfter)
			for range 10 {
				b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
				b.reconcile()
				b.clock.add(20 * time.Second)
			}
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, tc.want) {
				t.Errorf("nominated %v, want %v", got, tc.want)
			}
		})
	}
}

// If the gate can't decide, a late nomination is widened to clusters of unknown room, but not to the one
// that the workload left.
func TestWideningAvoidsTheClusterThatWasLeft(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.putGate(func(g *gatestate.Gate) { g.Problem = "MetricsSource thanos does not exist" })
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-3*time.Minute)), "cluster2"),
		fixture.RecordOf(fixture.Noon.Add(-2*time.Minute), "cluster2").Reclaim("rebalance", "big waits", 0, fixture.Noon.Add(-4*time.Minute)).Woken().Avoid("cluster1", fixture.Noon.Add(timing.MoveAvoidance), "was left for team-a/big")))
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster2"}) {
		t.Errorf("nominated %v", got)
	}
}
