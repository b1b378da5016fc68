package scoringpolicy

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestTimeToNextRound: the next round starts when the earliest hold ends, or when the policy
// is due.
func TestTimeToNextRound(t *testing.T) {
	policy := &v1alpha1.ScoringPolicy{}
	policy.Spec.SourceRef.Name = "thanos"
	due := lastDue(policy, now)
	fresh := healthy.round(newSpec("free"), nil, due)
	silent := fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": {"c1": 1, "c2": 2}}}
	for _, tc := range []struct {
		name     string
		round    *completedRound
		at, want time.Duration // since the policy was due
	}{
		{"no hold", fresh, 0, 30 * time.Second},
		{"a round that took time", fresh, 7 * time.Second, 23 * time.Second},
		{"a hold that ends later", silent.round(newSpec("free"), fresh.report.Result, due.Add(30*time.Second)), 30 * time.Second, 30 * time.Second},
		{"a hold that ends earlier", silent.round(newSpec("free"), fresh.report.Result, due.Add(290*time.Second)), 290 * time.Second, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := timeToNextRound(policy, tc.round, due.Add(tc.at)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
