package lifecycle

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// withOtherCheck adds the check of another controller.
func withOtherCheck(state kueue.CheckState) func(*Situation) {
	return func(s *Situation) {
		s.Workload.Status.AdmissionChecks = append(s.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: state})
	}
}

// A yield would reset the count of Kueue's retries, whose limit ends a workload that never becomes
// ready. It would also begin the work of another check anew.
func TestWorkloadsThatDoNotYield(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		want   bool
	}{
		{"no retries", func(*Situation) {}, true},
		{"Kueue counts retries", func(s *Situation) { s.Workload.Status.RequeueState = &kueue.RequeueState{Count: new(int32(3))} }, false},
		{"another check is Pending", withOtherCheck(kueue.CheckStatePending), false},
		{"another check is Ready", withOtherCheck(kueue.CheckStateReady), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				s.Gate.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}
				s.Now = fixture.Noon.Add(time.Hour)
				tc.change(s)
			})
			if got := s.MayYield(); got != tc.want {
				t.Errorf("may yield: %t, want %t", got, tc.want)
			}
		})
	}
}
