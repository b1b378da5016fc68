package lifecycle

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// withOtherCheck adds the check of another controller.
func withOtherCheck(state kueue.CheckState) func(*Situation) {
	return func(s *Situation) {
		s.Workload.Status.AdmissionChecks = append(s.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: state})
	}
}

// withTimeouts is a workload that Kueue retries, and of which the pods were not ready in time so often.
func withTimeouts(n int32) func(*Situation) {
	return func(s *Situation) {
		s.Workload.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1))}
		s.Workload.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Count: n}}}
	}
}

// A yield would begin the work of another check anew. It resets the count of Kueue's retries, so that it must not go on
// for ever with a workload that never becomes ready.
func TestWorkloadsThatDoNotYield(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		want   bool
	}{
		{"no retries", func(*Situation) {}, true},
		{"Kueue counts retries", withTimeouts(timing.MaxForgottenRetries - 1), true},
		{"Kueue has counted many retries", withTimeouts(timing.MaxForgottenRetries), false},
		{"Kueue counted many retries, and forgot them", inOrder(withTimeouts(timing.MaxForgottenRetries), func(s *Situation) { s.Workload.Status.RequeueState = nil }), true},
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

// A message that may not be written yet is written by the next look, which no change has to cause.
func TestAMessageThatIsKeptIsLookedAtAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		again  time.Duration
		writes int
	}{
		{"first message", func(s *Situation) { s.History.LastMessage.Kind = "" }, 0, 1},
		{"the message changes, and four workloads wait", func(*Situation) {}, 13 * time.Second, 0},
		{"the message is the same", func(s *Situation) { s.Check().Message = "tiers-2 has room for 3" }, 0, 0},
		{"the interval has passed", func(s *Situation) { s.Now = fixture.Noon.Add(time.Minute) }, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				s.Gate.TotalWaiting, s.Now = 4, fixture.Noon.Add(7*time.Second)
				s.Gate.Decide = func(*gate.Inputs, time.Time) gate.Decision {
					return gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "tiers-2 has room for 3"}
				}
				s.History.LastReason, s.History.LastMessage.Kind, s.History.LastMessage.At = gate.ReasonNoRoom, gate.ReasonNoRoom, fixture.Noon
				s.Check().Message = "tiers-1 has a score below the minimum"
			})
			tc.change(s)
			next := stepDecide(s)
			if next.RequeueAfter != tc.again || len(next.Writes) != tc.writes {
				t.Errorf("looks again after %s, writes %v", next.RequeueAfter, next.Writes)
			}
		})
	}
}

// The check of a workload behind equal ones states nothing that changes, and the decision everything.
func TestMessageOfAFollower(t *testing.T) {
	for follows, want := range map[bool]string{false: "tiers-2 has room for 3", true: "no cluster is eligible; an equal workload is decided first, and its check says more"} {
		s := situationWith(func(s *Situation) {
			s.Room.Follows = follows
			s.Gate.Decide = func(*gate.Inputs, time.Time) gate.Decision {
				return gate.Decision{State: gate.Pending, Reason: gate.ReasonRuledOut, Message: "tiers-2 has room for 3"}
			}
		})
		next := stepDecide(s)
		if len(next.Writes) != 1 || next.Writes[0].Check.Decision.Message != want || next.Decision.Message != "tiers-2 has room for 3" {
			t.Errorf("follows %t: writes %+v, decision %q, want the message %q", follows, next.Writes, next.Decision.Message, want)
		}
	}
}
