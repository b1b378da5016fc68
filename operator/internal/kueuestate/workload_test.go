package kueuestate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// reserved workload with a MultiKueue check in a state.
func reserved(state kueue.CheckState) *kueue.Workload {
	return &kueue.Workload{Status: kueue.WorkloadStatus{
		Admission:       &kueue.Admission{},
		Conditions:      []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}},
		AdmissionChecks: []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "multikueue", State: state, LastTransitionTime: metav1.NewTime(t0)}},
	}}
}

func TestGuard(t *testing.T) {
	no := false
	one := "cluster1"
	condition := func(kind string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0)})
		}
	}
	for _, tc := range []struct {
		name            string
		change          func(*kueue.Workload)
		write, nominate bool
	}{
		{"quota reserved", func(*kueue.Workload) {}, true, true},
		{"evicted", condition(kueue.WorkloadEvicted), false, true},
		{"finished", condition(kueue.WorkloadFinished), false, true},
		{"inactive", func(wl *kueue.Workload) { wl.Spec.Active = &no }, false, true},
		{"being deleted", func(wl *kueue.Workload) { wl.DeletionTimestamp = &metav1.Time{Time: t0} }, false, true},
		{"no quota", func(wl *kueue.Workload) { wl.Status.Conditions = nil }, false, true},
		{"admission taken back", func(wl *kueue.Workload) { wl.Status.Admission = nil }, false, true},
		{"on a cluster", func(wl *kueue.Workload) { wl.Status.ClusterName = &one }, true, false},
		{"a component that follows its primary", func(wl *kueue.Workload) { wl.Annotations = map[string]string{ComponentAnnotation: "1"} }, true, false},
	} {
		wl := reserved(kueue.CheckStatePending)
		tc.change(wl)
		if got := AcceptsCheckUpdate(wl); got != tc.write {
			t.Errorf("%s: may write %t, want %t", tc.name, got, tc.write)
		}
		if got := WantsNomination(wl, "multikueue"); got != tc.nominate {
			t.Errorf("%s: wants nomination %t, want %t", tc.name, got, tc.nominate)
		}
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		if got := AcceptsNomination(wl, "multikueue", t0); got != (tc.write && tc.nominate) {
			t.Errorf("%s: may nominate %t, want %t", tc.name, got, tc.write && tc.nominate)
		}
	}
	wl := reserved(kueue.CheckStatePending)
	condition(kueue.WorkloadEvicted)(wl)
	if stuck, left := IsEvictionStuck(wl, "multikueue", t0.Add(3*time.Second)); stuck || left != 2*time.Second {
		t.Errorf("an eviction of 3 s: stuck %t, left %s", stuck, left)
	}
	if stuck, _ := IsEvictionStuck(wl, "multikueue", t0.Add(6*time.Second)); !stuck {
		t.Error("an eviction that waits for 6 s without a cluster is a deadlock")
	}
	if AcceptsNomination(wl, "multikueue", t0.Add(6*time.Second)) {
		t.Error("Kueue sends nothing while another check is Pending")
	}
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	if !AcceptsNomination(wl, "multikueue", t0.Add(6*time.Second)) {
		t.Error("a deadlock needs a nomination")
	}
	wl.Spec.Active = &no
	if stuck, _ := IsEvictionStuck(wl, "multikueue", t0.Add(6*time.Second)); !stuck {
		t.Error("so is that of a workload that was deactivated")
	}
	wl.Status.NominatedClusterNames = []string{"cluster1"}
	if stuck, _ := IsEvictionStuck(wl, "multikueue", t0.Add(6*time.Second)); !stuck {
		t.Error("nor does a nomination end it that no cluster admits")
	}
	cluster := "cluster1"
	wl.Status.ClusterName = &cluster
	if stuck, left := IsEvictionStuck(wl, "multikueue", t0.Add(6*time.Second)); stuck || left != 0 {
		t.Error("a cluster that has it ends it")
	}
}
