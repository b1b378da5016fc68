package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Devices stay promised until samples must show them: from when the workload was
// admitted and, where Kueue tells that its pods run, hardly longer.
func TestPromisedUntilTheSamplesShowIt(t *testing.T) {
	const settle = time.Minute
	condition := func(wl *kueue.Workload, kind string, at time.Time) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
	}
	for name, tc := range map[string]struct {
		change func(wl *kueue.Workload, now time.Time)
		at     time.Duration // of the sample, after now
		want   int64
	}{
		"decided":     {func(*kueue.Workload, time.Time) {}, 2 * settle, 2},
		"admitted":    {func(wl *kueue.Workload, now time.Time) { condition(wl, kueue.WorkloadAdmitted, now) }, settle / 2, 2},
		"a while ago": {func(wl *kueue.Workload, now time.Time) { condition(wl, kueue.WorkloadAdmitted, now) }, 2 * settle, 0},
		"its pods run": {func(wl *kueue.Workload, now time.Time) {
			condition(wl, kueue.WorkloadAdmitted, now)
			condition(wl, kueue.WorkloadPodsReady, now.Add(time.Second))
		}, settle / 2, 0},
		"the pods of its last run were ready": {func(wl *kueue.Workload, now time.Time) {
			condition(wl, kueue.WorkloadAdmitted, now)
			condition(wl, kueue.WorkloadPodsReady, now.Add(-time.Hour))
		}, settle / 2, 2},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		b.ledger.Settle = settle
		now := b.clock.now()
		wl := b.holder(now)
		wl.Status.AdmissionChecks[0] = kueue.AdmissionCheckState{Name: "plimsoll", State: kueue.CheckStateReady,
			Message: "cluster1 can take it: room for 1 such pod there", LastTransitionTime: metav1.NewTime(now)}
		tc.change(wl, now)
		r, s := b.operator(t, wl)
		b.ledger.Debit(entry(b.facts, "cluster1", now))
		r.track(t.Context(), s)
		if got := b.ledger.View().Devices("cluster1", now.Add(tc.at), "other", b.facts.PodSets[0]); got != tc.want {
			t.Errorf("%s: %d devices promised beside a sample of %s later, want %d", name, got, tc.at, tc.want)
		}
	}
}
