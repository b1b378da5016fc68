package membership

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const period = 10 * time.Second

// decided returns clusters from pairs of name and points. nil means unknown points.
func decided(pairs ...any) []Ranked {
	var list []Ranked
	for i := 0; i < len(pairs); i += 2 {
		r := Ranked{Name: pairs[i].(string)}
		if points, ok := pairs[i+1].(int); ok {
			r.Points = gate.Known(float64(points))
		}
		list = append(list, r)
	}
	return list
}

// planRounds plans one round per element of rounds, and returns the clusters of each.
func planRounds(ranked bool, current []string, inUse map[string]bool, rounds ...[]Ranked) [][]string {
	var history History
	var planned [][]string
	for i, d := range rounds {
		current = Plan(current, d, inUse, &history, Settings{Period: period, Ranked: ranked}, t0.Add(time.Duration(i)*period)).Clusters
		planned = append(planned, current)
	}
	return planned
}
