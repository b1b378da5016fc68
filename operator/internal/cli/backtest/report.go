package backtest

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// Report is the output of backtest. Shares are 0..1 of all rounds.
type Report struct {
	Policy         string          `json:"policy"`
	From           time.Time       `json:"from"`
	To             time.Time       `json:"to"`
	StepSeconds    float64         `json:"stepSeconds"`
	Rounds         int             `json:"rounds"`
	RefusedRounds  int             `json:"refusedRounds"`
	RankedBy       string          `json:"rankedBy"`
	Switches       int             `json:"switches"` // changes of the best cluster
	SwitchesPerDay float64         `json:"switchesPerDay"`
	NoBestShare    float64         `json:"noBestShare"` // no cluster had a usable score
	ChangesPerDay  float64         `json:"changesPerDay"`
	Clusters       []clusterReport `json:"clusters"`

	minHealthy     int
	requestedStart time.Time
}

// clusterReport is one cluster. ChangesPerDay counts rounds that published any new value.
type clusterReport struct {
	Cluster       string          `json:"cluster"`
	BestShare     float64         `json:"bestShare"`
	ChangesPerDay float64         `json:"changesPerDay"`
	Scores        []backtestScore `json:"scores"`
}

// backtestScore is one score of one cluster. Min, Median and Max are nil if no value was
// published. Trend holds means; nil stands for a slice that mostly has no usable score.
type backtestScore struct {
	Name          string     `json:"name"`
	Min           *int32     `json:"min,omitempty"`
	Median        *int32     `json:"median,omitempty"`
	Max           *int32     `json:"max,omitempty"`
	KeptShare     float64    `json:"keptShare"`
	MissingShare  float64    `json:"missingShare"` // after the keep time ended
	VetoedShare   float64    `json:"vetoedShare"`
	ChangesPerDay float64    `json:"changesPerDay"`
	Trend         []*float64 `json:"trend"`

	lowest float64 // smallest value of the score's range
}

// report converts the totals. If withDataOnly is true, clusters that never had data are
// left out.
func (t *totals) report(policy *v1alpha1.ScoringPolicy, withDataOnly bool) *Report {
	rounds := t.grid.rounds - t.firstRound
	length := time.Duration(rounds) * t.grid.step
	r := &Report{
		Policy: policy.Name, From: t.grid.at(t.firstRound), To: t.grid.end(), StepSeconds: t.grid.step.Seconds(), Rounds: rounds, RefusedRounds: t.refused,
		RankedBy: t.rank, Switches: t.switches, SwitchesPerDay: perDay(t.switches, length), NoBestShare: share(t.roundsNoBest, rounds),
		Clusters: []clusterReport{}, minHealthy: t.policy.MinHealthy, requestedStart: t.grid.start,
	}
	changes := 0
	for c, cluster := range t.clusters {
		totals := &t.clusterTotals[c]
		if withDataOnly && !totals.hasData {
			continue
		}
		changes += totals.changedRounds
		row := clusterReport{Cluster: cluster, BestShare: share(totals.bestRounds, rounds), ChangesPerDay: perDay(totals.changedRounds, length)}
		for _, name := range t.names {
			row.Scores = append(row.Scores, t.scores[name][c].report(name, lowestValue(&policy.Spec, name), min(maxTrendSlices, rounds), length))
		}
		r.Clusters = append(r.Clusters, row)
	}
	r.ChangesPerDay = perDay(changes, length)
	return r
}

func (t *scoreTotals) report(name string, lowest float64, slices int, length time.Duration) backtestScore {
	s := backtestScore{
		Name: name, KeptShare: share(t.keptRounds, t.rounds), MissingShare: share(t.missingRounds, t.rounds), VetoedShare: share(t.vetoedRounds, t.rounds),
		ChangesPerDay: perDay(t.changes, length), lowest: lowest,
	}
	if low, median, high, ok := t.publishedStats(); ok {
		s.Min, s.Median, s.Max = &low, &median, &high
	}
	for _, slice := range t.trend[:slices] {
		if slice.usable <= slice.notUsable {
			s.Trend = append(s.Trend, nil)
			continue
		}
		mean := format.RoundTenth(slice.sum / float64(slice.usable))
		s.Trend = append(s.Trend, &mean)
	}
	return s
}

// lowestValue returns the smallest value in the range of a score.
func lowestValue(spec *v1alpha1.ScoringPolicySpec, name string) float64 {
	r := v1alpha1.RangeZeroTo100
	if i := slices.IndexFunc(spec.Scores, func(s v1alpha1.ScoreSpec) bool { return givesName(&s, name) }); i >= 0 {
		r = spec.Scores[i].Range
	} else if spec.Total != nil {
		r = spec.Total.Range
	}
	if r == v1alpha1.RangeFull {
		return score.Lowest
	}
	return 0
}

