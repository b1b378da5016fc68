package cli

import (
	"math"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// slices of time that a trend has at most.
const trendWidth = 42

// totals of a backtest, built round by round. They take the same room however many
// rounds there are.
type totals struct {
	policy *score.Policy
	rank   int
	over   span
	fleet  []string

	begun          bool
	first          int // the round that began
	refused        int
	cells          []tally // of all clusters, each with one per score
	clusters       []clusterTally
	best, switches int // best is -1 while there is none
	none           int // rounds without a best cluster
}

// tally of one score of one cluster.
type tally struct {
	rounds                int
	values                [2*reach + 1]int32 // rounds by published value
	held, vetoed, missing int
	changes               int
	last                  int32
	published             bool
	trend                 [trendWidth]slice
}

// clusterTally is what all scores of a cluster share.
type clusterTally struct {
	best    int // rounds
	changes int // rounds in which any value changed
	seen    bool
}

// slice of a trend.
type slice struct {
	sum       float64
	good, bad int
}

// reach of published values: -100 to 100.
const reach = 100

func newTotals(p *score.Policy, rank int, over span, fleet []string) *totals {
	return &totals{
		policy: p, rank: rank, over: over, fleet: fleet, best: -1,
		cells: make([]tally, len(fleet)*len(p.Names)), clusters: make([]clusterTally, len(fleet)),
	}
}

// add a round, and say whether history has begun: nothing answers before.
func (t *totals) add(i int, report *round.Report) bool {
	r := report.Result
	if !t.begun {
		if r.Fresh == 0 {
			return false
		}
		t.begun, t.first = true, i
	}
	if r.Refused {
		t.refused++
	}
	for c := range t.fleet {
		t.addCluster(c, r.Row(c), t.slice(i))
	}
	t.rankRound(r)
	return true
}

func (t *totals) slice(i int) int {
	rounds := t.over.rounds - t.first
	return (i - t.first) * min(trendWidth, rounds) / rounds
}

func (t *totals) addCluster(c int, row []score.Cell, part int) {
	cluster, changed := &t.clusters[c], false
	for s := range row {
		cell := &row[s]
		cluster.seen = cluster.seen || cell.Outcome == score.OK
		changed = t.cells[c*len(row)+s].add(cell, part) || changed
	}
	if changed {
		cluster.changes++
	}
}

// add a cell, and say whether what is published changed.
func (t *tally) add(cell *score.Cell, part int) (changed bool) {
	trend := &t.trend[part]
	switch cell.State {
	case score.Held:
		t.held++
	case score.Vetoed:
		t.vetoed++
	case score.Worst, score.Omitted, score.Fixed:
		t.missing++
	case score.Scored:
	}
	if cell.State == score.Scored || cell.State == score.Held {
		trend.good++
		trend.sum += float64(cell.Value)
	} else {
		trend.bad++
	}
	omitted := cell.State == score.Omitted
	if !omitted {
		t.values[cell.Value+reach]++
	}
	changed = t.rounds > 0 && (t.published == omitted || !omitted && t.last != cell.Value)
	if changed {
		t.changes++
	}
	t.rounds, t.published, t.last = t.rounds+1, !omitted, cell.Value
	return changed
}

// rankRound finds the cluster that the ranking score puts first: the highest value,
// of equals the first by name. One that is blind or vetoed is never best.
func (t *totals) rankRound(r *score.Result) {
	best, top := -1, int32(math.MinInt32)
	for c := range t.fleet {
		cell := &r.Row(c)[t.rank]
		usable := cell.State == score.Scored || cell.State == score.Held || cell.State == score.Fixed
		if usable && cell.Value > top {
			best, top = c, cell.Value
		}
	}
	if best < 0 {
		t.none++
		return
	}
	t.clusters[best].best++
	if t.best >= 0 && t.best != best {
		t.switches++
	}
	t.best = best
}

// extremes of what was published, and its median; ok is false when nothing was.
func (t *tally) extremes() (low, median, high int32, ok bool) {
	total := 0
	for _, n := range t.values {
		total += int(n)
	}
	if total == 0 {
		return 0, 0, 0, false
	}
	low, seen := math.MaxInt32, 0
	for i, n := range t.values {
		if n == 0 {
			continue
		}
		v := int32(i - reach)
		low, high = min(low, v), v
		if seen < (total+1)/2 {
			median = v
		}
		seen += int(n)
	}
	return low, median, high, true
}

// marks of a trend, from the lowest to the highest.
const marks = "▁▂▃▄▅▆▇█"

// sparkline of means; nil stands for a slice without a usable score.
func sparkline(trend []*float64, low float64) string {
	var b strings.Builder
	all := []rune(marks)
	for _, v := range trend {
		if v == nil {
			b.WriteRune('·')
			continue
		}
		i := int((*v - low) / (reach - low) * float64(len(all)))
		b.WriteRune(all[min(max(i, 0), len(all)-1)])
	}
	return b.String()
}
