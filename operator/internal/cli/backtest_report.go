package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// backtestReport is what backtest prints. Shares are 0..1 of the rounds.
type backtestReport struct {
	Policy         string              `json:"policy"`
	From           time.Time           `json:"from"`
	To             time.Time           `json:"to"`
	StepSeconds    float64             `json:"stepSeconds"`
	Rounds         int                 `json:"rounds"`
	RefusedRounds  int                 `json:"refusedRounds"`
	RankedBy       string              `json:"rankedBy"`
	Switches       int                 `json:"switches"` // of the best cluster
	SwitchesPerDay float64             `json:"switchesPerDay"`
	NoneBest       float64             `json:"noneBest"` // no cluster had a usable score
	ChangesPerDay  float64             `json:"changesPerDay"`
	Clusters       []backtestedCluster `json:"clusters"`

	minHealthy int
	asked      time.Time // where history was looked for
}

type backtestedCluster struct {
	Cluster       string            `json:"cluster"`
	Best          float64           `json:"best"`
	ChangesPerDay float64           `json:"changesPerDay"` // rounds that published any new value
	Scores        []backtestedScore `json:"scores"`
}

type backtestedScore struct {
	Name          string     `json:"name"`
	Min           *int32     `json:"min,omitempty"` // none: never published
	Median        *int32     `json:"median,omitempty"`
	Max           *int32     `json:"max,omitempty"`
	Held          float64    `json:"held"`
	Missing       float64    `json:"missing"` // after the hold
	Vetoed        float64    `json:"vetoed"`
	ChangesPerDay float64    `json:"changesPerDay"`
	Trend         []*float64 `json:"trend"` // means; null: mostly without a usable score

	low float64 // of its range
}

// report what was totalled. Clusters that never answered are left out if it was
// the answers that should name them.
func (t *totals) report(policy *v1alpha1.ScoringPolicy, onlySeen bool) *backtestReport {
	rounds := t.over.rounds - t.first
	length := time.Duration(rounds) * t.over.step
	r := &backtestReport{
		Policy: policy.Name, From: t.over.at(t.first), To: t.over.end(), StepSeconds: t.over.step.Seconds(), Rounds: rounds, RefusedRounds: t.refused,
		RankedBy: t.policy.Names[t.rank], Switches: t.switches, SwitchesPerDay: perDay(t.switches, length), NoneBest: share(t.none, rounds),
		Clusters: []backtestedCluster{}, minHealthy: t.policy.MinHealthy, asked: t.over.start,
	}
	changes := 0
	for c, cluster := range t.fleet {
		tally := &t.clusters[c]
		if onlySeen && !tally.seen {
			continue
		}
		changes += tally.changes
		row := backtestedCluster{Cluster: cluster, Best: share(tally.best, rounds), ChangesPerDay: perDay(tally.changes, length)}
		for s, name := range t.policy.Names {
			row.Scores = append(row.Scores, t.cells[c*len(t.policy.Names)+s].report(name, lowest(&policy.Spec, s), min(trendWidth, rounds), length))
		}
		r.Clusters = append(r.Clusters, row)
	}
	r.ChangesPerDay = perDay(changes, length)
	return r
}

func (t *tally) report(name string, low float64, width int, length time.Duration) backtestedScore {
	s := backtestedScore{
		Name: name, Held: share(t.held, t.rounds), Missing: share(t.missing, t.rounds), Vetoed: share(t.vetoed, t.rounds),
		ChangesPerDay: perDay(t.changes, length), low: low,
	}
	if low, median, high, ok := t.extremes(); ok {
		s.Min, s.Median, s.Max = &low, &median, &high
	}
	for _, part := range t.trend[:width] {
		if part.good <= part.bad {
			s.Trend = append(s.Trend, nil)
			continue
		}
		mean := round1(part.sum / float64(part.good))
		s.Trend = append(s.Trend, &mean)
	}
	return s
}

// lowest of the range of a policy's score; the total is last.
func lowest(spec *v1alpha1.ScoringPolicySpec, s int) float64 {
	r := v1alpha1.RangeZeroTo100
	if s < len(spec.Scores) {
		r = spec.Scores[s].Range
	} else if spec.Total != nil {
		r = spec.Total.Range
	}
	if r == v1alpha1.RangeFull {
		return score.Lowest
	}
	return 0
}

func (r *backtestReport) write(w io.Writer, paint painter, wide bool) {
	step := model.Duration(r.StepSeconds * float64(time.Second))
	line(w, "Policy:", r.Policy)
	line(w, "Rounds:", fmt.Sprintf("%d, one every %s from %s to %s", r.Rounds, step, moment(r.From), moment(r.To)))
	if r.From.After(r.asked) {
		line(w, "", paint.wait("history begins there: nothing answered from "+moment(r.asked)+" on"))
	}
	if r.RefusedRounds > 0 {
		line(w, "Refused:", paint.wait(fmt.Sprintf("%s: fewer than %d%% of the clusters answered fresh", count(r.RefusedRounds, "round"), r.minHealthy)))
	}
	line(w, "Best:", fmt.Sprintf("by %s: %s", r.RankedBy, r.bestText()))
	line(w, "Switches:", fmt.Sprintf("%d of the best cluster, %s a day", r.Switches, decimal(r.SwitchesPerDay)))
	line(w, "Published:", decimal(r.ChangesPerDay)+" changes a day")
	line(w)
	columns := []string{"CLUSTER", "SCORE", "TREND", "MIN", "MEDIAN", "MAX", "HELD", "MISSING", "BEST", "CHANGES/DAY"}
	if wide {
		columns = slices.Insert(columns, 8, "VETOED")
	}
	line(w, columns...)
	for i := range r.Clusters {
		r.Clusters[i].write(w, r.RankedBy, wide)
	}
}

func (c *backtestedCluster) write(w io.Writer, rank string, wide bool) {
	name := c.Cluster
	for i := range c.Scores {
		s := &c.Scores[i]
		if !wide && s.Name != rank {
			continue
		}
		best := ""
		if s.Name == rank {
			best = percent(c.Best)
		}
		cells := []string{name, s.Name, sparkline(s.Trend, s.low), published(s.Min), published(s.Median), published(s.Max), percent(s.Held), percent(s.Missing), best, decimal(s.ChangesPerDay)}
		if wide {
			cells = slices.Insert(cells, 8, percent(s.Vetoed))
		}
		line(w, cells...)
		name = "" // it stands once
	}
}

// bestText names the three clusters that were best for longest.
func (r *backtestReport) bestText() string {
	ranked := slices.Clone(r.Clusters)
	slices.SortStableFunc(ranked, func(a, b backtestedCluster) int { return cmp.Compare(b.Best, a.Best) })
	var text []string
	for _, c := range ranked[:min(3, len(ranked))] {
		if c.Best > 0 {
			text = append(text, c.Cluster+" "+percent(c.Best))
		}
	}
	if r.NoneBest > 0 {
		text = append(text, "none "+percent(r.NoneBest))
	}
	return strings.Join(text, ", ") + " of the time"
}

func share(n, of int) float64 { return math.Round(1e4*float64(n)/float64(max(of, 1))) / 1e4 }

// percent of a share, with one digit after the point where it matters.
func percent(v float64) string { return decimal(round1(100*v)) + "%" }

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func perDay(n int, over time.Duration) float64 { return round1(float64(n) / (over.Hours() / 24)) }

func round1(v float64) float64 { return math.Round(v*10) / 10 }
