package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// loseQuota takes the quota as Kueue does for stopped queues, held jobs and closed admission gates:
// without an eviction, so that the checks stay.
func loseQuota(reason string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Admission = nil
		for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			if apimeta.FindStatusCondition(wl.Status.Conditions, kind) != nil {
				apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(fixture.Noon)})
			}
		}
	}
}

// reserveQuota gives the workload quota again.
func reserveQuota(at time.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu"}
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(at)})
	}
}

// A workload that loses its quota without an eviction keeps a Ready check. Kueue would admit it in the
// same write that reserves quota again, whatever room there is then.
func TestReadyCheckOfLostQuota(t *testing.T) {
	ready := func(change ...func(*kueue.Workload)) *kueue.Workload {
		wl := fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour)), "cluster1", fixture.Noon.Add(-time.Hour))
		for _, c := range change {
			c(wl)
		}
		return wl
	}
	multiKueue := func(wl *kueue.Workload) { fixture.WithMultiKueue(wl) }
	follower := func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1"}
	}
	admitted := func(wl *kueue.Workload) {
		fixture.SetCondition(wl, kueue.WorkloadAdmitted, fixture.Noon.Add(-time.Hour))
	}
	inactive := func(wl *kueue.Workload) { wl.Spec.Active = new(false) }
	condition := func(kind string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { fixture.SetCondition(wl, kind, fixture.Noon) }
	}
	lost, onHold := loseQuota("Suspended"), loseQuota(kueue.WorkloadOnHold)
	for _, tc := range []struct {
		name      string
		nominates bool
		wl        *kueue.Workload
		want      kueue.CheckState
	}{
		{"without MultiKueue", true, ready(lost), kueue.CheckStatePending},
		{"StatefulSet without replicas that ran", true, ready(admitted, onHold), kueue.CheckStatePending},
		{"Kueue nominates", false, ready(multiKueue, lost), kueue.CheckStatePending},
		{"Kueue follows the primary component", true, ready(multiKueue, follower, lost), kueue.CheckStatePending},
		{"the operator decides again before it nominates", true, ready(multiKueue, lost), kueue.CheckStateReady},
		{"deactivated", true, ready(lost, inactive), kueue.CheckStateReady},
		{"evicted", true, ready(lost, condition(kueue.WorkloadEvicted)), kueue.CheckStateReady},
		{"finished", true, ready(lost, condition(kueue.WorkloadFinished)), kueue.CheckStateReady},

		{"holds quota again, without MultiKueue", true, ready(lost, reserveQuota(fixture.Noon)), kueue.CheckStatePending},
		{"holds quota again, and runs", true, ready(lost, reserveQuota(fixture.Noon), condition(kueue.WorkloadAdmitted)), kueue.CheckStateReady},
		{"holds quota again, and Kueue nominates", false, ready(multiKueue, lost, reserveQuota(fixture.Noon)), kueue.CheckStateReady},
		{"holds quota since a moment after the check, by another clock", true, ready(reserveQuota(fixture.Noon.Add(-time.Hour)), func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(-time.Hour - time.Minute))
		}), kueue.CheckStateReady},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.engine.Nominates = tc.nominates
			b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
			b.create(tc.wl)
			b.reconcile()
			if got := b.check(); got.State != tc.want || (len(got.PodSetUpdates) > 0) != (tc.want == kueue.CheckStateReady) {
				t.Errorf("check is %+v, want %s", got, tc.want)
			}
			var want []string
			if tc.want == kueue.CheckStatePending {
				want = []string{"Normal QuotaLost " + fixture.QuotaLost}
			}
			if diff := cmp.Diff(want, b.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			b.reconcile()
			if events := b.events(); len(events) > 1 || len(events) == 1 && !kueuestate.HoldsQuota(tc.wl) {
				t.Errorf("the second look writes again: %q", events)
			}
		})
	}
}

// A clock of Kueue that is ahead makes no decision outdated that was made for this quota.
func TestClockOfKueueIsAhead(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.PendingWorkload(fixture.Noon.Add(10 * time.Minute)))
	for range 5 {
		b.reconcile()
		b.clock.add(time.Minute)
	}
	if got := b.check(); got.State != kueue.CheckStateReady {
		t.Errorf("check is %+v, want Ready", got)
	}
	for _, e := range b.events() {
		if strings.Contains(e, "QuotaLost") {
			t.Errorf("event %q", e)
		}
	}
}

// When the workload holds quota again, the gate decides with the room of that time.
func TestLostQuotaIsDecidedAgain(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.PendingWorkload(fixture.Noon))
	b.reconcile()
	b.update(loseQuota(kueue.WorkloadOnHold))
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStatePending || got.Message != fixture.QuotaLost {
		t.Fatalf("without quota, the check is %+v", got)
	}
	b.clock.add(time.Hour)
	b.room(map[string]float64{"cluster1": 0, "cluster2": 9})
	b.update(reserveQuota(b.now()))
	b.reconcile()
	got := b.check()
	if got.State != kueue.CheckStateReady || len(got.PodSetUpdates) != 1 || got.PodSetUpdates[0].Annotations[v1alpha1.ClusterAnnotation] != "cluster2" {
		t.Errorf("with quota again, the check is %+v", got)
	}
}
