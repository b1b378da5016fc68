package score

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var t0 = time.Unix(1_700_000_000, 0)

func ptr[T any](v T) *T { return &v }

func linear(name string, from, to string) v1alpha1.ScoreSpec {
	return v1alpha1.ScoreSpec{Name: name, Query: name, Normalize: v1alpha1.Normalize{
		Type:   v1alpha1.NormalizeLinear,
		Linear: &v1alpha1.Linear{From: resource.MustParse(from), To: resource.MustParse(to)},
	}}
}

func identity(name string) v1alpha1.ScoreSpec {
	return v1alpha1.ScoreSpec{Name: name, Query: name, Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeIdentity}}
}

// simulation runs a policy round by round.
type simulation struct {
	t        *testing.T
	policy   *Policy
	clusters []string
	last     *Result
}

func newSimulation(t *testing.T, spec v1alpha1.ScoringPolicySpec, clusters ...string) *simulation {
	return &simulation{t: t, policy: mustCompile(t, &spec), clusters: clusters}
}

// round evaluates at t0 + after seconds. inputs has one slice per score.
func (f *simulation) round(after int, inputs ...[]Input) *Result {
	f.t.Helper()
	f.last = Evaluate(f.policy, Samples{Clusters: f.clusters, Scores: inputs}, f.last, t0.Add(time.Duration(after)*time.Second))
	return f.last
}

// show returns "value State" for each cell of the i-th cluster.
func show(r *Result, i int) []string {
	var out []string
	for _, c := range r.Row(i) {
		out = append(out, fmt.Sprintf("%d %s", c.Value, c.State))
	}
	return out
}

func (f *simulation) expect(i int, want ...string) {
	f.t.Helper()
	if d := cmp.Diff(want, show(f.last, i)); d != "" {
		f.t.Errorf("cluster %s: %s", f.clusters[i], d)
	}
}

func v(values ...float64) []Input {
	out := make([]Input, len(values))
	for i, x := range values {
		out[i].Value = x
	}
	return out
}

func missing(o Outcome, n int) []Input {
	out := make([]Input, n)
	for i := range out {
		out[i].Outcome = o
	}
	return out
}

func TestLinearMatchesUsageCollect(t *testing.T) {
	gpu, cpu := linear("gpu", "0", "20"), linear("cpu", "0", "100")
	gpu.Range, cpu.Range = v1alpha1.RangeFull, v1alpha1.RangeFull
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{gpu, cpu}}, "cluster", "node")
	f.round(0, v(12, 6), v(44, 28))
	f.expect(0, "20 Scored", "-12 Scored")
	f.expect(1, "-40 Scored", "-44 Scored")
}

func TestTotalIsTheWeightedMeanInItsRange(t *testing.T) {
	a, b := linear("a", "0", "10"), linear("b", "0", "10")
	a.Weight, b.Range = ptr(int32(3)), v1alpha1.RangeFull // the weight of b is 1 by default
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(10), v(0))
	f.expect(0, "100 Scored", "-100 Scored", "75 Scored")
}

func TestTotalExcludesScoresOfWeightZero(t *testing.T) {
	a, b := linear("a", "0", "10"), linear("b", "0", "10")
	b.Weight = ptr(int32(0))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(4), missing(Absent, 1))
	f.expect(0, "40 Scored", "-100 Worst", "40 Scored")
}

func TestMissingValueIsKeptThenWorst(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10"), linear("b", "0", "10")}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(6), v(8))
	f.expect(0, "60 Scored", "80 Scored", "70 Scored")
	f.round(30, missing(NaN, 1), v(10))
	f.expect(0, "60 Kept", "100 Scored", "80 Kept")
	cell := f.last.Row(0)[0]
	if got, want := cell.KeptUntil.Time(), t0.Add(300*time.Second); !got.Equal(want) {
		t.Errorf("kept until %v, want %v", got, want)
	}
	if got, want := cell.Since.Time(), t0.Add(30*time.Second); !got.Equal(want) {
		t.Errorf("missing since %v, want %v", got, want)
	}
	f.round(299, missing(NaN, 1), v(10))
	f.expect(0, "60 Kept", "100 Scored", "80 Kept")
	f.round(300, missing(NaN, 1), v(10))
	f.expect(0, "-100 Worst", "100 Scored", "-100 Worst")
	f.round(330, v(6), v(10))
	f.expect(0, "60 Scored", "100 Scored", "80 Scored")
}

