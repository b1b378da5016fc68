package workload

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// evictedJob is a workload of a Job that ran on cluster1 until its eviction began at noon.
func evictedJob() *kueue.Workload {
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour)))
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: types.UID("job")}}
	return wl
}

// Many workloads are evicted at once. MultiKueue completes one eviction after the other, so the last ones
// are not stuck.
func TestEvictionsInABacklogAreNotRepaired(t *testing.T) {
	for _, tc := range []struct {
		name     string
		repaired bool // a nomination completed the first eviction
		phase    lifecycle.Phase
	}{
		{"MultiKueue completed another one just now", false, lifecycle.PhaseEvicting},
		{"another one was stuck for as long", true, lifecycle.PhaseEvictionStuck},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const after = 30 * time.Second
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			first, cluster := evictedJob(), "cluster1"
			first.Status.ClusterName = &cluster
			for i := range first.Status.AdmissionChecks {
				first.Status.AdmissionChecks[i].State = kueue.CheckStateReady
			}
			fixture.SetCondition(first, kueue.WorkloadAdmitted, fixture.Noon.Add(-time.Minute))
			b.create(first)
			b.reconcile()
			b.clock.add(after)
			b.update(func(wl *kueue.Workload) {
				if tc.repaired {
					fixture.WithRecord(wl, dispatch.Record{Attempt: 2, Repair: true})
				}
				fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
				quota := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
				quota.Status, quota.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(fixture.Noon.Add(after))
				wl.Status.Admission, wl.Status.ClusterName = nil, nil
			})
			b.reconcile()

			last := evictedJob()
			last.Name, last.UID = "last", "last"
			fixture.SetCondition(last, kueue.WorkloadEvicted, fixture.Noon)
			b.create(last)
			if got := lifecycle.PhaseOf(b.look()); got != tc.phase {
				t.Errorf("phase %s, want %s", got, tc.phase)
			}
			b.clock.add(time.Minute + time.Second)
			if got := lifecycle.PhaseOf(b.look()); got != lifecycle.PhaseEvictionStuck {
				t.Errorf("a minute later: phase %s, want %s", got, lifecycle.PhaseEvictionStuck)
			}
		})
	}
}
