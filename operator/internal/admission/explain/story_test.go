package explain

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func minute(n int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(n) * time.Minute)) }

// storyOf returns a workload of a gate and MultiKueue with conditions, each true since its minute or, if that is negative,
// false.
func storyOf(conditions map[string]int, state kueue.CheckState) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: minute(0)}, Spec: kueue.WorkloadSpec{QueueName: "gpu"}}
	for name, at := range conditions {
		c := metav1.Condition{Type: name, Status: metav1.ConditionTrue, LastTransitionTime: minute(at), Reason: "R", Message: name + " message"}
		if at < 0 {
			c.Status, c.LastTransitionTime = metav1.ConditionFalse, minute(-at)
		}
		wl.Status.Conditions = append(wl.Status.Conditions, c)
	}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: state, Message: "gate message", LastTransitionTime: minute(2)}, {Name: "multikueue", State: kueue.CheckStatePending}}
	return wl
}

func TestStory(t *testing.T) {
	checks := kueuestate.Checks{Own: []string{"plimsoll"}, MultiKueue: "multikueue"}
	reserved := map[string]int{kueue.WorkloadQuotaReserved: 1}
	record := dispatch.Record{Attempt: 1, QuotaReservedAt: minute(1).Time, NominatedAt: minute(3).Time, Nominated: []string{"cluster1"}, Reason: "Placeable"}
	with := func(wl *kueue.Workload, change func(*kueue.Workload)) *kueue.Workload { change(wl); return wl }
	for _, tc := range []struct {
		name   string
		wl     *kueue.Workload
		record dispatch.Record
		want   []string
	}{
		{name: "waits for quota", wl: storyOf(map[string]int{kueue.WorkloadQuotaReserved: -1}, kueue.CheckStatePending), want: []string{
			"done 0 Submitted: to queue gpu", "current - Quota reserved: R: QuotaReserved message", "later - Decided: gate message", "later - Nominated: ", "later - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
		{name: "waits for the gate", wl: storyOf(reserved, kueue.CheckStatePending), want: []string{
			"done 0 Submitted: to queue gpu", "done 1 Quota reserved: QuotaReserved message", "current - Decided: gate message", "later - Nominated: ", "later - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
		{name: "deactivated", wl: with(storyOf(map[string]int{kueue.WorkloadQuotaReserved: -1}, kueue.CheckStatePending), func(wl *kueue.Workload) { wl.Spec.Active = new(false) }), want: []string{
			"done 0 Submitted: to queue gpu", "later - Quota reserved: R: QuotaReserved message", "later - Decided: gate message", "later - Nominated: ", "later - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
		{name: "rejected", wl: storyOf(reserved, kueue.CheckStateRejected), want: []string{
			"done 0 Submitted: to queue gpu", "done 1 Quota reserved: QuotaReserved message", "failed 2 Decided: gate message", "later - Nominated: ", "later - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
		{name: "nominated", wl: storyOf(reserved, kueue.CheckStateReady), record: record, want: []string{
			"done 0 Submitted: to queue gpu", "done 1 Quota reserved: QuotaReserved message", "done 2 Decided: gate message", "done 3 Nominated: to cluster1 (Placeable)", "current - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
		{name: "a record of an earlier attempt is no nomination", wl: storyOf(map[string]int{kueue.WorkloadQuotaReserved: 5}, kueue.CheckStateReady), record: record, want: []string{
			"done 0 Submitted: to queue gpu", "done 2 Decided: gate message", "done 5 Quota reserved: QuotaReserved message", "current - Nominated: ", "later - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
		{name: "runs, and Kueue does not report pods", wl: with(storyOf(map[string]int{kueue.WorkloadQuotaReserved: 1, kueue.WorkloadAdmitted: 5}, kueue.CheckStateReady), func(wl *kueue.Workload) {
			cluster := "cluster1"
			wl.Status.ClusterName = &cluster
			wl.Status.AdmissionChecks[1].State, wl.Status.AdmissionChecks[1].LastTransitionTime = kueue.CheckStateReady, minute(4)
		}), record: record, want: []string{
			"done 0 Submitted: to queue gpu", "done 1 Quota reserved: QuotaReserved message", "done 2 Decided: gate message", "done 3 Nominated: to cluster1 (Placeable)", "done 4 Admitted: by cluster1: Admitted message",
			"unknown - Pods ready: Kueue does not report it: see waitForPodsReady in its configuration", "current - Finished: "}},
		{name: "finished without pods that were ready", wl: storyOf(map[string]int{kueue.WorkloadQuotaReserved: 1, kueue.WorkloadAdmitted: 3, kueue.WorkloadPodsReady: -3, kueue.WorkloadFinished: 9}, kueue.CheckStateReady), want: []string{
			"done 0 Submitted: to queue gpu", "done 1 Quota reserved: QuotaReserved message", "done 2 Decided: gate message", "done 3 Admitted: Admitted message", "done 9 Finished: Finished message"}},
		{name: "evicted before", wl: with(storyOf(map[string]int{kueue.WorkloadEvicted: 7, kueue.WorkloadQuotaReserved: -7}, kueue.CheckStatePending), func(wl *kueue.Workload) {
			wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 2}, {Reason: "AdmissionCheck", UnderlyingCause: "X", Count: 1}}}
		}), record: dispatch.Record{LastYield: minute(6).Time, Reclaimed: &dispatch.Reclaim{At: minute(5).Time, Policy: "idle", Cause: "its devices are idle"}}, want: []string{
			"done 0 Submitted: to queue gpu; evicted since then: Preempted 2 times, X 1 time", "failed 5 Reclaimed: by ReclaimPolicy idle: its devices are idle", "done 6 Returned its quota: for other workloads", "failed 7 Evicted: R: Evicted message",
			"current - Quota reserved: R: QuotaReserved message", "later - Decided: gate message", "later - Nominated: ", "later - Admitted: ", "later - Pods ready: ", "later - Finished: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, e := range Story(tc.wl, checks, false, tc.record) {
				at := "-"
				if !e.At.IsZero() {
					at = fmt.Sprint(int(e.At.Sub(noon).Minutes()))
				}
				got = append(got, fmt.Sprintf("%s %s %s: %s", e.Progress, at, e.Name, e.Why))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	unknown := Story(storyOf(reserved, kueue.CheckStatePending), kueuestate.Checks{Foreign: []string{""}}, true, dispatch.Record{})
	if e := unknown[2]; e.Progress != Unknown || e.Why != "the AdmissionChecks can't be read" {
		t.Errorf("checks that can't be read: %+v", e)
	}
}
