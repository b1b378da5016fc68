package score

import (
	"fmt"
	"math"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// showTotal returns the total of the only cluster with its outcome and times, as kubectl plimsoll
// explain shows them.
func showTotal(r *Result) string {
	c := r.Row(0)[len(r.Names)-1]
	text := fmt.Sprintf("%d %s (%s)", c.Value, c.State, c.Outcome)
	for _, part := range []struct {
		name string
		at   Instant
	}{{"since", c.Since}, {"sample at", c.SampleTime}, {"kept until", c.KeptUntil}} {
		if !part.at.IsZero() {
			text += fmt.Sprintf(", %s %d s", part.name, int(part.at.Time().Sub(t0)/time.Second))
		}
	}
	return text
}

// TestTotalHasTheOutcomeAndTimesOfItsWorstPart: a part without a usable value decides. The oldest
// sample and the earliest end of a keep time count.
func TestTotalHasTheOutcomeAndTimesOfItsWorstPart(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b [3]Outcome // at 0, 210 and 240 s; a is kept for 300 s and b for 100 s
		want string
	}{
		{"all fresh", [3]Outcome{}, [3]Outcome{}, "50 Scored (OK), sample at 240 s"},
		{"a is kept", [3]Outcome{OK, NaN, NaN}, [3]Outcome{}, "50 Kept (NaN), since 210 s, sample at 0 s, kept until 300 s"},
		{"b is kept", [3]Outcome{}, [3]Outcome{OK, OK, Stale}, "50 Kept (Stale), since 240 s, sample at 210 s, kept until 310 s"},
		{"both are kept, a ends first", [3]Outcome{OK, NaN, NaN}, [3]Outcome{OK, OK, Stale}, "50 Kept (Stale), since 210 s, sample at 0 s, kept until 300 s"},
		{"both are kept, b ends first", [3]Outcome{OK, OK, NaN}, [3]Outcome{OK, OK, Stale}, "50 Kept (Stale), since 240 s, sample at 210 s, kept until 310 s"},
		{"a is fresh again", [3]Outcome{OK, NaN, OK}, [3]Outcome{}, "50 Scored (OK), sample at 240 s"},
		{"a is kept, the keep time of b has ended", [3]Outcome{OK, OK, NaN}, [3]Outcome{OK, Stale, Stale}, "-100 Worst (Stale), since 210 s"},
		{"a was never known", [3]Outcome{Failed, Failed, Failed}, [3]Outcome{}, "0 Omitted (Failed), since 0 s"},
		{"a has no series, as accepted", [3]Outcome{Absent, Absent, Absent}, [3]Outcome{}, "50 Scored (None)"},
		{"b has no series, as accepted", [3]Outcome{}, [3]Outcome{Absent, Absent, Absent}, "50 Scored (None)"},
		{"a has no series, and b is kept", [3]Outcome{Absent, Absent, Absent}, [3]Outcome{OK, OK, NaN}, "50 Kept (NaN), since 240 s, kept until 310 s"},
		{"b has no series, and a is kept", [3]Outcome{OK, OK, NaN}, [3]Outcome{Absent, Absent, Absent}, "50 Kept (NaN), since 240 s, kept until 510 s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b, other := linear("a", "0", "10"), linear("b", "0", "10"), linear("other", "0", "10")
			a.Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr(int32(50))}
			b.Missing = a.Missing
			b.Missing.KeepLastSeconds, other.Weight = ptr(int32(100)), ptr(int32(0))
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b, other}, Total: &v1alpha1.TotalSpec{}}, "c")
			for i, at := range []int{0, 210, 240} {
				f.round(at, []Input{{5, tc.a[i]}}, []Input{{5, tc.b[i]}}, missing(NaN, 1))
			}
			if got := showTotal(f.last); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if total := f.last.Row(0)[3]; total.State != Omitted && total.State != Worst && !math.IsNaN(total.Raw) {
				t.Errorf("a total has no raw value, got %v", total.Raw)
			}
		})
	}
}

// TestTotalWithoutWeights: there is nothing to calculate a mean from.
func TestTotalWithoutWeights(t *testing.T) {
	a := linear("a", "0", "10")
	a.Weight = ptr(int32(0))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a}, Total: &v1alpha1.TotalSpec{}}, "c")
	if got := showTotal(f.round(0, v(5))); got != "0 Omitted (Absent), since 0 s" {
		t.Error(got)
	}
}

func TestTotalInTheFullRange(t *testing.T) {
	a, b := linear("a", "0", "10"), linear("b", "0", "10")
	b.Range = v1alpha1.RangeFull
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b}, Total: &v1alpha1.TotalSpec{Range: v1alpha1.RangeFull}}, "c")
	f.round(0, v(2), v(4))
	f.expect(0, "20 Scored", "-20 Scored", "-40 Scored")
}

// TestDeadbandOfATotal: the largest deadband of its parts applies, and no other one.
func TestDeadbandOfATotal(t *testing.T) {
	for _, tc := range []struct {
		name       string
		expression string
		weights    [3]int32
		want       string // 50, then 59
	}{
		{"mean", "", [3]int32{1, 1, 1}, "50 Scored"},
		{"mean without the score with the deadband", "", [3]int32{1, 0, 1}, "59 Scored"},
		{"expression", "(scores.a + scores.b + scores.c) / 3.0", [3]int32{1, 1, 1}, "50 Scored"},
		{"expression without the score with the deadband", "(scores.a + scores.c) / 2.0", [3]int32{1, 1, 1}, "59 Scored"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scores := []v1alpha1.ScoreSpec{linear("a", "0", "100"), linear("b", "0", "100"), linear("c", "0", "100")}
			for i, deadband := range []int32{2, 20, 0} {
				scores[i].Weight, scores[i].Damping.Deadband = &tc.weights[i], deadband
			}
			f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: scores, Total: &v1alpha1.TotalSpec{Expression: tc.expression}}, "c")
			f.round(0, v(50), v(50), v(50))
			f.round(30, v(59), v(59), v(59))
			if got := show(f.last, 0)[3]; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
