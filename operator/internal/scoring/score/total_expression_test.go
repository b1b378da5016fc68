package score

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// totalSpec returns a policy with the scores a and power-cap, and one named by nameFrom.
func totalSpec(expression string) v1alpha1.ScoringPolicySpec {
	spec := v1alpha1.ScoringPolicySpec{
		Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10"), linear("power-cap", "0", "10"), linear("fit", "0", "10")},
		Total:  &v1alpha1.TotalSpec{Expression: expression},
	}
	spec.Scores[2].NameFrom = &v1alpha1.NameFrom{Label: "model"}
	return spec
}

func TestTotalExpressionErrors(t *testing.T) {
	for _, tc := range []struct{ expression, want string }{
		{`scores.b`, `total.expression: scores.b: the policy has no score b; its scores are a, power-cap, fit`},
		{`scores["power-cup"]`, `total.expression: scores["power-cup"]: the policy has no score power-cup`},
		{`scores[?"power-cup"].orValue(1.0)`, `the policy has no score power-cup`},
		{`score.a`, `total.expression: 1:1: undeclared reference to 'score': the scores of the policy are in the map scores`},
		{`min(a, scores.a)`, `total.expression: 1:5: undeclared reference to 'a': write scores.a`},
		{`scores.a +`, `total.expression: 1:11: Syntax error`},
		{`scores.a > 5.0`, `total.expression: must be a number, but is bool`},
		{`scores.a * 2`, `found no matching overload for '_*_' applied to '(double, int)'`},
		{`scores.fit`, `scores.fit: the score fit has nameFrom: name one of its scores, as in scores[?"fit-a100"].orValue(0.0)`},
		{`scores[?"a-x"].orValue(1.0)`, `the policy has no score a-x`},
		{`scores["fit-a100"]`, `scores["fit-a100"]: not every cluster has this score: write scores[?"fit-a100"].orValue(0.0)`},
	} {
		spec := totalSpec(tc.expression)
		if _, err := Compile(&spec); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.expression, err, tc.want)
		}
	}
}

func TestTotalExpressionValues(t *testing.T) {
	for _, tc := range []struct {
		expression string
		want       float64
	}{
		{`min(scores.a, scores["power-cap"])`, 30},
		{`max(scores.a, scores["power-cap"], 90)`, 90},
		{`min([scores.a, 10])`, 10},
		{`0.5 * scores.a + 0.5 * scores["power-cap"]`, 50},
		{`scores.a < 40 ? 0.0 : scores["power-cap"]`, 0},
		{`max(scores[?"fit-a100"].orValue(0.0), scores[?"fit-h100"].orValue(0.0))`, 60},
		{`"fit-h100" in scores ? 1.0 : 2.0`, 2},
		{`scores.all(s, scores[s] > 20.0) ? 100.0 : 0.0`, 100},
		{`"fit-a100" in scores ? 1 : 2`, 1},
	} {
		spec := totalSpec(tc.expression)
		p, err := Compile(&spec)
		if err != nil {
			t.Errorf("%s: %v", tc.expression, err)
			continue
		}
		got, err := p.expression.evaluate(map[string]float64{"a": 30, "power-cap": 70, "fit-a100": 60})
		if err != nil || got != tc.want {
			t.Errorf("%s: got %v, %v, want %v", tc.expression, got, err, tc.want)
		}
	}
}

func TestTotalExpressionFailures(t *testing.T) {
	for _, tc := range []struct{ expression, want string }{
		{`scores.a / 0.0`, "not a finite number"},
		{`min(0.0 / 0.0, scores.a)`, "not a finite number"},
		{`max([scores.a, 0.0 / 0.0])`, "not a finite number"},
		{`min([])`, "min and max need a number"},
		{`min(["low", "high"])`, "string is not a number"},
		{`0.0 / 0.0`, "not a finite number"},
		{`[scores.a][1]`, "index out of bounds"},
		{`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, a + b + c + d > 0)))) ? scores.a : 1.0`, "cost limit exceeded"},
	} {
		spec := totalSpec(tc.expression)
		p, err := Compile(&spec)
		if err != nil {
			t.Errorf("%s: %v", tc.expression, err)
			continue
		}
		if _, err := p.expression.evaluate(map[string]float64{"a": 30}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.expression, err, tc.want)
		}
	}
}

