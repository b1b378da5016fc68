package cli

import (
	"math"

	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

const (
	// maxTrendSlices is the largest number of slices of a trend.
	maxTrendSlices = 42
	// maxScore is the largest published value; -maxScore is the smallest.
	maxScore = 100
)

// backtestTotals accumulates the rounds of a backtest. Its size does not depend on their
// number.
type backtestTotals struct {
	policy   *score.Policy
	rank     int // index of the score that ranks the clusters
	grid     timeGrid
	clusters []string

	started       bool // a round had fresh data
	firstRound    int
	refused       int
	scores        []scoreTotals   // all scores of the first cluster, then of the second, …
	clusterTotals []clusterTotals // as clusters
	best          int             // index of the best cluster of the last round that had one; -1 for none
	switches      int             // changes of best
	roundsNoBest  int
}

// scoreTotals accumulates one score of one cluster.
type scoreTotals struct {
	rounds                                  int
	published                               [2*maxScore + 1]int32 // rounds by published value + maxScore
	heldRounds, vetoedRounds, missingRounds int
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

func newTotals(p *score.Policy, rank int, grid timeGrid, clusters []string) *backtestTotals {
	return &backtestTotals{
		policy: p, rank: rank, grid: grid, clusters: clusters, best: -1,
		scores: make([]scoreTotals, len(clusters)*len(p.Names)), clusterTotals: make([]clusterTotals, len(clusters)),
	}
}

// addRound adds round i. It ignores rounds before the first one with fresh data, and
// returns false for them.
func (t *backtestTotals) addRound(i int, report *round.Report) bool {
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
	for c := range t.clusters {
		t.addCluster(c, r.Row(c), t.sliceOf(i))
	}
	t.addRanking(r)
	return true
}

// sliceOf returns the index of the trend slice of round i.
func (t *backtestTotals) sliceOf(i int) int {
	rounds := t.grid.rounds - t.firstRound
	return (i - t.firstRound) * min(maxTrendSlices, rounds) / rounds
}

func (t *backtestTotals) addCluster(c int, row []score.Cell, slice int) {
	cluster, changed := &t.clusterTotals[c], false
	for s := range row {
		cell := &row[s]
		cluster.hasData = cluster.hasData || cell.Outcome == score.OK
		changed = t.scores[c*len(row)+s].addCell(cell, slice) || changed
	}
	if changed {
		cluster.changedRounds++
	}
}

// addCell adds the score of one round, and reports whether the published value changed.
func (t *scoreTotals) addCell(cell *score.Cell, slice int) (changed bool) {
	trend := &t.trend[slice]
	switch cell.State {
	case score.Held:
		t.heldRounds++
	case score.Vetoed:
		t.vetoedRounds++
	case score.Worst, score.Omitted, score.Fixed:
		t.missingRounds++
	case score.Scored:
	}
	if cell.State == score.Scored || cell.State == score.Held {
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
func (t *backtestTotals) addRanking(r *score.Result) {
	best, highest := -1, int32(math.MinInt32)
	for c := range t.clusters {
		cell := &r.Row(c)[t.rank]
		usable := cell.State == score.Scored || cell.State == score.Held || cell.State == score.Fixed
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
