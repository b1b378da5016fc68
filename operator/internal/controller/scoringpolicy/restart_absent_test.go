package scoringpolicy

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// absentPolicies have a freshness query, and scores that some clusters have no series for.
var absentPolicies = map[string]func(spec *v1alpha1.ScoringPolicySpec){
	"Missing": func(*v1alpha1.ScoringPolicySpec) {},
	"Worst":   func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Absent = "Worst" },
	"Omit":    func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Absent = "Omit" },
	"Fixed":   func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing = fixedIfAbsent() },
	"Fixed, then Omit": func(s *v1alpha1.ScoringPolicySpec) {
		s.Scores[0].Missing = fixedIfAbsent()
		s.Scores[0].Missing.Then = v1alpha1.MissingOmit
	},
	"Omit, no total":  func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Absent, s.Total = "Omit", nil },
	"Fixed, no total": func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing, s.Total = fixedIfAbsent(), nil },
	"Fixed and Missing": func(s *v1alpha1.ScoringPolicySpec) {
		addScore(s)
		s.Scores[0].Missing = fixedIfAbsent()
	},
	"Omit and Missing": func(s *v1alpha1.ScoringPolicySpec) {
		addScore(s)
		s.Scores[0].Missing.Absent = "Omit"
	},
	"Omit and Fixed": func(s *v1alpha1.ScoringPolicySpec) {
		addScore(s)
		s.Scores[0].Missing.Absent, s.Scores[1].Missing = "Omit", fixedIfAbsent()
	},
}

func fixedIfAbsent() v1alpha1.Missing {
	fifty := int32(50)
	return v1alpha1.Missing{Absent: "Fixed", FixedValue: &fifty}
}

// addScore adds the score b of the query other, like the first score.
func addScore(s *v1alpha1.ScoringPolicySpec) {
	b := s.Scores[0]
	b.Name, b.Query = "b", "other"
	s.Scores = append(s.Scores, b)
}

// newAbsentRestart starts a policy whose clusters c1 and c2 have all series. The cluster c3 has none.
func newAbsentRestart(t *testing.T, change func(*v1alpha1.ScoringPolicySpec)) (*sourceRestart, *fakeFleet) {
	t.Helper()
	two, ages := map[string]float64{"c1": 1, "c2": 2}, map[string]float64{"c1": 1, "c2": 1}
	fleet := &fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": two, "other": maps.Clone(two), "age": ages}}
	s := newSourceRestart(t, fleet)
	policy := s.policy()
	change(&policy.Spec)
	policy.Spec.Freshness = &v1alpha1.Freshness{Query: "age"}
	if err := s.hub.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.round(0)
	return s, fleet
}

// rowAfter runs a round and returns the scores of the i-th cluster.
func (s *sourceRestart) rowAfter(after time.Duration, i int) string {
	s.t.Helper()
	text := ""
	result := s.round(after).report.Result
	for j, c := range result.Row(i) {
		text += fmt.Sprintf("%s %d %s %s, ", result.Names[j], c.Value, c.State, c.Outcome)
	}
	return text
}

// TestClusterWithoutSeriesAfterRestart: neither a restart nor a source that was down at the time says that
// the cluster had a value.
func TestClusterWithoutSeriesAfterRestart(t *testing.T) {
	down := errors.New("connection refused")
	for name, change := range absentPolicies {
		for _, outage := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, outage %t", name, outage), func(t *testing.T) {
				s, fleet := newAbsentRestart(t, change)
				before := s.rowAfter(400*time.Second, 2)
				if outage {
					fleet.failures = map[string]error{"free": down, "other": down, "age": down}
					s.round(500 * time.Second)
					s.round(1000 * time.Second) // the keep times have ended
				}
				s.restart()
				fleet.failures = nil
				for _, after := range []time.Duration{1030 * time.Second, time.Hour, 2 * time.Hour} {
					if got := s.rowAfter(after, 2); got != before {
						t.Errorf("after %s: %s, before: %s", after, got, before)
					}
				}
			})
		}
	}
}

// TestLostClusterAfterRestart: the sample time of a cluster that died vanishes after an hour. It stays Stale
// for a day after its last value, also if the operator restarts at any time.
func TestLostClusterAfterRestart(t *testing.T) {
	for name, change := range absentPolicies {
		if name == "Missing" {
			continue // Absent and Stale are the same
		}
		t.Run(name, func(t *testing.T) {
			s, fleet := newAbsentRestart(t, change)
			delete(fleet.values["free"], "c2")
			delete(fleet.values["other"], "c2")
			fleet.values["age"]["c2"] = 1800
			want := s.rowAfter(1800*time.Second, 1)
			delete(fleet.values["age"], "c2")
			for _, after := range []time.Duration{2 * time.Hour, 3 * time.Hour, 23 * time.Hour} {
				s.restart()
				for _, later := range []time.Duration{0, 30 * time.Second} {
					if got := s.rowAfter(after+later, 1); got != want {
						t.Errorf("after %s: %s, before: %s", after+later, got, want)
					}
				}
			}
		})
	}
}