// givesName reports whether a score has the name, or gives it by nameFrom.
func givesName(s *v1alpha1.ScoreSpec, name string) bool {
	return s.NameFrom == nil && s.Name == name || s.NameFrom != nil && score.NamesFrom(s.Name, []string{name}) != nil
}

func (r *Report) write(w io.Writer, paint format.Painter, wide bool) {
	step := model.Duration(r.StepSeconds * float64(time.Second))
	format.Row(w, "Policy:", r.Policy)
	format.Row(w, "Rounds:", fmt.Sprintf("%d, one every %s from %s to %s", r.Rounds, step, format.Time(r.From), format.Time(r.To)))
	if r.From.After(r.requestedStart) {
		format.Row(w, "", paint.Warning(fmt.Sprintf("no data between %s and the first round", format.Time(r.requestedStart))))
	}
	if r.RefusedRounds > 0 {
		format.Row(w, "Refused:", paint.Warning(fmt.Sprintf("%s: less than %d%% of the clusters had fresh data", format.Plural(r.RefusedRounds, "round"), r.minHealthy)))
	}
	format.Row(w, "Best:", fmt.Sprintf("by %s: %s", r.RankedBy, r.describeBest()))
	format.Row(w, "Switches:", fmt.Sprintf("%d of the best cluster, %s per day", r.Switches, format.Decimal(r.SwitchesPerDay)))
	format.Row(w, "Published:", format.Decimal(r.ChangesPerDay)+" changes per day")
	format.Row(w)
	columns := []string{"CLUSTER", "SCORE", "TREND", "MIN", "MEDIAN", "MAX", "KEPT", "MISSING", "BEST", "CHANGES/DAY"}
	if wide {
		columns = slices.Insert(columns, 8, "VETOED")
	}
	format.Row(w, columns...)
	for i := range r.Clusters {
		r.Clusters[i].write(w, r.RankedBy, wide)
	}
}

// write writes the row of the ranking score, or a row of every score if wide is true.
func (c *clusterReport) write(w io.Writer, rankedBy string, wide bool) {
	name := c.Cluster
	for i := range c.Scores {
		s := &c.Scores[i]
		if !wide && s.Name != rankedBy {
			continue
		}
		best := ""
		if s.Name == rankedBy {
			best = format.Percent(c.BestShare)
		}
		cells := []string{
			name, s.Name, sparkline(s.Trend, s.lowest), format.Score(s.Min, "none"), format.Score(s.Median, "none"), format.Score(s.Max, "none"),
			format.Percent(s.KeptShare), format.Percent(s.MissingShare), best, format.Decimal(s.ChangesPerDay),
		}
		if wide {
			cells = slices.Insert(cells, 8, format.Percent(s.VetoedShare))
		}
		format.Row(w, cells...)
		name = "" // only in the first row of a cluster
	}
}

// describeBest lists the three clusters with the largest share of best rounds.
func (r *Report) describeBest() string {
	ranked := slices.Clone(r.Clusters)
	slices.SortStableFunc(ranked, func(a, b clusterReport) int { return cmp.Compare(b.BestShare, a.BestShare) })
	var text []string
	for _, c := range ranked[:min(3, len(ranked))] {
		if c.BestShare > 0 {
			text = append(text, c.Cluster+" "+format.Percent(c.BestShare))
		}
	}
	if r.NoBestShare > 0 {
		text = append(text, "none "+format.Percent(r.NoBestShare))
	}
	return strings.Join(text, ", ") + " of the time"
}

// sparkline draws the means of a trend between lowest and maxScore. A nil mean is drawn
// as a dot.
func sparkline(trend []*float64, lowest float64) string {
	var b strings.Builder
	bars := []rune("▁▂▃▄▅▆▇█")
	for _, v := range trend {
		if v == nil {
			b.WriteRune('·')
			continue
		}
		i := int((*v - lowest) / (maxScore - lowest) * float64(len(bars)))
		b.WriteRune(bars[min(max(i, 0), len(bars)-1)])
	}
	return b.String()
}

// share returns n of total as 0..1 with four decimals.
func share(n, total int) float64 { return math.Round(1e4*float64(n)/float64(max(total, 1))) / 1e4 }

// perDay returns n per day of length, with one decimal.
func perDay(n int, length time.Duration) float64 {
	return format.RoundTenth(float64(n) / (length.Hours() / 24))
}
