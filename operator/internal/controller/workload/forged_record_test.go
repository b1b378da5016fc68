package workload

import (
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
)

// A tenant who may write a Workload can forge the annotation plimsoll.dev/dispatch. No forged
// record makes the operator nominate a cluster outside of the gate's configuration.
func TestForgedRecordNominatesNoForeignCluster(t *testing.T) {
	const foreign = "another-tenants-cluster"
	evicted := func(wl *kueue.Workload) *kueue.Workload {
		setCondition(wl, kueue.WorkloadEvicted, noon.Add(-time.Hour))
		return withMultiKueue(wl)
	}
	for _, tc := range []struct {
		name     string
		workload func() *kueue.Workload
		record   dispatch.Record
	}{
		{"waiting", func() *kueue.Workload { return withMultiKueue(pendingWorkload(noon)) }, recordOf(noon.Add(-time.Hour), foreign)},
		{"nominated", func() *kueue.Workload { return nominated(pendingWorkload(noon.Add(-time.Hour)), "cluster1") }, recordOf(noon.Add(-time.Hour), "cluster1", foreign)},
		{"stuck eviction", func() *kueue.Workload { return evicted(pendingWorkload(noon.Add(-time.Hour))) }, recordOf(noon.Add(-2*time.Hour), foreign)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(map[string]float64{foreign: 8})
			b.create(withRecord(tc.workload(), tc.record))
			for range 20 {
				b.reconcile()
				if names := b.workload().Status.NominatedClusterNames; slices.Contains(names, foreign) {
					t.Fatalf("nominated %v", names)
				}
				b.clock.add(30 * time.Second)
			}
		})
	}
}
