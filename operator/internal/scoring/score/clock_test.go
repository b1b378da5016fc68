package score

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// The clock is set back by an hour between two rounds. Keep times and delays last as long as
// without it, counted from the first round with the new time.

func TestKeepTimeEndsAfterTheClockWasSetBack(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "100")}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(3600, v(40))
	f.round(0, missing(Failed, 1))
	f.expect(0, "40 Kept", "40 Kept")
	if end, _ := f.last.NextKeepEnd(); !end.Equal(at(300)) {
		t.Errorf("the keep time ends at %v", end)
	}
	f.round(299, missing(Failed, 1))
	f.expect(0, "40 Kept", "40 Kept")
	f.round(300, missing(Failed, 1))
	f.expect(0, "-100 Worst", "-100 Worst")
	if since := f.last.Row(0)[0].Since.Time(); !since.Equal(at(0)) {
		t.Errorf("missing since %v", since)
	}
}

func TestRefusalEndsAfterTheClockWasSetBack(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "100")}}, "c1", "c2", "c3")
	few := missing(Failed, 3)
	few[0] = Input{Value: 50}
	f.round(3600, v(40, 40, 40))
	f.round(3630, few)
	f.round(0, few)
	f.expect(0, "40 Kept")
	f.round(300, few)
	f.expect(0, "50 Scored")
}

func TestAbsentClusterIsNotKeptLongerAfterTheClockWasSetBack(t *testing.T) {
	s := linear("a", "0", "100")
	s.Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
	f.round(3600, missing(Absent, 1))
	f.round(0, missing(Failed, 1))
	f.expect(0, "50 Fixed")
	f.round(300, missing(Failed, 1))
	f.expect(0, "-100 Worst")
}
