//go:build !race

package unittest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

// TestTestsOfRecipesFailAfterChanges checks that the tests of a recipe fail after any change
// of a query, a normalization, a veto, a weight or of freshness of a policy, and without a requirement or a query
// of a gate.
func TestTestsOfRecipesFailAfterChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("many runs of the command")
	}
	a := &command.App{}
	for _, file := range glob(t, "tests/*.yaml") {
		suite, err := readTestFile(a, file)
		if err != nil {
			t.Fatal(err)
		}
		suite.label = "cluster"
		changes := map[string]func(*testSuite){}
		if suite.gate != nil {
			changes = gateChanges(&suite.gate.Spec)
		} else {
			for name, change := range policyChanges(&suite.policy.Spec) {
				changes[name] = func(s *testSuite) { change(&s.policy.Spec) }
			}
		}
		for name, change := range changes {
			changed := *suite
			changed.policy, changed.gate = suite.policy.DeepCopy(), suite.gate.DeepCopy()
			change(&changed)
			failed := false
			for i := range suite.tests {
				differ, err := suite.tests[i].run(context.Background(), a, &changed)
				failed = failed || err != nil || len(differ) > 0
			}
			if !failed {
				t.Errorf("the tests in %s pass after the change of %s", file, name)
			}
		}
	}
}

// gateChanges returns functions that remove a requirement or a query of a gate, by what they remove.
func gateChanges(spec *v1alpha1.PlacementGateSpec) map[string]func(*testSuite) {
	all := map[string]func(*testSuite){}
	for i := range spec.Requirements {
		all["requirement "+spec.Requirements[i].Name] = func(s *testSuite) { s.gate.Spec.Requirements = slices.Delete(s.gate.Spec.Requirements, i, i+1) }
		if spec.Requirements[i].Absent == v1alpha1.AbsentMet {
			all["absent of "+spec.Requirements[i].Name] = func(s *testSuite) { s.gate.Spec.Requirements[i].Absent = "" }
		}
	}
	if spec.Queries.Preference != "" {
		all["preference"] = func(s *testSuite) { s.gate.Spec.Queries.Preference = "" }
	}
	if spec.Queries.Fit != "" {
		all["fit"] = func(s *testSuite) { s.gate.Spec.Queries.Fit = "" }
	}
	return all
}

// policyChanges returns functions that change a policy, by the name of the change.
func policyChanges(spec *v1alpha1.ScoringPolicySpec) map[string]func(*v1alpha1.ScoringPolicySpec) {
	all := map[string]func(*v1alpha1.ScoringPolicySpec){}
	if spec.Freshness != nil {
		all["freshness"] = func(s *v1alpha1.ScoringPolicySpec) { s.Freshness = nil }
		all["freshness.maxAgeSeconds"] = func(s *v1alpha1.ScoringPolicySpec) { s.Freshness.MaxAgeSeconds = 86400 }
	}
	for i := range spec.Scores {
		original := &spec.Scores[i]
		add := func(name string, change func(*v1alpha1.ScoreSpec)) {
			all[original.Name+"'s "+name] = func(s *v1alpha1.ScoringPolicySpec) { change(&s.Scores[i]) }
		}
		add("query", func(s *v1alpha1.ScoreSpec) { s.Query = fmt.Sprintf("-0.9 * (%s)", s.Query) })
		add("query by a tenth", func(s *v1alpha1.ScoreSpec) {
			if s.Normalize.Fleet != nil {
				s.Query = fmt.Sprintf("(%s) ^ 2", s.Query)
				return
			}
			s.Query = fmt.Sprintf("1.1 * (%s)", s.Query)
		})
		if original.Normalize.Linear != nil {
			add("from", func(s *v1alpha1.ScoreSpec) { s.Normalize.Linear.From = nearFrom(s.Normalize.Linear) })
			add("to", func(s *v1alpha1.ScoreSpec) { s.Normalize.Linear.To = nearFrom(s.Normalize.Linear) })
		}
		if original.Normalize.Fleet != nil {
			add("order", func(s *v1alpha1.ScoreSpec) { s.Normalize.Fleet.Descending = !s.Normalize.Fleet.Descending })
		}
		if original.Minimum != nil || original.Maximum != nil {
			add("veto", func(s *v1alpha1.ScoreSpec) { s.Minimum, s.Maximum = nil, nil })
		}
		if hasOtherScores := slices.ContainsFunc(spec.Scores, func(s v1alpha1.ScoreSpec) bool { return s.Name != original.Name && (s.Weight == nil || *s.Weight > 0) }); spec.Total != nil && hasOtherScores {
			add("weight", func(s *v1alpha1.ScoreSpec) { w := int32(7); s.Weight = &w })
		}
		add("range", func(s *v1alpha1.ScoreSpec) {
			s.Range = map[v1alpha1.ScoreRange]v1alpha1.ScoreRange{"": v1alpha1.RangeFull, v1alpha1.RangeFull: ""}[s.Range]
		})
	}
	return all
}

// nearFrom returns the value a tenth of the way between from and to.
func nearFrom(l *v1alpha1.Linear) resource.Quantity {
	from, to := l.From.AsApproximateFloat64(), l.To.AsApproximateFloat64()
	return resource.MustParse(fmt.Sprintf("%.6f", from+(to-from)/10))
}
