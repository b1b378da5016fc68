package kueuestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestWaitsForQuota(t *testing.T) {
	lost := func(reason string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason})
		}
	}
	gatedBy := func(value string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": value}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   bool
	}{
		{"new", func(*kueue.Workload) {}, true},
		{"after an attempt of Kueue", lost("Pending"), true},
		{"on hold", lost(kueue.WorkloadOnHold), false},
		{"with a closed admission gate", gatedBy("example.com/budget"), false},
		{"with an open admission gate", gatedBy(""), true},
		{"without some pods of its group", setCondition(kueue.WorkloadWaitingForReplacementPods), false},
		{"inactive", func(wl *kueue.Workload) { wl.Spec.Active = new(false) }, false},
		{"finished", setCondition(kueue.WorkloadFinished), false},
		{"being deleted", func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) }, false},
		{"with quota", func(wl *kueue.Workload) { wl.Status.Admission = &kueue.Admission{} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{}
			if tc.change(wl); WaitsForQuota(wl) != tc.want {
				t.Errorf("got %t, want %t", !tc.want, tc.want)
			}
		})
	}
}

func TestNoQuotaReason(t *testing.T) {
	active := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: status, Message: "Can't admit new workloads"}}
	}
	for _, tc := range []struct {
		name       string
		policy     *kueue.StopPolicy
		deleted    *metav1.Time
		conditions []metav1.Condition
		want       string
	}{
		{"new", nil, nil, nil, ""},
		{"stopPolicy None", new(kueue.None), nil, active(metav1.ConditionTrue), ""},
		{"stopPolicy Hold", new(kueue.Hold), nil, active(metav1.ConditionTrue), "is stopped"},
		{"stopPolicy HoldAndDrain", new(kueue.HoldAndDrain), nil, active(metav1.ConditionFalse), "is stopped"},
		{"being deleted", nil, new(metav1.Now()), active(metav1.ConditionTrue), "is being deleted"},
		{"without a flavor", nil, nil, active(metav1.ConditionFalse), "is not active: Can't admit new workloads"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}}
			queue.Spec.StopPolicy, queue.Status.Conditions = tc.policy, tc.conditions
			if got := NoQuotaReason(queue); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.want == "is not active: Can't admit new workloads" {
				return // a LocalQueue does not show that
			}
			local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}}
			if local.Spec.StopPolicy = tc.policy; NoQuotaReasonOfLocal(local) != tc.want {
				t.Errorf("LocalQueue: got %q, want %q", NoQuotaReasonOfLocal(local), tc.want)
			}
		})
	}
}
