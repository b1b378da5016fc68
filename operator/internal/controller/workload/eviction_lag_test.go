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
)

// evictedJob is a workload of a Job that ran on cluster1 until its eviction began at noon.
func evictedJob() *kueue.Workload {
	wl := withMultiKueue(pendingWorkload(noon.Add(-time.Hour)))
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: types.UID("job")}}
	return wl
}

// Many workloads are evicted at once. MultiKueue completes one eviction after the other, so the last ones
// are not stuck.
func TestEvictionsInABacklogAreNotRepaired(t *testing.T) {
	for _, tc := range []struct {
		name     string
		repaired bool // a nomination completed the first eviction
		phase    Phase
	}{
		{"MultiKueue completed another one just now", false, PhaseEvicting},
		{"another one was stuck for as long", true, PhaseEvictionStuck},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const after = 30 * time.Second
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			first, cluster := evictedJob(), "cluster1"
			first.Status.ClusterName = &cluster
			for i := range first.Status.AdmissionChecks {
				first.Status.AdmissionChecks[i].State = kueue.CheckStateReady
			}
			setCondition(first, kueue.WorkloadAdmitted, noon.Add(-time.Minute))
			b.create(first)
			b.reconcile()
			b.clock.add(after)
			b.update(func(wl *kueue.Workload) {
				if tc.repaired {
					withRecord(wl, dispatch.Record{Attempt: 2, Repair: true})
				}
				setCondition(wl, kueue.WorkloadEvicted, noon)
				quota := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
				quota.Status, quota.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(noon.Add(after))
				wl.Status.Admission, wl.Status.ClusterName = nil, nil
			})
			b.reconcile()

			last := evictedJob()
			last.Name, last.UID = "last", "last"
			setCondition(last, kueue.WorkloadEvicted, noon)
			b.create(last)
			if got := phaseOf(b.look()); got != tc.phase {
				t.Errorf("phase %s, want %s", got, tc.phase)
			}
			b.clock.add(time.Minute + time.Second)
			if got := phaseOf(b.look()); got != PhaseEvictionStuck {
				t.Errorf("a minute later: phase %s, want %s", got, PhaseEvictionStuck)
			}
		})
	}
}
