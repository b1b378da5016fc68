package score

import (
	"fmt"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const (
	// healthyWindow is the time for which a cluster counts as known after its last
	// usable value.
	healthyWindow = 24 * time.Hour
	// minKnown is the number of known clusters below which no round is refused.
	minKnown = 3
)

// Evaluate turns the samples of a round into scores. previous is the Result of the
// previous round, the result of FromSeeds after a restart, or nil. It is not changed.
func Evaluate(p *Policy, in Samples, previous *Result, at time.Time) *Result {
	n, width, now := len(in.Clusters), len(p.Names), At(at)
	result := &Result{
		Time: now, Clusters: in.Clusters, Names: p.Names,
		Cells:     make([]Cell, n*width),
		lastFresh: make([]Instant, n),
	}
	result.inherit(previous)
	tooFew := result.checkHealth(p, in)
	result.updateTooFewSince(tooFew)
	points := make([]float64, n)
	for s := range p.scores {
		result.normalizeScore(&p.scores[s], in.Scores[s], points)
		result.decideScore(p, s, in, points)
	}
	if p.HasTotal {
		for c := range n {
			if err := p.decideTotal(result.Row(c), now); err != nil && result.TotalErr == nil {
				result.TotalErr = fmt.Errorf("total.expression fails for cluster %s: %w", in.Clusters[c], err)
			}
		}
	}
	return result
}

// inherit copies the cells of the previous round, by cluster and score name.
func (r *Result) inherit(previous *Result) {
	if previous == nil {
		return
	}
	r.tooFewSince = previous.tooFewSince
	if r.Time < previous.Time {
		defer r.shiftTimes(r.Time.sub(previous.Time))
	}
	if slices.Equal(r.Names, previous.Names) && slices.Equal(r.Clusters, previous.Clusters) {
		copy(r.Cells, previous.Cells)
		copy(r.lastFresh, previous.lastFresh)
		return
	}
	previousIndex := make([]int, len(r.Names))
	for i, name := range r.Names {
		previousIndex[i] = slices.Index(previous.Names, name)
	}
	for c, cluster := range r.Clusters {
		old, ok := slices.BinarySearch(previous.Clusters, cluster)
		if !ok {
			continue
		}
		r.lastFresh[c] = previous.lastFresh[old]
		row, oldRow := r.Row(c), previous.Row(old)
		for i, j := range previousIndex {
			if j >= 0 {
				row[i] = oldRow[j]
			}
		}
	}
}

// shiftTimes adds d to all times. Scenario: the clock is set back by an hour. Keep times and delays
// continue as if no time had passed since the previous round, instead of lasting an hour longer.
func (r *Result) shiftTimes(d time.Duration) {
	shift := func(times ...*Instant) {
		for _, at := range times {
			if !at.IsZero() {
				*at = at.add(d)
			}
		}
	}
	shift(&r.tooFewSince)
	for i := range r.lastFresh {
		shift(&r.lastFresh[i])
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		h := &c.history
		shift(&c.Since, &c.SampleTime, &h.updated, &h.seen, &h.absentAt)
	}
}

// checkHealth counts the fresh and the known clusters. It reports whether too few known
// clusters are fresh.
func (r *Result) checkHealth(p *Policy, in Samples) (tooFew bool) {
	for c := range r.Clusters {
		known := !r.lastFresh[c].IsZero() && r.Time.sub(r.lastFresh[c]) <= healthyWindow
		if known {
			r.Known++
		}
		if !isFresh(in, c) {
			continue
		}
		r.Fresh++
		r.lastFresh[c] = r.Time
		if known {
			r.KnownFresh++
		}
	}
	return r.Known >= minKnown && r.KnownFresh*100 < p.MinHealthy*r.Known
}

// updateTooFewSince starts, continues or ends the time of too few fresh clusters.
func (r *Result) updateTooFewSince(tooFew bool) {
	switch {
	case !tooFew:
		r.tooFewSince = 0
	case r.tooFewSince.IsZero():
		r.tooFewSince = r.Time
	}
}

// isFresh reports whether the cluster has a usable value in any score.
func isFresh(in Samples, cluster int) bool {
	for _, inputs := range in.Scores {
		if inputs[cluster].Outcome == OK {
			return true
		}
	}
	return false
}

// normalizeScore fills in the points of every cluster with a usable value.
func (r *Result) normalizeScore(rule *rule, inputs []Input, points []float64) {
	if rule.fleet != nil {
		normalizeFleet(rule, inputs, points)
		return
	}
	for c, in := range inputs {
		if in.Outcome != OK {
			continue
		}
		var clamped bool
		if points[c], clamped = rule.bounds.clamp(roundPoints(rule.normalize(in.Value))); clamped {
			r.Clamped++
		}
	}
}

func normalizeFleet(rule *rule, inputs []Input, points []float64) {
	values := make([]float64, 0, len(inputs))
	for _, in := range inputs {
		if in.Outcome == OK {
			values = append(values, in.Value)
		}
	}
	if rule.fleet.Method == v1alpha1.FleetRank {
		rankPoints(values, rule.fleet.Descending, rule.bounds)
	} else {
		minMaxPoints(values, rule.fleet.Descending, rule.bounds)
	}
	next := 0
	for c, in := range inputs {
		if in.Outcome == OK {
			points[c] = values[next]
			next++
		}
	}
}

// decideScore decides one score of every cluster.
func (r *Result) decideScore(p *Policy, s int, in Samples, points []float64) {
	rule := &p.scores[s]
	for c, input := range in.Scores[s] {
		cell := &r.Cells[c*len(r.Names)+s]
		outcome := input.Outcome
		if outcome == OK && r.isDelayed(rule, cell) {
			outcome, r.Refused = TooFewFresh, true
			r.addChange(r.tooFewSince.add(rule.keepLast))
		}
		if outcome != OK {
			r.addChange(rule.decideMissing(cell, outcome, r.Time))
			r.Refused = r.Refused || !cell.KeptUntil.IsZero() && cell.SampleTime < r.tooFewSince
			continue
		}
		sampleTime := r.Time
		if in.Age != nil && in.Age[s] != nil {
			sampleTime = sampleTime.add(-in.Age[s][c])
		}
		rule.decideValue(cell, input.Value, points[c], sampleTime, r.Time)
	}
}

// isDelayed reports whether a usable value does not count yet, because too few clusters
// have fresh values. A response with so few clusters may be wrong for these clusters,
// too. The delay ends for each score when its keep time ends:
//
//  1. Half of the fleet loses its metrics. The other clusters keep their last scores, and
//     new clusters get none.
//  2. After the keep time, the lost clusters get the outcome of a missing value.
//  3. The fresh values of the other clusters count from then on.
//
// Without a delay of its own, a fresh cluster would get the worst score in step 2.
func (r *Result) isDelayed(rule *rule, c *Cell) bool {
	if r.tooFewSince.IsZero() || r.Time >= r.tooFewSince.add(rule.keepLast) {
		return false
	}
	if !c.history.hasPoints {
		return true
	}
	return c.SampleTime < r.tooFewSince && r.Time < c.SampleTime.add(rule.keepLast)
}

// decideValue decides the score for a usable value: damping comes first, then the veto by the raw
// value, then rounding with the deadband.
func (r *rule) decideValue(c *Cell, raw, points float64, sampleTime, now Instant) {
	deadband := c.history.deadband(r.deadband)
	c.history.hasMatched, c.history.absentAt = true, 0
	c.Raw, c.Outcome, c.Since, c.SampleTime, c.KeptUntil = raw, OK, 0, sampleTime, 0
	c.Points, _ = r.bounds.clamp(r.damp(&c.history, points, now))
	c.history.hasPoints, c.history.seen, c.history.maybeSeen = true, sampleTime, false
	if raw < r.minimum || raw > r.maximum {
		c.State, c.Value = Vetoed, Lowest
		c.history.hasPublished = true
		return
	}
	c.publishPoints(Scored, c.Points, deadband, r.bounds)
}

// publishPoints sets the published value. If the change is within the deadband, the old
// value stays, unless the old value was a veto or the outcome of a missing value, or is
// outside the range, which has changed. The lowest points of the range are always
// published: a deadband must not hide that a cluster has nothing left.
func (c *Cell) publishPoints(state State, points, deadband float64, bounds pointRange) {
	previous := c.State
	c.State = state
	rounded := math.Round(points)
	_, isOutside := bounds.clamp(float64(c.Value))
	comparable := c.history.hasPublished && (previous == Scored || previous == Kept) && !isOutside
	if comparable && rounded > bounds.Low && math.Abs(points-float64(c.Value)) < deadband {
		return
	}
	c.Value = int32(rounded)
	c.history.hasPublished = true
}

// decideMissing decides the score without a usable value: the last score is kept, and
// afterwards the policy's outcome applies. No score is published instead of the worst one
// in three scenarios:
//
//   - The operator starts while the source is down. Nothing is known about the clusters,
//     not even that their metrics are missing.
//   - The query has never matched a cluster. The query is wrong, and the clusters are not.
//   - Two values of nameFrom's label have the same name. No value is the right one.
//
// The outcome of missing.absent is kept as well. Scenario: a cluster has no GPUs, and the
// query fails once. The cluster still has none.
//
// It returns the time at which what is kept ends, or zero.
func (r *rule) decideMissing(c *Cell, outcome Outcome, now Instant) (keepEnd Instant) {
	if c.Since.IsZero() {
		c.Since = now
	}
	c.Outcome = outcome
	if outcome == Unmatched || outcome.isConclusive() {
		c.history.hasMatched, c.history.absentAt = outcome != Unmatched, 0
	}
	if outcome == Absent && r.absent != "" {
		c.history.absentAt = now
	}
	until := c.SampleTime.add(r.keepLast)
	if c.history.hasPoints && now < until {
		c.KeptUntil = until
		if c.State != Vetoed {
			c.State = Kept
		}
		return until
	}
	then := r.then
	switch {
	case outcome == Absent && r.absent != "":
		c.Outcome, c.Since, then = None, 0, r.absent
	case outcome == Unmatched, outcome == Colliding, !outcome.isConclusive() && !c.history.hasPublished:
		then = v1alpha1.MissingOmit
	case !outcome.isConclusive() && r.absent != "" && !c.history.absentAt.IsZero() && now < c.history.absentAt.add(r.keepLast):
		then, keepEnd = r.absent, c.history.absentAt.add(r.keepLast)
	}
	c.endKeeping(then, r.fixed)
	return keepEnd
}

// fixedIfAbsent is the outcome of missing.absent that missing.then does not have.
const fixedIfAbsent = v1alpha1.MissingOutcome(v1alpha1.AbsentFixed)

// endKeeping applies the outcome of a missing value and resets the damping: points from
// before the gap say nothing about the points after it.
func (c *Cell) endKeeping(then v1alpha1.MissingOutcome, fixed int32) {
	h := &c.history
	*h = history{hasPublished: true, hasMatched: h.hasMatched, seen: h.seen, maybeSeen: h.maybeSeen, absentAt: h.absentAt}
	c.KeptUntil = 0
	switch then {
	case v1alpha1.MissingOmit:
		c.State, c.Value, c.history.hasPublished = Omitted, 0, false
	case fixedIfAbsent:
		c.State, c.Value = Fixed, fixed
	default:
		c.State, c.Value = Worst, Lowest
	}
}
