package score

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestAbsentIsKept: a cluster has no series, which missing.absent accepts. While nothing else is
// known about it, the outcome stays until the keep time ends.
func TestAbsentIsKept(t *testing.T) {
	fixed := v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
	worstThenOmit := v1alpha1.Missing{Absent: "Worst", Then: v1alpha1.MissingOmit}
	for _, tc := range []struct {
		name    string
		missing v1alpha1.Missing
		outcome Outcome
		during  string
		after   string
	}{
		{"the query fails", fixed, Failed, "50 Fixed", "-100 Worst"},
		{"the query does not parse", fixed, Invalid, "50 Fixed", "-100 Worst"},
		{"the round is refused", fixed, TooFewFresh, "50 Fixed", "-100 Worst"},
		{"the samples are old", fixed, Stale, "-100 Worst", "-100 Worst"},
		{"the query matches no cluster", fixed, Unmatched, "0 Omitted", "0 Omitted"},
		{"two names collide", fixed, Colliding, "0 Omitted", "0 Omitted"},
		{"worst, then omit", worstThenOmit, Failed, "-100 Worst", "0 Omitted"},
		{"omit", v1alpha1.Missing{Absent: "Omit"}, Failed, "0 Omitted", "0 Omitted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := linear("a", "0", "100")
			s.Missing = tc.missing
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
			f.round(0, v(7))
			f.round(300, missing(Absent, 1))
			f.round(599, missing(tc.outcome, 1))
			f.expect(0, tc.during)
			f.round(600, missing(tc.outcome, 1))
			f.expect(0, tc.after)
		})
	}
}

// TestAbsentAtTheEndOfAKeepTime: the cluster had a value, then no series, and then the query fails.
func TestAbsentAtTheEndOfAKeepTime(t *testing.T) {
	s := linear("a", "0", "100")
	s.Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(7))
	f.round(270, missing(Absent, 1))
	f.expect(0, "7 Kept", "7 Kept")
	f.round(300, missing(Failed, 1))
	f.expect(0, "50 Fixed", "50 Scored")
	f.round(570, missing(Failed, 1))
	f.expect(0, "-100 Worst", "-100 Worst")
	f.round(600, v(9))
	f.round(900, missing(Failed, 1))
	f.expect(0, "-100 Worst", "-100 Worst")
}

// TestValueEndsTheKeepTimeOfAbsent: the cluster had no series, then an old value, and then the query fails.
func TestValueEndsTheKeepTimeOfAbsent(t *testing.T) {
	s := linear("a", "0", "100")
	s.Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}, Freshness: &v1alpha1.Freshness{Query: "age"}}, "c")
	f.round(0, missing(Absent, 1))
	f.last = Evaluate(f.policy, Samples{Clusters: f.clusters, Scores: [][]Input{v(7)}, Age: [][]time.Duration{{100 * time.Second}}}, f.last, at(30))
	f.round(229, missing(Failed, 1))
	f.expect(0, "7 Kept")
	f.round(230, missing(Failed, 1))
	f.expect(0, "-100 Worst")
}
