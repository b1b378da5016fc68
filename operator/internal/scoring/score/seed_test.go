package score

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// at returns the time after t0 in seconds.
func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func TestFromSeedsContinuesKeepTimesAndDamping(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.HalfLifeSeconds = 30
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a", "b")
	f.last = FromSeeds(f.policy, []Seed{
		{Cluster: "b", Scores: map[string]SeedScore{"a": {Value: 40, State: Kept, SampleTime: t0}}},
		{Cluster: "a", Scores: map[string]SeedScore{"a": {Value: 0, SampleTime: t0}}},
	}, t0)
	in := v(100, 0)
	in[1].Outcome = Failed
	f.round(30, in)
	f.expect(0, "50 Scored")
	f.expect(1, "40 Kept")
}

// TestSeedsKeepTheStateOfEachScore: the clusters never had the score b. After a restart
// while most clusters are lost, the score a is still kept and the round is still refused.
func TestSeedsKeepTheStateOfEachScore(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10"), linear("b", "0", "10")}}, "c1", "c2", "c3", "c4")
	var seeds []Seed
	for _, c := range f.clusters {
		seeds = append(seeds, Seed{Cluster: c, Scores: map[string]SeedScore{
			"a": {Value: 70, SampleTime: t0}, "b": {Value: -100, State: Worst, MissingSince: t0.Add(-time.Hour)},
		}})
	}
	f.last = FromSeeds(f.policy, seeds, at(30))
	in := missing(Absent, 4)
	in[0] = Input{Value: 1}
	r := f.round(30, in, missing(Absent, 4))
	if !r.Refused || r.Known != 4 {
		t.Errorf("refused %v with %d known clusters", r.Refused, r.Known)
	}
	for i := range 4 {
		f.expect(i, "70 Kept", "-100 Worst")
	}
	if since := r.Row(0)[1].Since.Time(); !since.Equal(t0.Add(-time.Hour)) {
		t.Errorf("b is missing since %v", since)
	}
	f.round(300, in, missing(Absent, 4))
	f.expect(0, "10 Scored", "-100 Worst")
	f.expect(1, "-100 Worst", "-100 Worst")
}

// TestSeedStates restarts the operator while no query succeeds.
func TestSeedStates(t *testing.T) {
	for _, tc := range []struct {
		state State
		value int32
		then  v1alpha1.MissingOutcome
		want  string
	}{
		{Scored, 40, v1alpha1.MissingWorst, "40 Kept"},
		{Kept, 40, v1alpha1.MissingWorst, "40 Kept"},
		{Vetoed, -100, v1alpha1.MissingOmit, "-100 Vetoed"},
		{Worst, -100, v1alpha1.MissingWorst, "-100 Worst"},
		{Fixed, 7, v1alpha1.MissingWorst, "7 Fixed"},
		{Omitted, 0, v1alpha1.MissingWorst, "0 Omitted"},
	} {
		t.Run(fmt.Sprint(tc.state), func(t *testing.T) {
			s := linear("a", "0", "10")
			s.Minimum, s.Missing = ptr(resource.MustParse("3")), v1alpha1.Missing{Then: tc.then}
			if tc.state == Fixed {
				s.Missing.Absent, s.Missing.FixedValue = v1alpha1.AbsentFixed, ptr(int32(7))
			}
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
			f.last = FromSeeds(f.policy, []Seed{{Cluster: "c", Scores: map[string]SeedScore{"a": {Value: tc.value, State: tc.state, SampleTime: t0}}}}, t0)
			f.round(30, missing(Failed, 1))
			f.expect(0, tc.want)
			f.round(60, v(5))
			f.expect(0, "50 Scored")
		})
	}
}

// TestSeedsRememberMatchedScores: the query of a published score has matched a cluster, and so has that of
// an omitted one, unless the object says that it has not.
func TestSeedsRememberMatchedScores(t *testing.T) {
	spec := v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{
		linear("scored", "0", "10"), linear("omitted", "0", "10"), linear("kept", "0", "10"), linear("unmatched", "0", "10"), linear("new", "0", "10"),
	}}
	r := FromSeeds(mustCompile(t, &spec), []Seed{{Cluster: "c", Scores: map[string]SeedScore{
		"scored": {Value: 50, SampleTime: t0}, "omitted": {State: Omitted},
		"kept": {Value: 50, State: Kept, SampleTime: t0, Unmatched: true}, "unmatched": {State: Omitted, Unmatched: true},
	}}}, t0)
	var got []bool
	for i := range r.Row(0) {
		got = append(got, r.Row(0)[i].HasMatched())
	}
	if want := []bool{true, true, false, false, false}; !slices.Equal(got, want) {
		t.Errorf("matched %v, want %v", got, want)
	}
}

