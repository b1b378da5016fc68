package kueuestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Kueue deactivates a workload with a Rejected check and resets its checks.
func TestIsRejected(t *testing.T) {
	inactive := false
	evicted := func(reason string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Spec.Active = &inactive
			wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: reason}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   bool
	}{
		{"Pending", func(*kueue.Workload) {}, false},
		{"Rejected", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[1].State = kueue.CheckStateRejected }, true},
		{"deactivated by a check", evicted("DeactivatedDueToAdmissionCheck"), true},
		{"deactivated by a user", evicted("Deactivated"), false},
		{"deactivated because it ran too long", evicted("DeactivatedDueToMaximumExecutionTimeExceeded"), false},
		{"activated again", func(wl *kueue.Workload) { evicted("DeactivatedDueToAdmissionCheck")(wl); wl.Spec.Active = nil }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := reserved()
			tc.change(wl)
			if got := IsRejected(wl); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
