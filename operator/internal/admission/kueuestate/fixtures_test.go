package kueuestate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) metav1.Time {
	return metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second))
}

// reserved returns a workload with quota since t0, a Pending check plimsoll, and a Pending
// MultiKueue check.
func reserved() *kueue.Workload {
	wl := &kueue.Workload{Status: kueue.WorkloadStatus{
		Admission: &kueue.Admission{},
		AdmissionChecks: []kueue.AdmissionCheckState{
			{Name: "plimsoll", State: kueue.CheckStatePending},
			{Name: "multikueue", State: kueue.CheckStatePending, LastTransitionTime: after(0)},
		},
	}}
	setCondition(kueue.WorkloadQuotaReserved)(wl)
	return wl
}

// setCondition sets a condition to true at t0.
func setCondition(kind string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: after(0)})
	}
}

func clusterName(name string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Status.ClusterName = &name }
}
