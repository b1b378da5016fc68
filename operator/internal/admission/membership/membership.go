// Package membership plans the cluster list of a MultiKueueConfig. The list has to be
// steady: Kueue evicts the workloads of a cluster that leaves the list, and reconciles every
// workload of the configuration, on every worker, whenever the list or its order changes.
package membership

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

const (
	// MaxClusters is the maximum number of clusters in a MultiKueueConfig, a limit of Kueue's API.
	MaxClusters = 20
	// OrderGain is the lead in points that moves a cluster ahead of another.
	OrderGain = 10
	// SteadyRounds is the number of gate rounds for which a change must persist before it is applied.
	SteadyRounds = 2
)

// Ranked is a cluster that the Placement has decided. A cluster with unknown points ranks
// last.
type Ranked struct {
	Name   string
	Points gate.Number
}

// History is the memory of one configuration between gate rounds. The zero value is ready to use.
type History struct {
	undecidedSince map[string]time.Time
	leavingSince   map[string]time.Time
	order          []string // wanted, but not yet for SteadyRounds
	orderSince     time.Time
}

// Settings of a plan.
type Settings struct {
	// Period is the time between two gate rounds.
	Period time.Duration
	// Ranked lists follow the points, for Kueue's incremental dispatcher, which nominates in
	// the order of the list. Other lists are sorted by name when a cluster joins or leaves,
	// and do not change otherwise.
	Ranked bool
	// Requested are decided clusters that jobs need, because none of the members has room.
	Requested []string
}

// Result is the planned configuration.
type Result struct {
	Clusters []string
	// Truncated are decided clusters beyond MaxClusters.
	Truncated []string
	// Leaving are members that make room for a requested cluster if no job is sent to them
	// within SteadyRounds periods, and those that leave in this gate round. No job may be sent to
	// them.
	Leaving []string
	// Pending is true if a change may be due in the next gate round, without any new event.
	Pending bool
}

// Plan returns the clusters of a MultiKueueConfig for this gate round:
//   - A decided cluster joins if the list has a free slot: requested ones first, then the best
//     points.
//   - If there is no free slot for a requested cluster, the member with the lowest points that is
//     neither in use nor requested leaves after SteadyRounds periods, unless a job is sent there meanwhile.
//   - A cluster leaves after SteadyRounds periods in which it was neither decided nor in use.
//     An earlier exit would make Kueue evict what runs there.
//   - The last cluster never leaves.
//   - The order of a ranked list follows the points, but only by OrderGain and after
//     SteadyRounds periods.
//
// Plan updates history.
func Plan(current []string, decided []Ranked, inUse map[string]bool, history *History, settings Settings, now time.Time) Result {
	points := map[string]gate.Number{}
	for _, r := range decided {
		points[r.Name] = r.Points
	}
	steady := SteadyRounds * settings.Period
	result := history.stay(current, points, inUse, steady, now)
	if len(result.Clusters) == 0 && len(decided) == 0 {
		return Result{Clusters: slices.Clone(current)}
	}
	history.makeRoom(&result, decided, inUse, settings, now)
	result.join(decided, settings.Requested)
	if settings.Ranked {
		history.reorder(&result, points, steady, now)
	} else if !slices.Equal(result.Clusters, current) {
		slices.Sort(result.Clusters)
	}
	return result
}

// stay returns the clusters of the current list that stay.
func (h *History) stay(current []string, points map[string]gate.Number, inUse map[string]bool, steady time.Duration, now time.Time) Result {
	if h.undecidedSince == nil {
		h.undecidedSince = map[string]time.Time{}
	}
	maps.DeleteFunc(h.undecidedSince, func(name string, _ time.Time) bool { return !slices.Contains(current, name) })
	var result Result
	for _, name := range current {
		_, isDecided := points[name]
		if isDecided || inUse[name] {
			delete(h.undecidedSince, name)
		} else if _, seen := h.undecidedSince[name]; !seen {
			h.undecidedSince[name] = now
		}
		if since, undecided := h.undecidedSince[name]; undecided && now.Sub(since) >= steady {
			continue
		}
		result.Clusters = append(result.Clusters, name)
		result.Pending = result.Pending || !isDecided
	}
	return result
}