func TestKeepTimeStartsAtTheSampleTime(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}, Freshness: &v1alpha1.Freshness{Query: "x"}}, "c")
	f.last = Evaluate(f.policy, Samples{Clusters: f.clusters, Scores: [][]Input{v(6)}, Age: [][]time.Duration{{100 * time.Second}}}, nil, t0)
	f.round(199, missing(Stale, 1))
	f.expect(0, "60 Kept")
	f.round(200, missing(Stale, 1))
	f.expect(0, "-100 Worst")
}

// One failed round of a policy with a long period does not end the keep time.
func TestDefaultKeepTimeFollowsThePeriod(t *testing.T) {
	spec := v1alpha1.ScoringPolicySpec{PeriodSeconds: 600, Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}, Freshness: &v1alpha1.Freshness{Query: "x", MaxAgeSeconds: 300}}
	f := newSimulation(t, spec, "c")
	f.round(0, v(6))
	f.round(1499, missing(Failed, 1))
	f.expect(0, "60 Kept")
	f.round(1500, missing(Failed, 1))
	f.expect(0, "-100 Worst")
}

func TestMissingOutcomes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		missing v1alpha1.Missing
		outcome Outcome
		want    []string
	}{
		{"worst", v1alpha1.Missing{}, Absent, []string{"-100 Worst", "-100 Worst"}},
		{"omit", v1alpha1.Missing{Then: v1alpha1.MissingOmit}, Duplicate, []string{"0 Omitted", "0 Omitted"}},
		{"fixed", v1alpha1.Missing{Absent: v1alpha1.AbsentFixed, FixedValue: ptr(int32(7))}, Absent, []string{"7 Fixed", "7 Scored"}},
		{"never published and the query fails", v1alpha1.Missing{}, Failed, []string{"0 Omitted", "0 Omitted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := linear("a", "0", "10")
			s.Missing = tc.missing
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}, Total: &v1alpha1.TotalSpec{}}, "c")
			f.round(0, missing(tc.outcome, 1))
			f.expect(0, tc.want...)
		})
	}
}

func TestVeto(t *testing.T) {
	a, b := linear("a", "0", "10"), linear("b", "0", "10")
	a.Minimum, a.Maximum, a.Weight = ptr(resource.MustParse("3")), ptr(resource.MustParse("0.8e1")), ptr(int32(0))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(2.9), v(10))
	f.expect(0, "-100 Vetoed", "100 Scored", "-100 Vetoed")
	f.round(30, v(3), v(10))
	f.expect(0, "30 Scored", "100 Scored", "100 Scored")
	f.round(60, v(2), v(10))
	f.round(90, missing(Absent, 1), v(10))
	f.expect(0, "-100 Vetoed", "100 Scored", "-100 Vetoed")
	f.round(120, v(8), v(10))
	f.expect(0, "80 Scored", "100 Scored", "100 Scored")
	f.round(150, v(8.1), v(10))
	f.expect(0, "-100 Vetoed", "100 Scored", "-100 Vetoed")
}

// TestMissingVetoFailsClosed: a score of weight 0 with a minimum decides whether a cluster
// may be used. If it is missing, the total must not look as if the cluster passed.
func TestMissingVetoFailsClosed(t *testing.T) {
	omit, fixed := v1alpha1.Missing{Then: v1alpha1.MissingOmit}, v1alpha1.AbsentFixed
	for _, tc := range []struct {
		name     string
		missing  v1alpha1.Missing
		outcome  Outcome
		before   bool // the veto score had a value before
		at       int
		expected []string
	}{
		{"never seen", v1alpha1.Missing{}, Absent, false, 0, []string{"-100 Worst", "100 Scored", "-100 Worst"}},
		{"kept", v1alpha1.Missing{}, Absent, true, 30, []string{"50 Kept", "100 Scored", "100 Kept"}},
		{"after the keep time", v1alpha1.Missing{}, Absent, true, 300, []string{"-100 Worst", "100 Scored", "-100 Worst"}},
		{"omitted", omit, Absent, true, 300, []string{"0 Omitted", "100 Scored", "-100 Worst"}},
		{"omitted, and the query fails", omit, Failed, true, 300, []string{"0 Omitted", "100 Scored", "-100 Worst"}},
		{"nothing known", v1alpha1.Missing{}, Failed, false, 0, []string{"0 Omitted", "100 Scored", "0 Omitted"}},
		{"fixed", v1alpha1.Missing{Absent: fixed, FixedValue: ptr(int32(0))}, Absent, false, 0, []string{"0 Fixed", "100 Scored", "100 Scored"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := linear("a", "0", "10"), linear("b", "0", "10")
			a.Minimum, a.Weight, a.Missing = ptr(resource.MustParse("3")), ptr(int32(0)), tc.missing
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{}}, "c")
			if tc.before {
				f.round(0, v(5), v(10))
			}
			f.round(tc.at, missing(tc.outcome, 1), v(10))
			f.expect(0, tc.expected...)
		})
	}
}

