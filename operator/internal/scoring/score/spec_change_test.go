package score

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestSkipDampingAppliesTheNextValueAtOnce(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.HalfLifeSeconds = 600
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a")
	f.round(0, v(10))
	f.last = f.last.SkipDamping()
	f.round(30, v(90))
	f.expect(0, "90 Scored")
}

// TestScoresFollowTheirNames: the policy replaces the first of two scores, and adds one in front. The
// score that stays is kept, and the new ones do not start from it.
func TestScoresFollowTheirNames(t *testing.T) {
	a, b, c := linear("a", "0", "10"), linear("b", "0", "10"), linear("c", "0", "10")
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}}, "c")
	f.round(0, v(1), v(2))
	f.policy = mustCompile(t, &v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{b, c}})
	f.round(30, missing(NaN, 1), missing(NaN, 1))
	f.expect(0, "20 Kept", "-100 Worst")
}

// TestSkipDampingIgnoresTheDeadbandOnce: the first value after a change of the policy is
// published, and so is its total. The deadband applies from then on.
func TestSkipDampingIgnoresTheDeadbandOnce(t *testing.T) {
	a, b := linear("a", "0", "100"), linear("b", "0", "100")
	a.Damping.Deadband = 25
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(50), v(50))
	f.last = f.last.SkipDamping()
	f.round(30, missing(Failed, 1), v(54))
	f.expect(0, "50 Kept", "54 Scored", "52 Kept")
	f.round(60, v(53), v(54))
	f.expect(0, "53 Scored", "54 Scored", "54 Scored")
	f.round(90, v(60), v(60))
	f.expect(0, "53 Scored", "60 Scored", "54 Scored")
}

// TestDeadbandKeepsNoValueOutsideTheRange: the range of a score changed, also while no operator ran.
func TestDeadbandKeepsNoValueOutsideTheRange(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.Deadband, s.Range = 20, v1alpha1.RangeFull
	for _, restart := range []bool{false, true} {
		f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
		f.round(0, v(45))
		f.expect(0, "-10 Scored")
		changed := s
		changed.Range = v1alpha1.RangeZeroTo100
		f.policy, f.last = mustCompile(t, &v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{changed}}), f.last.SkipDamping()
		if restart {
			f.last = FromSeeds(f.policy, []Seed{{Cluster: "c", Scores: map[string]SeedScore{"a": {Value: -10, SampleTime: t0}}}}, t0)
		}
		f.round(30, v(5))
		f.expect(0, "5 Scored")
	}
}
