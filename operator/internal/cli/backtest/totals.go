package backtest

import (
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

const (
	// maxTrendSlices is the largest number of slices of a trend.
	maxTrendSlices = 42
	// maxScore is the largest published value; -maxScore is the smallest.
	maxScore = 100
)

// totals accumulates the rounds of a backtest. Its size does not depend on their
// number.
type totals struct {
	policy   *score.Policy
	rank     string // score that ranks the clusters
	grid     timeGrid
	clusters []string

	started       bool // a round had fresh data
	firstRound    int
	refused       int
	names         []string                 // of all scores, in the order of the policy
	scores        map[string][]scoreTotals // by name, each as clusters
	clusterTotals []clusterTotals          // as clusters
	best          int                      // index of the best cluster of the last round that had one; -1 for none
	switches      int                      // changes of best
	roundsNoBest  int
}

// scoreTotals accumulates one score of one cluster.
type scoreTotals struct {
	rounds                                  int
	published                               [2*maxScore + 1]int32 // rounds by published value + maxScore
	keptRounds, vetoedRounds, missingRounds int
	changes                                 int
	lastValue                               int32
	lastPublished                           bool
	trend                                   [maxTrendSlices]trendSlice
}

// clusterTotals accumulates a cluster over all its scores.
type clusterTotals struct {
	bestRounds    int
	changedRounds int // rounds in which any value changed
	hasData       bool
}

// trendSlice accumulates one slice of a trend.
type trendSlice struct {
	sum               float64
	usable, notUsable int // rounds with and without a usable score
}

func newTotals(p *score.Policy, rank string, grid timeGrid, clusters []string) *totals {
	return &totals{
		policy: p, rank: rank, grid: grid, clusters: clusters, best: -1,
		scores: map[string][]scoreTotals{}, clusterTotals: make([]clusterTotals, len(clusters)),
	}
}

// addRound adds round i. It ignores rounds before the first one with fresh data, and
// returns false for them.
func (t *totals) addRound(i int, report *round.Report) bool {
	r := report.Result
	if !t.started {
		if r.Fresh == 0 {
			return false
		}
		t.started, t.firstRound = true, i
	}
	if r.Refused {
		t.refused++
	}
	t.addNames(i, r.Names)
	changed := make([]bool, len(t.clusters))
	for _, name := range t.names {
		column := slices.Index(r.Names, name)
		for c := range t.clusters {
			cell := &score.Cell{State: score.Omitted, Outcome: score.None} // nameFrom gives the name in other rounds
			if column >= 0 {
				cell = &r.Row(c)[column]
			}
			t.clusterTotals[c].hasData = t.clusterTotals[c].hasData || cell.Outcome == score.OK
			changed[c] = t.scores[name][c].addCell(cell, t.sliceOf(i)) || changed[c]
		}
	}
	for c := range t.clusters {
		if changed[c] {
			t.clusterTotals[c].changedRounds++
		}
	}
	t.addRanking(r)
	return true
}

// addNames adds the names that appear for the first time in round i. They were missing in the
// rounds before.
func (t *totals) addNames(i int, names []string) {
	var added []string
	for _, name := range names {
		if t.scores[name] == nil {
			added = append(added, name)
		}
	}
	if added == nil {
		return
	}
	missing := scoreTotals{rounds: i - t.firstRound, missingRounds: i - t.firstRound}
	for before := t.firstRound; before < i; before++ {
		missing.trend[t.sliceOf(before)].notUsable++
	}
	for _, name := range added {
		t.scores[name] = slices.Repeat([]scoreTotals{missing}, len(t.clusters))
	}
	t.names = t.policy.SortNames(append(t.names, added...))
}

// sliceOf returns the index of the trend slice of round i.
func (t *totals) sliceOf(i int) int {
	rounds := t.grid.rounds - t.firstRound
	return (i - t.firstRound) * min(maxTrendSlices, rounds) / rounds
}

// addCell adds the score of one round, and reports whether the published value changed.
func (t *scoreTotals) addCell(cell *score.Cell, slice int) (changed bool) {
	trend := &t.trend[slice]
	switch cell.State {
	case score.Kept:
		t.keptRounds++
	case score.Vetoed:
		t.vetoedRounds++
	case score.Worst, score.Omitted, score.Fixed:
		t.missingRounds++
	case score.Scored:
	}
	if cell.State == score.Scored || cell.State == score.Kept {
		trend.usable++
		trend.sum += float64(cell.Value)
	} else {
		trend.notUsable++
	}
	omitted := cell.State == score.Omitted
	if !omitted {
		t.published[cell.Value+maxScore]++
	}
	changed = t.rounds > 0 && (t.lastPublished == omitted || !omitted && t.lastValue != cell.Value)
	if changed {
		t.changes++
	}
	t.rounds, t.lastPublished, t.lastValue = t.rounds+1, !omitted, cell.Value
	return changed
}

// addRanking finds the best cluster of a round: the highest value of the ranking score,
// and the first by name of equal values. A cluster without data or with a veto is never
// the best.
func (t *totals) addRanking(r *score.Result) {
	best, highest := -1, int32(math.MinInt32)
	column := slices.Index(r.Names, t.rank)
	for c := range t.clusters {
		if column < 0 {
			break
		}
		cell := &r.Row(c)[column]
		usable := cell.State == score.Scored || cell.State == score.Kept || cell.State == score.Fixed
		if usable && cell.Value > highest {
			best, highest = c, cell.Value
		}
	}
	if best < 0 {
		t.roundsNoBest++
		return
	}
	t.clusterTotals[best].bestRounds++
	if t.best >= 0 && t.best != best {
		t.switches++
	}
	t.best = best
}

// publishedStats returns the minimum, median and maximum of the published values. ok is
// false if no value was published.
func (t *scoreTotals) publishedStats() (lowest, median, highest int32, ok bool) {
	total := 0
	for _, n := range t.published {
		total += int(n)
	}
	if total == 0 {
		return 0, 0, 0, false
	}
	lowest, counted := math.MaxInt32, 0
	for i, n := range t.published {
		if n == 0 {
			continue
		}
		v := int32(i - maxScore)
		lowest, highest = min(lowest, v), v
		if counted < (total+1)/2 {
			median = v
		}
		counted += int(n)
	}
	return lowest, median, highest, true
}
