package membership

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

const (
	// MaxClusters of a MultiKueueConfig, as Kueue's API allows.
	MaxClusters = 20
	// OrderGain in points that a cluster must lead by to move ahead of another.
	OrderGain = 10
	// SteadyRounds that a change of members or order must last.
	SteadyRounds = 2
)

// Ranked cluster of a Placement. One without points comes last.
type Ranked struct {
	Name   string
	Points gate.Number
}

// lead of points a over points b, which is without bound over none.
func lead(a, b gate.Number) float64 {
	switch {
	case !a.Known && !b.Known:
		return 0
	case !a.Known:
		return math.Inf(-1)
	case !b.Known:
		return math.Inf(1)
	}
	return a.Value - b.Value
}

// Memory of a configuration between rounds. Its zero value is ready.
type History struct {
	undecidedSince map[string]time.Time
	order          []string
	orderSince     time.Time
}

// Wanted configuration.
type Result struct {
	Clusters []string
	// Truncated clusters are decided and found no free slot.
	Truncated []string
	// Unsettled says that another look is needed in a round's time.
	Pending bool
}

// Membership of a MultiKueueConfig. A cluster enters only a free slot. It
// leaves only when it is neither decided nor in use for two rounds of a period:
// leaving earlier would make Kueue evict what runs there. The last member never
// leaves. The order follows the points, but only by a gain that lasts.
func Plan(current []string, decided []Ranked, inUse map[string]bool, memory *History, period time.Duration, now time.Time) Result {
	points := map[string]gate.Number{}
	for _, r := range decided {
		points[r.Name] = r.Points
	}
	if memory.undecidedSince == nil {
		memory.undecidedSince = map[string]time.Time{}
	}
	var w Result
	for _, name := range current {
		_, stays := points[name]
		if stays || inUse[name] {
			delete(memory.undecidedSince, name)
			w.Clusters, w.Pending = append(w.Clusters, name), w.Pending || !stays
			continue
		}
		since, seen := memory.undecidedSince[name]
		if !seen {
			memory.undecidedSince[name], since = now, now
		}
		if now.Sub(since) < SteadyRounds*period {
			w.Clusters, w.Pending = append(w.Clusters, name), true
		}
	}
	maps.DeleteFunc(memory.undecidedSince, func(name string, _ time.Time) bool { return !slices.Contains(current, name) })
	if len(w.Clusters) == 0 && len(decided) == 0 {
		return Result{Clusters: slices.Clone(current)}
	}
	joining := slices.Clone(decided)
	slices.SortStableFunc(joining, func(a, b Ranked) int { return cmp.Compare(lead(b.Points, a.Points), 0) })
	for _, r := range joining {
		switch {
		case slices.Contains(w.Clusters, r.Name):
		case len(w.Clusters) < MaxClusters:
			w.Clusters = append(w.Clusters, r.Name)
		default:
			w.Truncated = append(w.Truncated, r.Name)
		}
	}
	w.Clusters, w.Pending = memory.settle(w.Clusters, points, w.Pending, period, now)
	return w
}

// settle the order: a new one counts once it has been wanted for two rounds.
func (m *History) settle(clusters []string, points map[string]gate.Number, unsettled bool, period time.Duration, now time.Time) ([]string, bool) {
	order := reorder(clusters, points)
	if slices.Equal(order, clusters) {
		m.order = nil
		return clusters, unsettled
	}
	if !slices.Equal(order, m.order) {
		m.order, m.orderSince = order, now
	}
	if now.Sub(m.orderSince) < SteadyRounds*period {
		return clusters, true
	}
	m.order = nil
	return order, unsettled
}

// reorder moves a cluster ahead of another only if it leads by OrderGain.
func reorder(clusters []string, points map[string]gate.Number) []string {
	order := slices.Clone(clusters)
	for i := 1; i < len(order); i++ {
		for j := i; j > 0 && lead(points[order[j]], points[order[j-1]]) >= OrderGain; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order
}