// TestMatchedQueryOfAnOmittedScore: the query had a value, so that it is not a wrong one.
func TestMatchedQueryOfAnOmittedScore(t *testing.T) {
	s := linear("a", "0", "10")
	s.Missing.Then = v1alpha1.MissingOmit
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
	f.round(0, v(5))
	f.round(300, missing(Failed, 1))
	f.expect(0, "0 Omitted")
	if !f.last.Row(0)[0].HasMatched() {
		t.Error("the query has not matched")
	}
}

// TestSeedsContinueTheKeepTimeOfAbsent restarts the operator while the query of a cluster without a
// series fails. The series was missing since the time that the object has, if it has one.
func TestSeedsContinueTheKeepTimeOfAbsent(t *testing.T) {
	fixed := v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
	worst := v1alpha1.Missing{Absent: "Worst", Then: v1alpha1.MissingOmit}
	for _, tc := range []struct {
		name          string
		missing       v1alpha1.Missing
		seed          SeedScore
		during, after string
	}{
		{"no series when the object was written", fixed, SeedScore{Value: 50, State: Fixed, SampleTime: t0}, "50 Fixed", "-100 Worst"},
		{"the query failed before", fixed, SeedScore{Value: 50, State: Fixed, SampleTime: t0, MissingSince: t0}, "50 Fixed", "-100 Worst"},
		{"the keep time has ended", fixed, SeedScore{Value: -100, State: Worst, SampleTime: t0, MissingSince: t0}, "-100 Worst", "-100 Worst"},
		{"absent: Worst", worst, SeedScore{Value: -100, State: Worst, SampleTime: t0}, "-100 Worst", "0 Omitted"},
		{"the clock was set back", fixed, SeedScore{Value: 50, State: Fixed, SampleTime: at(3600)}, "50 Fixed", "-100 Worst"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := linear("a", "0", "10")
			s.Missing = tc.missing
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
			f.last = FromSeeds(f.policy, []Seed{{Cluster: "c", Scores: map[string]SeedScore{"a": tc.seed}}}, t0)
			f.round(299, missing(Failed, 1))
			f.expect(0, tc.during)
			f.round(300, missing(Failed, 1))
			f.expect(0, tc.after)
		})
	}
}

// TestSeedsKeepTheTotalOfAnOmittedVeto: the series of a veto are gone on all clusters, so it is
// omitted, and the totals are -100. They stay -100 after a restart. A new query of a veto that
// never matched a cluster does not set totals to -100, whatever the other scores were.
func TestSeedsKeepTheTotalOfAnOmittedVeto(t *testing.T) {
	veto := linear("veto", "0", "10")
	veto.Minimum, veto.Weight, veto.Missing.Then = ptr(resource.MustParse("0.1")), ptr(int32(0)), v1alpha1.MissingOmit
	spec := v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10"), veto}, Total: &v1alpha1.TotalSpec{}}
	good, worst := SeedScore{Value: 50, SampleTime: t0}, SeedScore{Value: -100, State: Worst}
	for _, tc := range []struct {
		name    string
		a       SeedScore
		total   *SeedScore
		outcome Outcome // of the veto
		want    string
	}{
		{"the veto was known", good, &worst, Absent, "-100 Worst"},
		{"the veto was never known", good, nil, Unmatched, "0 Omitted"},
		{"the veto was never known, and the total was that of another score", worst, &worst, Unmatched, "0 Omitted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newSimulation(t, spec, "c")
			hasMatched := tc.outcome != Unmatched
			seed := Seed{Cluster: "c", Scores: map[string]SeedScore{"a": tc.a, "veto": {State: Omitted, Unmatched: !hasMatched}}}
			if tc.total != nil {
				seed.Scores["total"] = *tc.total
			}
			f.last = FromSeeds(f.policy, []Seed{seed}, t0)
			f.round(30, v(5), missing(tc.outcome, 1))
			f.expect(0, "50 Scored", "0 Omitted", tc.want)
			if got := f.last.Row(0)[1].HasMatched(); got != hasMatched {
				t.Errorf("the query has matched after the round: %t", got)
			}
			f.round(60, v(5), v(5))
			f.expect(0, "50 Scored", "50 Scored", "50 Scored")
		})
	}
}