// makeRoom removes members for requested clusters, and announces this SteadyRounds periods before.
func (h *History) makeRoom(r *Result, decided []Ranked, inUse map[string]bool, settings Settings, now time.Time) {
	isDecided := func(name string) bool {
		return slices.ContainsFunc(decided, func(d Ranked) bool { return d.Name == name })
	}
	missing := len(r.Clusters) - MaxClusters
	for _, name := range settings.Requested {
		if isDecided(name) && !slices.Contains(r.Clusters, name) {
			missing++
		}
	}
	unused := slices.DeleteFunc(slices.Clone(decided), func(d Ranked) bool {
		return inUse[d.Name] || slices.Contains(settings.Requested, d.Name) || !slices.Contains(r.Clusters, d.Name)
	})
	// An exit that has begun goes on. If another member took its place whenever it has lower points or is no
	// longer in use, no exit might ever be complete.
	isLeaving := func(d Ranked) bool {
		_, leaves := h.leavingSince[d.Name]
		return leaves
	}
	slices.SortFunc(unused, func(a, b Ranked) int {
		return cmp.Or(compareBool(isLeaving(b), isLeaving(a)), cmp.Compare(lead(a.Points, b.Points), 0), cmp.Compare(b.Name, a.Name))
	})
	unused = unused[:min(max(missing, 0), len(unused))]
	maps.DeleteFunc(h.leavingSince, func(name string, _ time.Time) bool {
		return !slices.ContainsFunc(unused, func(d Ranked) bool { return d.Name == name })
	})
	for _, member := range unused {
		since, hasBegun := h.leavingSince[member.Name]
		switch {
		case !hasBegun:
			if h.leavingSince == nil {
				h.leavingSince = map[string]time.Time{}
			}
			h.leavingSince[member.Name] = now
			r.Leaving = append(r.Leaving, member.Name)
		case now.Sub(since) < SteadyRounds*settings.Period:
			r.Leaving = append(r.Leaving, member.Name)
		default:
			delete(h.leavingSince, member.Name)
			// Until the configuration without it is written, Kueue would still copy to it.
			r.Leaving = append(r.Leaving, member.Name)
			r.Clusters = slices.DeleteFunc(r.Clusters, func(name string) bool { return name == member.Name })
		}
	}
	r.Pending = r.Pending || len(h.leavingSince) > 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// join adds decided clusters up to MaxClusters: the requested ones, then the best points.
func (r *Result) join(decided []Ranked, requested []string) {
	joining := slices.Clone(decided)
	slices.SortStableFunc(joining, func(a, b Ranked) int {
		return cmp.Or(compareBool(slices.Contains(requested, b.Name), slices.Contains(requested, a.Name)), cmp.Compare(lead(b.Points, a.Points), 0))
	})
	for _, cluster := range joining {
		switch {
		case slices.Contains(r.Clusters, cluster.Name):
		case len(r.Clusters) < MaxClusters:
			r.Clusters = append(r.Clusters, cluster.Name)
		default:
			r.Truncated = append(r.Truncated, cluster.Name)
		}
	}
}

// reorder applies a new order that has been wanted for the steady time.
func (h *History) reorder(r *Result, points map[string]gate.Number, steady time.Duration, now time.Time) {
	order := orderByPoints(r.Clusters, points)
	if slices.Equal(order, r.Clusters) {
		h.order = nil
		return
	}
	if !slices.Equal(order, h.order) {
		h.order, h.orderSince = order, now
	}
	if now.Sub(h.orderSince) < steady {
		r.Pending = true
		return
	}
	h.order, r.Clusters = nil, order
}

// orderByPoints moves a cluster ahead of another only if it leads by OrderGain.
func orderByPoints(clusters []string, points map[string]gate.Number) []string {
	order := slices.Clone(clusters)
	for i := 1; i < len(order); i++ {
		for j := i; j > 0 && lead(points[order[j]], points[order[j-1]]) >= OrderGain; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order
}

// lead of points a over points b. Known points lead unknown points infinitely.
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
