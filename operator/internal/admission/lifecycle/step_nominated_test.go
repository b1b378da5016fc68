package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// In its last stage a nomination is widened to clusters whose room is not known. A full cluster is
// nominated only if that completes a stuck eviction.
func TestWideningToClustersOfUnknownRoom(t *testing.T) {
	later := func(s *Situation) {
		s.Now = fixture.Noon.Add(3 * time.Minute)
		for i := range s.Room.Candidates {
			s.Room.Candidates[i].SampledAt = s.Now
		}
	}
	late := inOrder(sentTo(fixture.Noon, "cluster1"), later)
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		want   []string // nil = not widened
	}{
		{"full", late, nil},
		{"no samples", inOrder(late, func(s *Situation) { s.Room.Candidates[1].SampledAt = time.Time{} }), []string{"cluster1", "cluster2"}},
		{"no samples, and not connected", inOrder(late, func(s *Situation) {
			s.Room.Candidates[1].SampledAt, s.MultiKueue.Connected = time.Time{}, []string{"cluster1"}
		}), nil},
		{"the gate can't decide", inOrder(late, func(s *Situation) { s.Gate.Problem = "no Placement" }), []string{"cluster1", "cluster2"}},
		{"full, and an eviction is stuck", inOrder(sentTo(fixture.Noon, "cluster1"), evictedFor(fixture.StuckAfter), later), []string{"cluster1", "cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, w := range Next(situationWith(tc.change)).Writes {
				if w.Nomination != nil {
					got = w.Nomination.Clusters
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
		})
	}
}

// MultiKueue creates no copy while a check of another controller is Pending, so that a nomination would
// not complete the eviction.
func TestRepairWaitsForOtherChecks(t *testing.T) {
	for _, state := range []kueue.CheckState{kueue.CheckStatePending, kueue.CheckStateReady} {
		next := Next(situationWith(inOrder(evictedFor(fixture.StuckAfter), func(s *Situation) {
			s.Workload.Status.AdmissionChecks = append(s.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: state})
		})))
		if isRepaired := len(next.Writes) > 0; isRepaired != (state == kueue.CheckStateReady) || next.RequeueAfter == 0 {
			t.Errorf("the other check is %s: repaired %t, next look in %s", state, isRepaired, next.RequeueAfter)
		}
	}
}