func TestHalfLife(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.HalfLifeSeconds = 30
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "c")
	f.round(0, v(0))
	f.round(30, v(100))
	f.expect(0, "50 Scored")
	f.round(60, v(100))
	f.expect(0, "75 Scored")
	f.round(120, v(0))
	f.expect(0, "19 Scored")
}

func TestDeadband(t *testing.T) {
	s := linear("a", "0", "100")
	s.Damping.Deadband = 25
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}, Total: &v1alpha1.TotalSpec{}}, "c")
	f.round(0, v(50))
	f.round(30, v(74.9))
	f.expect(0, "50 Scored", "50 Scored")
	f.round(60, v(75))
	f.expect(0, "75 Scored", "75 Scored")
}

func TestDeadbandNeverHidesTheLowestPoints(t *testing.T) {
	for _, tc := range []struct {
		name     string
		damping  v1alpha1.Damping
		scores   v1alpha1.ScoreRange
		seconds  int // from the last free device on
		free     float64
		expected []string
	}{
		{"0", v1alpha1.Damping{Deadband: 25}, v1alpha1.RangeZeroTo100, 30, 20, []string{"0 Scored", "0 Scored"}},
		{"-100 on the full range", v1alpha1.Damping{Deadband: 60}, v1alpha1.RangeFull, 30, 20, []string{"-100 Scored", "0 Scored"}},
		{"the mean approaches 0", v1alpha1.Damping{Deadband: 25, HalfLifeSeconds: 30}, v1alpha1.RangeZeroTo100, 300, 20, []string{"0 Scored", "0 Scored"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := linear("a", "0", "100")
			s.Damping, s.Range = tc.damping, tc.scores
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}, Total: &v1alpha1.TotalSpec{}}, "c")
			f.round(0, v(tc.free))
			for at := 30; at <= tc.seconds; at += 30 {
				f.round(at, v(0))
			}
			f.expect(0, tc.expected...)
		})
	}
}

func TestScoresFollowClustersByName(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}}, "a", "c")
	f.round(0, v(1, 3))
	f.clusters = []string{"b", "c"}
	f.round(30, missing(Absent, 2))
	f.expect(0, "-100 Worst")
	f.expect(1, "30 Kept")
}

// TestNameFromIsNoPartOfTheMean: the names are not known in advance, and clusters have different ones.
func TestNameFromIsNoPartOfTheMean(t *testing.T) {
	a, fit := linear("a", "0", "10"), linear("fit", "0", "10")
	fit.NameFrom = &v1alpha1.NameFrom{Label: "model"}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, fit}, Total: &v1alpha1.TotalSpec{Name: "all"}}, "c")
	f.policy = f.policy.Expand(map[string][]string{"fit": {"fit-a100"}})
	f.round(0, v(4), v(8))
	f.expect(0, "40 Scored", "80 Scored", "40 Scored")
	if want := []string{"a", "fit-a100", "all"}; !slices.Equal(f.last.Names, want) {
		t.Errorf("names %v", f.last.Names)
	}
}

// TestStepsInAnyOrder: a policy from a file may have them in descending order.
func TestStepsInAnyOrder(t *testing.T) {
	s := identity("a")
	s.Normalize = v1alpha1.Normalize{Type: v1alpha1.NormalizeSteps, Steps: []v1alpha1.Step{{From: resource.MustParse("8"), Points: 100}, {From: resource.MustParse("1"), Points: 20}}}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a", "b")
	f.round(0, v(2, 9))
	f.expect(0, "20 Scored")
	f.expect(1, "100 Scored")
}

func TestMaxAge(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{0: 2 * time.Minute, 45: 45 * time.Second} {
		p := mustCompile(t, &v1alpha1.ScoringPolicySpec{Freshness: &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: seconds}})
		if p.MaxAge != want {
			t.Errorf("maxAgeSeconds %d is %s", seconds, p.MaxAge)
		}
	}
}