// TestTotalExpressionFollowsItsParts: the scores that the expression names decide the state of
// the total, whatever their weight. Others do not matter.
func TestTotalExpressionFollowsItsParts(t *testing.T) {
	a, b, c := linear("a", "0", "10"), linear("b", "0", "10"), linear("c", "0", "10")
	a.Weight = ptr(int32(0))
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a, b, c}, Total: &v1alpha1.TotalSpec{Expression: "min(scores.a, scores.b)"}}, "c1", "c2")
	f.round(0, v(2, 9), v(8, 4), v(1, 1))
	f.expect(0, "20 Scored", "80 Scored", "10 Scored", "20 Scored")
	f.expect(1, "90 Scored", "40 Scored", "10 Scored", "40 Scored")
	f.round(30, v(3, 9), missing(NaN, 2), missing(NaN, 2))
	f.expect(0, "30 Scored", "80 Kept", "10 Kept", "30 Kept")
	f.round(300, v(3, 9), v(8, 4), missing(NaN, 2))
	f.expect(0, "30 Scored", "80 Scored", "-100 Worst", "30 Scored")
	f.round(330, missing(NaN, 2), v(8, 4), missing(NaN, 2))
	f.round(700, missing(NaN, 2), v(8, 4), missing(NaN, 2))
	f.expect(0, "-100 Worst", "80 Scored", "-100 Worst", "-100 Worst")
}

// TestTotalExpressionThatFails: a wrong expression publishes no total, and is reported.
func TestTotalExpressionThatFails(t *testing.T) {
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10")}, Total: &v1alpha1.TotalSpec{Expression: "100.0 / scores.a"}}, "c1", "c2")
	r := f.round(0, v(5, 0))
	f.expect(0, "50 Scored", "2 Scored")
	f.expect(1, "0 Scored", "0 Omitted")
	if got := showTotal(f.round(30, v(0, 0))); got != "0 Omitted (Invalid), since 30 s" {
		t.Error(got)
	}
	if r.TotalErr == nil || r.TotalErr.Error() != "total.expression fails for cluster c2: the result is not a finite number" {
		t.Error(r.TotalErr)
	}
}

// TestOptionalScoreThatIsMissing: a score that the expression reads with a default, or only tests,
// does not make the total -100.
func TestOptionalScoreThatIsMissing(t *testing.T) {
	for _, expression := range []string{
		`scores[?"b"].orValue(10.0)`, `scores.?b.orValue(10.0)`, `has(scores.b) ? scores.a : 10.0`, `"b" in scores ? scores.a : 10.0`,
		`{"b": 10.0}.b`, `{"b": 10.0}["b"]`, `{"unknown": 10.0}["unknown"]`,
	} {
		f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("a", "0", "10"), linear("b", "0", "10")}, Total: &v1alpha1.TotalSpec{Expression: expression}}, "c")
		f.round(0, v(5), missing(NaN, 1))
		if got := show(f.last, 0)[2]; got != "10 Scored" {
			t.Errorf("%s: %s", expression, got)
		}
	}
}

// TestTotalExpressionReadsTheFixedValue: the fixed value of an absent score is the one in the expression.
func TestTotalExpressionReadsTheFixedValue(t *testing.T) {
	a := linear("a", "0", "10")
	a.Missing = v1alpha1.Missing{Absent: v1alpha1.AbsentFixed, FixedValue: ptr(int32(7))}
	f := newSimulation(t, v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{a}, Total: &v1alpha1.TotalSpec{Expression: "scores.a * 2.0"}}, "c")
	f.round(0, missing(Absent, 1))
	f.expect(0, "7 Fixed", "14 Scored")
}
