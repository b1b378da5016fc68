package lifecycle

import (
	"fmt"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// Without component 0 the other components of a job cannot start. If it has lost its quota, they return
// theirs under the gate's rules.
func TestComponentFollowsItsPrimaryOutOfTheQuota(t *testing.T) {
	hour := int32(3600)
	both := v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &hour}
	for _, tc := range []struct {
		name    string
		primary func(*kueue.Workload)
		rule    v1alpha1.WhenUnplaceable
		waited  time.Duration
		others  bool
		want    gate.State
		message string
	}{
		{"holds quota", func(*kueue.Workload) {}, both, time.Hour, true, gate.Pending, "waits until Kueue has placed component 0 of the job, Workload serve-0"},
		{"yielded", fixture.Pausing, both, time.Second, true, gate.Retry, "returns its quota for other workloads: component 0 of the job, Workload serve-0, has none"},
		{"yielded, and no other workload waits for quota", fixture.Pausing, both, time.Hour, false, gate.Pending, ""},
		{"pauses at a gate that does not yield", fixture.Pausing, v1alpha1.WhenUnplaceable{}, time.Hour, true, gate.Pending, ""},
		{"was activated again, and waits for quota", fixture.ActivatedAgain, both, time.Second, true, gate.Pending, ""},
		{"waits for quota", fixture.WithoutQuota, both, 5 * time.Minute, true, gate.Retry, ""},
		{"waits for quota for a shorter time", fixture.WithoutQuota, both, 299 * time.Second, true, gate.Pending, ""},
		{"waits for quota, and no other workload does", fixture.WithoutQuota, both, time.Hour, false, gate.Pending, ""},
		{"rejected", fixture.RejectedCheck, both, time.Second, false, gate.Rejected, "gave up: an admission check rejected component 0 of the job, Workload serve-0"},
		{"rejected, and Kueue has deactivated it", fixture.DeactivatedByCheck, both, time.Second, false, gate.Rejected, ""},
		{"rejected at a gate that does not give up", fixture.DeactivatedByCheck, v1alpha1.WhenUnplaceable{}, time.Hour, true, gate.Pending, ""},
		{"rejected at a gate that rejects what can never start", fixture.DeactivatedByCheck, v1alpha1.WhenUnplaceable{Never: v1alpha1.WhenNever{Mode: v1alpha1.NeverReject}}, time.Second, true, gate.Rejected, ""},
		{"parked", parkedPrimary, v1alpha1.WhenUnplaceable{}, time.Second, false, gate.Retry, "can never start here: no node"},
		{"deactivated by a user", fixture.Deactivated, both, time.Second, true, gate.Pending, ""},
		{"deactivated by a user for long", fixture.Deactivated, both, time.Hour, true, gate.Retry, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				secondComponent(s)
				tc.primary(s.Job.Primary)
				s.Gate.Spec.WhenUnplaceable, s.Now, s.Room.OthersPending = tc.rule, fixture.Noon.Add(tc.waited), tc.others
			})
			next := Next(s)
			if PhaseOf(s) != PhaseAwaitingPrimary || next.Decision.State != tc.want || tc.message != "" && next.Decision.Message != tc.message {
				t.Fatalf("%s: %s %q, want %s %q", PhaseOf(s), next.Decision.State, next.Decision.Message, tc.want, tc.message)
			}
			isDeactivated := len(next.Writes) == 1 && next.Writes[0].Record != nil && next.Writes[0].Record.Active != nil && !*next.Writes[0].Record.Active
			if isDeactivated != (tc.want == gate.Retry) || (next.Wait != nil) != (tc.want == gate.Pending) {
				t.Errorf("deactivated: %t, waits: %t", isDeactivated, next.Wait != nil)
			}
			if to := next.LeadsTo(PhaseOf(s)); !isDocumented(PhaseOf(s), to) {
				t.Errorf("leads to %s, which is not documented", to)
			}
		})
	}
}

// While the gate is at fault, a component concludes nothing from the state of its primary.
func TestComponentWaitsWhileTheGateIsAtFault(t *testing.T) {
	hour := int32(3600)
	s := situationWith(func(s *Situation) {
		secondComponent(s)
		fixture.DeactivatedByCheck(s.Job.Primary)
		s.Gate.Spec.WhenUnplaceable, s.Gate.Problem = v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}, "no Placement"
	})
	if d := Next(s).Decision; d.State != gate.Pending {
		t.Errorf("%s %q", d.State, d.Message)
	}
}

// If one component of a job loses its quota, MultiKueue deletes the job on the worker, with the
// components that run there. A component without room waits.
func TestComponentOfAPlacedJobKeepsItsQuota(t *testing.T) {
	hour := int32(3600)
	for index, name := range []string{"primary component", "second component"} {
		t.Run(name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				jobOnCluster1(s)
				fixture.WithRecord(s.Workload, dispatch.Record{UnplacedSeconds: 7200})
				s.Workload.Annotations[kueuestate.ComponentAnnotation] = fmt.Sprint(index)
				noRoom(s)
				s.Gate.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &hour}
				s.Now, s.Room.OthersPending = fixture.Noon.Add(2*time.Hour), true
				s.Room.Candidates[0].SampledAt = s.Now
			})
			next := Next(s)
			if PhaseOf(s) != PhaseWaiting || next.Decision.State != gate.Pending || next.Decision.Reason != gate.ReasonNoRoom {
				t.Fatalf("%s: %s %s %q", PhaseOf(s), next.Decision.State, next.Decision.Reason, next.Decision.Message)
			}
			for _, w := range next.Writes {
				if w.Record != nil {
					t.Errorf("writes the record %+v", w.Record)
				}
			}
			if s.MayYield() || next.RequeueAfter != 0 {
				t.Errorf("may yield: %t, looks again after %s", s.MayYield(), next.RequeueAfter)
			}
		})
	}
}

// A component that is rejected with its primary component gets the whole time again, too.
func TestRejectedComponentHasTheWholeTimeAgain(t *testing.T) {
	hour := int32(3600)
	s := situationWith(func(s *Situation) {
		secondComponent(s)
		s.Workload.Annotations[v1alpha1.DispatchAnnotation] = dispatch.Record{UnplacedSeconds: 3600, Attempt: 1}.Encode()
		fixture.DeactivatedByCheck(s.Job.Primary)
		s.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds = &hour
	})
	next := Next(s)
	if len(next.Writes) != 2 || next.Writes[0].Record == nil || next.Writes[1].Check == nil || next.Writes[1].Check.Decision.State != gate.Rejected {
		t.Fatalf("writes %+v, want the record and the rejection", next.Writes)
	}
	if record := next.Writes[0].Record.Record; record.UnplacedSeconds != 0 || record.Attempt != 1 {
		t.Errorf("the record is %+v", record)
	}
}
