package score

import (
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/normalize"
)

const (
	memoryOfAnswers = 24 * time.Hour
	fewest          = 3 // known clusters below which no round is refused
)

// Evaluate turns the samples of a round into scores. Previous is the Result of the
// round before, or FromSeeds after a restart, or nil; it is not changed.
func Evaluate(p *Policy, in Samples, previous *Result, at time.Time) *Result {
	n, width, now := len(in.Clusters), len(p.Names), At(at)
	out := &Result{
		Time: now, Clusters: in.Clusters, Names: p.Names,
		Cells:    make([]Cell, n*width),
		answered: make([]Instant, n),
	}
	carry(out, previous)
	out.judgeHealth(p, in)
	points := make([]float64, n)
	for s := range p.scores {
		out.normalizeScore(&p.scores[s], in.Scores[s], points)
		out.decideScore(p, s, in, points)
	}
	if p.HasTotal {
		for c := range n {
			p.decideTotal(out.Row(c), now)
		}
	}
	return out
}

// carry brings what is remembered into the new cells, by cluster and score name.
func carry(out, previous *Result) {
	if previous == nil {
		return
	}
	if slices.Equal(out.Names, previous.Names) && slices.Equal(out.Clusters, previous.Clusters) {
		copy(out.Cells, previous.Cells)
		copy(out.answered, previous.answered)
		return
	}
	from := make([]int, len(out.Names))
	for i, name := range out.Names {
		from[i] = slices.Index(previous.Names, name)
	}
	for c, cluster := range out.Clusters {
		old, ok := slices.BinarySearch(previous.Clusters, cluster)
		if !ok {
			continue
		}
		out.answered[c] = previous.answered[old]
		row, oldRow := out.Row(c), previous.Row(old)
		for i, j := range from {
			if j >= 0 {
				row[i] = oldRow[j]
			}
		}
	}
}

// judgeHealth counts who answers, and refuses the round when too few do.
func (r *Result) judgeHealth(p *Policy, in Samples) {
	knownFresh := 0
	for c := range r.Clusters {
		known := !r.answered[c].IsZero() && r.Time.sub(r.answered[c]) <= memoryOfAnswers
		if known {
			r.Known++
		}
		if !answers(in, c) {
			continue
		}
		r.Fresh++
		r.answered[c] = r.Time
		if known {
			knownFresh++
		}
	}
	r.Refused = r.Known >= fewest && knownFresh*100 < p.MinHealthy*r.Known
}

func answers(in Samples, c int) bool {
	for _, inputs := range in.Scores {
		if inputs[c].Outcome == OK {
			return true
		}
	}
	return false
}

// normalizeScore fills points for every cluster with a usable value.
func (r *Result) normalizeScore(rule *rule, inputs []Input, points []float64) {
	if rule.fleet != nil {
		fleet(rule, inputs, points)
		return
	}
	for c, in := range inputs {
		if in.Outcome != OK {
			continue
		}
		var clamped bool
		if points[c], clamped = rule.bounds.Clamp(rule.normalize(in.Value)); clamped {
			r.Clamped++
		}
	}
}

func fleet(rule *rule, inputs []Input, points []float64) {
	values := make([]float64, 0, len(inputs))
	for _, in := range inputs {
		if in.Outcome == OK {
			values = append(values, in.Value)
		}
	}
	if rule.fleet.Method == v1alpha1.FleetRank {
		normalize.Rank(values, rule.fleet.Descending, rule.bounds)
	} else {
		normalize.MinMax(values, rule.fleet.Descending, rule.bounds)
	}
	next := 0
	for c, in := range inputs {
		if in.Outcome == OK {
			points[c] = values[next]
			next++
		}
	}
}

func (r *Result) decideScore(p *Policy, s int, in Samples, points []float64) {
	rule := &p.scores[s]
	for c, input := range in.Scores[s] {
		cell := &r.Cells[c*len(r.Names)+s]
		outcome := input.Outcome
		if r.Refused && outcome == OK {
			outcome = TooFewFresh
		}
		if outcome != OK {
			rule.missing(cell, outcome, r.Time)
			continue
		}
		sampled := r.Time
		if in.Age != nil {
			sampled = sampled.add(-in.Age[c])
		}
		rule.scored(cell, input.Value, points[c], sampled, r.Time)
	}
}

// scored takes a usable value: damp, then veto, then round with the deadband.
func (rule *rule) scored(c *Cell, raw, points float64, sampled, now Instant) {
	c.Raw, c.Outcome, c.Since, c.SampleTime, c.HeldUntil = raw, OK, 0, sampled, 0
	c.Points = rule.damp(&c.memory, c.Points, points, now)
	c.memory.good = true
	if c.Points < rule.minimum {
		c.State, c.Value = Vetoed, Lowest
		c.memory.published = true
		return
	}
	c.settle(Scored, c.Points, rule.deadband)
}

// settle sets the value to publish. Within the deadband the old one stays, unless
// it says that the cluster was blind or vetoed.
func (c *Cell) settle(state State, points, deadband float64) {
	was := c.State
	c.State = state
	usual := c.memory.published && (was == Scored || was == Held)
	if usual && math.Abs(points-float64(c.Value)) < deadband {
		return
	}
	c.Value = int32(math.Round(points))
	c.memory.published = true
}

// missing holds the last good value, and then does as the policy says.
func (rule *rule) missing(c *Cell, outcome Outcome, now Instant) {
	if c.Since.IsZero() {
		c.Since = now
	}
	c.Outcome = outcome
	until := c.SampleTime.add(rule.hold)
	if c.memory.good && now < until {
		c.HeldUntil = until
		if c.State != Vetoed {
			c.State = Held
		}
		return
	}
	then := rule.then
	if !outcome.known() && !c.memory.published {
		then = v1alpha1.MissingOmit // nothing is known of this cluster, not even that it is blind
	}
	c.forget(then, rule.fixed)
}

// forget ends a hold: what was damped before says nothing about what comes after.
func (c *Cell) forget(then v1alpha1.MissingOutcome, fixed int32) {
	c.memory = memory{published: true}
	c.HeldUntil = 0
	switch then {
	case v1alpha1.MissingOmit:
		c.State, c.Value, c.memory.published = Omitted, 0, false
	case v1alpha1.MissingFixed:
		c.State, c.Value = Fixed, fixed
	default:
		c.State, c.Value = Worst, Lowest
	}
}