func TestFleetNormalization(t *testing.T) {
	s := v1alpha1.ScoreSpec{Name: "a", Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeFleet, Fleet: &v1alpha1.Fleet{Method: v1alpha1.FleetMinMax}}}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{s}}, "a", "b", "c")
	in := v(5, 1000, 10)
	in[1].Outcome = NaN
	f.round(0, in)
	f.expect(0, "0 Scored")
	f.expect(1, "-100 Worst")
	f.expect(2, "100 Scored")
}

func TestIdentityIsClamped(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{identity("a")}}, "a", "b", "c")
	r := f.round(0, v(1e12, -5, 50))
	f.expect(0, "100 Scored")
	f.expect(1, "0 Scored")
	if r.Clamped != 2 {
		t.Errorf("clamped %d, want 2", r.Clamped)
	}
}

// TestBoundariesOfDecimals: values at a threshold of the policy reach it, although binary fractions
// are beside it.
func TestBoundariesOfDecimals(t *testing.T) {
	steps := identity("steps")
	steps.Normalize = v1alpha1.Normalize{Type: v1alpha1.NormalizeSteps, Steps: []v1alpha1.Step{
		{From: resource.MustParse("0.3"), Points: 30}, {From: resource.MustParse("0.7"), Points: 70}, {From: resource.MustParse("1Ki"), Points: 90},
	}}
	vetoed, half := linear("vetoed", "0", "1"), linear("half", "0", "200")
	vetoed.Minimum, vetoed.Weight, steps.Weight = ptr(resource.MustParse("0.29")), ptr(int32(0)), ptr(int32(0))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{steps, vetoed, half}, Total: &v1alpha1.TotalSpec{}}, "a", "b", "c")
	f.round(0, v(0.3, 0.7, 1024), v(0.29, 0.2899, 0.3), v(57, 57, 0))
	f.expect(0, "30 Scored", "29 Scored", "29 Scored", "29 Scored")
	f.expect(1, "70 Scored", "-100 Vetoed", "29 Scored", "-100 Vetoed")
	f.expect(2, "90 Scored", "30 Scored", "0 Scored", "0 Scored")
}

// TestUnmatchedVetoOmitsTheTotal: the query of a veto changes and matches no cluster. The total of
// a policy that has published before is omitted, and not -100 on all clusters.
func TestUnmatchedVetoOmitsTheTotal(t *testing.T) {
	veto := linear("veto", "0", "10")
	veto.Minimum, veto.Weight = ptr(resource.MustParse("0.1")), ptr(int32(0))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10"), veto}, Total: &v1alpha1.TotalSpec{}}, "a")
	f.round(0, v(5), v(5))
	f.expect(0, "50 Scored", "50 Scored", "50 Scored")
	f.round(30, v(5), missing(Unmatched, 1))
	f.expect(0, "50 Scored", "50 Kept", "50 Kept")
	if f.last.Row(0)[1].HasMatched() {
		t.Error("the new query has matched")
	}
	f.round(301, v(5), missing(Unmatched, 1))
	f.expect(0, "50 Scored", "0 Omitted", "0 Omitted")
	f.round(331, v(5), missing(Failed, 1))
	f.expect(0, "50 Scored", "0 Omitted", "0 Omitted")
	f.round(361, v(5), missing(Absent, 1))
	f.expect(0, "50 Scored", "-100 Worst", "-100 Worst")
}

func BenchmarkEvaluate10000x10(b *testing.B) {
	var spec v1alpha1.ScoringPolicySpec
	in := Samples{}
	for i := range 10000 {
		in.Clusters = append(in.Clusters, fmt.Sprintf("cluster-%05d", i))
	}
	for s := range 10 {
		spec.Scores = append(spec.Scores, linear(fmt.Sprintf("s%d", s), "0", "100"))
		inputs := make([]Input, len(in.Clusters))
		for i := range inputs {
			inputs[i].Value = float64((i * (s + 7)) % 100)
		}
		in.Scores = append(in.Scores, inputs)
	}
	spec.Total = &v1alpha1.TotalSpec{}
	p := mustCompile(b, &spec)
	last := Evaluate(p, in, nil, t0)
	now := t0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(30 * time.Second)
		last = Evaluate(p, in, last, now)
	}
}

func mustCompile(t testing.TB, spec *v1alpha1.ScoringPolicySpec) *Policy {
	t.Helper()
	p, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
