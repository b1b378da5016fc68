package scoringpolicy

import (
	"testing"
	"time"
)

// TestTimeToNextRound: the next round starts when the earliest hold ends, at the latest
// after a period.
func TestTimeToNextRound(t *testing.T) {
	fresh := healthy.round(newSpec("free"), nil, now)
	silent := fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": {"c1": 1, "c2": 2}}}
	for _, tc := range []struct {
		name     string
		round    *completedRound
		min, max time.Duration
	}{
		{"no hold", fresh, 28500 * time.Millisecond, 31500 * time.Millisecond},
		{"a hold that ends later", silent.round(newSpec("free"), fresh.report.Result, now.Add(30*time.Second)), 28500 * time.Millisecond, 31500 * time.Millisecond},
		{"a hold that ends earlier", silent.round(newSpec("free"), fresh.report.Result, now.Add(290*time.Second)), 10 * time.Second, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := timeToNextRound(tc.round, tc.round.in.request.Now); got < tc.min || got > tc.max {
				t.Errorf("got %v, want %v to %v", got, tc.min, tc.max)
			}
		})
	}
}
