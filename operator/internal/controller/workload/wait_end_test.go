package workload

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// Workloads no longer wait once the gate's check has left their queue, whether Kueue updates
// them or not: otherwise the alert about waiting workloads fires for ever.
func TestNothingWaitsWithoutTheCheck(t *testing.T) {
	for _, tc := range []struct {
		name   string
		remove func(*bench)
	}{
		{"Kueue removes the entries", func(b *bench) {
			for i := range 10 {
				b.key.Name = fmt.Sprint("job-", i)
				b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[1:] })
				b.reconcile()
			}
		}},
		{"the AdmissionCheck is deleted and the entries stay", func(b *bench) { b.deleteCheck("plimsoll") }},
		{"the AdmissionCheck belongs to another controller", func(b *bench) {
			b.deleteCheck("plimsoll")
			other := admissionCheck("plimsoll", "example.com/budget", "example.com", "Budget")
			if err := b.hub.Create(b.t.Context(), other); err != nil {
				b.t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(nil)
			for i := range 10 {
				wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
				wl.Name, wl.UID = fmt.Sprint("job-", i), types.UID(fmt.Sprint(i))
				b.create(wl)
				b.reconcile()
			}
			if n := b.engine.Registry.Waiting("gpu"); n != 10 {
				t.Fatalf("%d workloads wait, want 10", n)
			}
			tc.remove(b)
			b.wakeUp()
			if n := b.engine.Registry.TotalWaiting(); n != 0 {
				t.Errorf("%d workloads still wait a wake-up later", n)
			}
		})
	}
}

func (b *bench) deleteCheck(name string) {
	b.t.Helper()
	check := &kueue.AdmissionCheck{}
	if err := b.hub.Get(b.t.Context(), client.ObjectKey{Name: name}, check); err != nil {
		b.t.Fatal(err)
	}
	if err := b.hub.Delete(b.t.Context(), check); err != nil {
		b.t.Fatal(err)
	}
}

// Kueue may evict a workload and reserve its quota again within one second, between two looks of
// the operator. Conditions have a resolution of one second, so only the eviction's count shows it.
func TestEvictionAndReservationInOneSecond(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.Ledger.Settle = time.Minute
	wl := fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon)
	fixture.SetCondition(wl, kueue.WorkloadAdmitted, fixture.Noon)
	b.create(wl)
	b.reconcile()
	if n := len(b.engine.Ledger.View().Running("cluster1")); n != 1 {
		t.Fatalf("%d running workloads, want 1", n)
	}
	b.update(func(wl *kueue.Workload) {
		wl.Status.Conditions = wl.Status.Conditions[:1] // no longer admitted
		wl.Status.AdmissionChecks[0] = kueue.AdmissionCheckState{Name: "plimsoll", State: kueue.CheckStatePending}
		wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}}
	})
	b.account(b.look())
	if n := len(b.engine.Ledger.View().Running("cluster1")); n != 0 {
		t.Errorf("the evicted attempt still counts as running")
	}
	if h := b.engine.History("uid"); h.Running != nil || len(h.Copies.Clusters) != 1 {
		t.Errorf("history %+v, want the possible copy of the evicted attempt", h)
	}
}
