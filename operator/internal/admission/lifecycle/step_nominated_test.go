package lifecycle

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// In its last stage a nomination is widened to clusters whose room is not known. A full cluster is
// nominated only if that completes a stuck eviction.
func TestWideningToClustersOfUnknownRoom(t *testing.T) {
	later := func(o *Situation) {
		o.Now = fixture.Noon.Add(3 * time.Minute)
		for i := range o.Room.Candidates {
			o.Room.Candidates[i].SampledAt = o.Now
		}
	}
	late := inOrder(sentTo(fixture.Noon, "cluster1"), later)
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		want   []string // nil = not widened
	}{
		{"full", late, nil},
		{"no samples", inOrder(late, func(o *Situation) { o.Room.Candidates[1].SampledAt = time.Time{} }), []string{"cluster1", "cluster2"}},
		{"no samples, and not connected", inOrder(late, func(o *Situation) {
			o.Room.Candidates[1].SampledAt, o.MultiKueue.Connected = time.Time{}, []string{"cluster1"}
		}), nil},
		{"the gate can't decide", inOrder(late, func(o *Situation) { o.Gate.Problem = "no Placement" }), []string{"cluster1", "cluster2"}},
		{"full, and an eviction is stuck", inOrder(sentTo(fixture.Noon, "cluster1"), evictedFor(fixture.StuckAfter), later), []string{"cluster1", "cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, w := range Next(observationWith(tc.change)).Writes {
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
		s := Next(observationWith(inOrder(evictedFor(fixture.StuckAfter), func(o *Situation) {
			o.Workload.Status.AdmissionChecks = append(o.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: state})
		})))
		if isRepaired := len(s.Writes) > 0; isRepaired != (state == kueue.CheckStateReady) || s.RequeueAfter == 0 {
			t.Errorf("the other check is %s: repaired %t, next look in %s", state, isRepaired, s.RequeueAfter)
		}
	}
}