// TestSeedFromTheFuture: the clock was set back while no operator ran. Neither the keep time nor
// the mean reaches beyond its limits.
func TestSeedFromTheFuture(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.HalfLifeSeconds = 30
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a", "b")
	seeds := []Seed{
		{Cluster: "a", Scores: map[string]SeedScore{"a": {Value: 90, SampleTime: at(60)}}},
		{Cluster: "b", Scores: map[string]SeedScore{"a": {Value: 90, SampleTime: at(60)}}},
	}
	f.last = FromSeeds(f.policy, seeds, t0)
	in := v(0, 0)
	in[1].Outcome = Failed
	f.round(0, in)
	f.expect(0, "90 Scored")
	if until := f.last.Row(1)[0].KeptUntil.Time(); !until.Equal(at(300)) {
		t.Errorf("kept until %v", until)
	}
}

// TestClockSetBackBetweenRounds: points stay inside the range.
func TestClockSetBackBetweenRounds(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.HalfLifeSeconds = 30
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a")
	f.round(600, v(100))
	f.round(570, v(50))
	f.expect(0, "100 Scored")
}

// TestSeedOutsideTheRange: the range of the score changed while no operator ran.
func TestSeedOutsideTheRange(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.HalfLifeSeconds = 3600
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a")
	f.last = FromSeeds(f.policy, []Seed{{Cluster: "a", Scores: map[string]SeedScore{"a": {Value: -80, SampleTime: t0}}}}, t0)
	f.round(30, v(10))
	f.expect(0, "0 Scored")
}

// TestSeedsOfClustersThatHadValues: b is what the object has beside a, which is missing.
func TestSeedsOfClustersThatHadValues(t *testing.T) {
	a, b := linear("a", "0", "10"), linear("b", "0", "10")
	b.Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
	worst := SeedScore{Value: Lowest, State: Worst, MissingSince: t0}
	for _, tc := range []struct {
		name  string
		a, b  SeedScore
		stale bool
		want  bool
	}{
		{"the query failed", worst, SeedScore{Value: 50, State: Fixed, SampleTime: t0}, false, false},
		{"stale", worst, worst, true, true},
		{"one stale, one accepted", worst, SeedScore{Value: 50, State: Fixed, SampleTime: t0}, true, true},
		{"stale for more than a day", SeedScore{Value: Lowest, State: Worst, MissingSince: at(-90000)}, SeedScore{Value: 40, SampleTime: t0}, true, true},
		{"a value", worst, SeedScore{Value: 40, SampleTime: t0}, false, true},
		{"a kept value", worst, SeedScore{Value: 40, State: Kept, SampleTime: t0, MissingSince: t0}, false, true},
		{"a veto", worst, SeedScore{Value: Lowest, State: Vetoed, SampleTime: t0}, false, true},
		{"omitted", SeedScore{State: Omitted, MissingSince: t0}, SeedScore{State: Omitted, MissingSince: t0}, false, false},
		{"stale and omitted", SeedScore{State: Omitted, MissingSince: t0}, SeedScore{State: Omitted, MissingSince: t0}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{}}, "c")
			f.last = FromSeeds(f.policy, []Seed{{Cluster: "c", Stale: tc.stale, Scores: map[string]SeedScore{
				"a": tc.a, "b": tc.b, "total": {Value: 50, SampleTime: t0},
			}}}, at(30))
			if got := f.last.HadValue("c", f.last.Names, at(30)); got != tc.want {
				t.Errorf("had a value: %t", got)
			}
			f.round(60, v(5), missing(Failed, 1))
			if !f.last.HadValue("c", f.last.Names, at(60)) {
				t.Error("after a value, it had none")
			}
		})
	}
}
