package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A user may activate a workload that was given up. It then has the whole time again, also if part of
// the time before was counted under earlier quota or before a yield.
func TestActivatedWorkloadHasTheWholeTimeAgain(t *testing.T) {
	giveUp := int32(120)
	for _, before := range []dispatch.Record{
		{UnplacedSince: fixture.Noon.Add(-120 * time.Second)},
		{UnplacedSince: fixture.Noon.Add(-20 * time.Second), UnplacedSeconds: 100},
		{UnplacedSeconds: 120, Yields: 2, WaitsSince: fixture.Noon.Add(-time.Hour)},
	} {
		b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &giveUp}})
		b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
		b.create(fixture.WithRecord(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour))), before))
		expect := func(when string, want kueue.CheckState) {
			t.Helper()
			b.reconcile()
			if check := b.check(); check.State != want {
				t.Errorf("%+v: %s, the check is %s %q, want %s", before, when, check.State, check.Message, want)
			}
		}
		expect("after giveUpAfterSeconds", kueue.CheckStateRejected)
		if record := b.dispatchRecord(); record.Yields != before.Yields || !record.WaitsSince.Equal(before.WaitsSince) {
			t.Errorf("the record is %+v: the workload keeps its place and its yields", record)
		}
		b.update(func(wl *kueue.Workload) { // as Kueue rejects it, and reserves quota when it is active again
			wl.Status.AdmissionChecks[0].State, wl.Status.AdmissionChecks[0].Message = kueue.CheckStatePending, ""
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Hour))
			wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: kueue.WorkloadDeactivated, Count: 1}}}
		})
		b.clock.add(time.Hour)
		expect("when it is active again", kueue.CheckStatePending)
		b.clock.add(119 * time.Second)
		expect("before giveUpAfterSeconds", kueue.CheckStatePending)
		b.clock.add(time.Second)
		expect("after giveUpAfterSeconds", kueue.CheckStateRejected)
	}
}
