package kueuestate

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestSinceWhenNobodyNominates(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*kueue.Workload)
		want   time.Time
	}{
		"its other checks are Ready": {func(*kueue.Workload) {}, t0.Add(2 * time.Second)},
		"it got its quota after that": {func(wl *kueue.Workload) {
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(t0.Add(time.Minute))
		}, t0.Add(time.Minute)},
		"another check is to come":  {func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending }, time.Time{}},
		"it is nominated":           {func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster1"} }, time.Time{}},
		"Kueue chooses its cluster": {func(wl *kueue.Workload) { wl.Annotations = map[string]string{ComponentAnnotation: "1"} }, time.Time{}},
		"it is being evicted": {func(wl *kueue.Workload) {
			apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: "True"})
		}, time.Time{}},
		"a cluster admitted it":             {func(wl *kueue.Workload) { cluster := "cluster1"; wl.Status.ClusterName = &cluster }, time.Time{}},
		"its queue has no MultiKueue check": {func(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[:2] }, time.Time{}},
	} {
		wl := &kueue.Workload{}
		wl.Status.Admission = &kueue.Admission{}
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "True", LastTransitionTime: metav1.NewTime(t0)})
		for i, check := range []string{"plimsoll", "budget"} {
			wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(check),
				State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(t0.Add(time.Duration(i+1) * time.Second))})
		}
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "multikueue", State: kueue.CheckStatePending})
		tc.change(wl)
		if got := UnnominatedSince(wl, "multikueue"); !got.Equal(tc.want) {
			t.Errorf("%s: since %s, want %s", name, got, tc.want)
		}
	}
}
