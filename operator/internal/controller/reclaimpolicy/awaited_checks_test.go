package reclaimpolicy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A workload with quota needs devices when only a gate or MultiKueue keeps it waiting. Devices that
// become free before its trial has ended, or before another controller has decided, do not help it.
func TestWorkloadWithQuotaWaitsForRoom(t *testing.T) {
	for _, tc := range []struct {
		name   string
		checks []kueue.AdmissionCheckState
		want   v1alpha1.IdleState
	}{
		{"for its gate", []kueue.AdmissionCheckState{{Name: "trial", State: kueue.CheckStateReady}, {Name: "plimsoll", State: kueue.CheckStatePending}}, v1alpha1.IdleSelected},
		{"for MultiKueue", []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady}, {Name: "multikueue", State: kueue.CheckStatePending}}, v1alpha1.IdleSelected},
		{"for its trial", []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady}, {Name: "multikueue", State: kueue.CheckStatePending}, {Name: "trial", State: kueue.CheckStatePending}}, v1alpha1.IdleNotNeeded},
		{"for another controller", []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "provisioning", State: kueue.CheckStatePending}}, v1alpha1.IdleNotNeeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, nil, running("idle"), check("trial", v1alpha1.TrialControllerName, v1alpha1.GroupVersion.Group, "TrialPolicy"),
				check("provisioning", kueue.ProvisioningRequestControllerName, kueue.SchemeGroupVersion.Group, "ProvisioningRequestConfig"))
			h.replace(waiting("waits", func(wl *kueue.Workload) {
				wl.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
				wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
				wl.Status.AdmissionChecks = tc.checks
			}))
			h.idle["idle"] = []float64{3600, 3600}
			policy := h.round()
			if s := policy.Status.IdleWorkloads; len(s) != 1 || s[0].State != tc.want {
				t.Errorf("idle workloads %+v, want %s", s, tc.want)
			}
			if active, _ := h.isActive("idle"); active != (tc.want == v1alpha1.IdleNotNeeded) {
				t.Errorf("active: %t", active)
			}
		})
	}
}
