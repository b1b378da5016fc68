package score

import (
	"math"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// totalParts summarizes the scores that contribute to a total.
type totalParts struct {
	sum float64 // of weighted points in the range of the total

	anyKept, anyVetoed, anyWorst, anyOmitted bool
}

// decideTotal decides the last cell of a row: the weighted mean of the other cells, each
// converted to the range of the total.
//
//   - A vetoed score vetoes the total, even if its weight is 0.
//   - If a score with a minimum is missing after its keep time, the total is -100, even if the
//     weight is 0 or the score is omitted: whether the cluster is vetoed is unknown.
//   - If a weighted score is missing after its keep time, the total is missing, too. Its
//     weight is not distributed over the other scores: clusters would then be compared
//     by different scores.
//
// With an expression, the scores that it requires take the place of the weighted ones.
//
// An error means that the expression failed for this cluster.
func (p *Policy) decideTotal(row []Cell, now Instant) (err error) {
	total := &row[len(row)-1]
	total.Outcome, total.SampleTime, total.KeptUntil, total.Raw = OK, now, 0, math.NaN()
	parts := p.addParts(total, row[:len(row)-1])
	switch {
	case parts.anyVetoed:
		total.Points = math.NaN()
		p.publishTotal(total, parts, now)
	case parts.anyWorst:
		total.endTotal(v1alpha1.MissingWorst, now)
	case parts.anyOmitted:
		total.endTotal(v1alpha1.MissingOmit, now)
	case p.expression != nil:
		err = p.evaluateTotal(total, row, parts, now)
	case p.totalWeight == 0:
		total.Outcome = Absent
		total.endTotal(v1alpha1.MissingOmit, now)
	default:
		total.Points, _ = p.totalRange.clamp(roundPoints(parts.sum / p.totalWeight))
		p.publishTotal(total, parts, now)
	}
	return err
}

// evaluateTotal evaluates the expression of the total. An expression that fails for a
// cluster is a wrong expression, and not a bad cluster: the total has no value.
func (p *Policy) evaluateTotal(total *Cell, row []Cell, parts totalParts, now Instant) error {
	points := make(map[string]float64, len(row)-1)
	for i := range row[:len(row)-1] {
		switch cell := &row[i]; cell.State {
		case Scored, Kept:
			points[p.Names[i]] = cell.Points
		case Fixed:
			points[p.Names[i]] = float64(cell.Value)
		case Vetoed, Worst, Omitted: // a required one does not get here, an optional one is absent
		}
	}
	value, err := p.expression.evaluate(points)
	if err != nil {
		total.Outcome = Invalid
		total.endTotal(v1alpha1.MissingOmit, now)
		return err
	}
	total.Points, _ = p.totalRange.clamp(roundPoints(value))
	p.publishTotal(total, parts, now)
	return nil
}

// contributes reports whether the i-th score is a part of the total.
func (p *Policy) contributes(i int) bool {
	if p.scores[i].hasVeto() {
		return true
	}
	if p.expression != nil {
		return p.expression.required[p.Names[i]]
	}
	return p.scores[i].weight > 0
}

// addParts sums up the contributing scores, and sets the outcome, sample time and keep
// of the total to those of the worst contributing score.
func (p *Policy) addParts(total *Cell, cells []Cell) totalParts {
	var parts totalParts
	for i := range cells {
		rule, cell := &p.scores[i], &cells[i]
		if !p.contributes(i) {
			continue
		}
		points := cell.Points
		switch cell.State {
		case Scored:
		case Vetoed:
			parts.anyVetoed = true
		case Worst:
			parts.anyWorst = true
		case Omitted:
			// A total that was never published stays unpublished while nothing is known. A query
			// that has matched no cluster yet is wrong, and the clusters are not.
			isKnown := cell.Outcome.isConclusive() || total.history.hasPublished && cell.Outcome != Unmatched
			parts.anyWorst = parts.anyWorst || rule.hasVeto() && isKnown
			parts.anyOmitted = true
		case Fixed:
			points = float64(cell.Value)
		case Kept:
			parts.anyKept = true
		}
		total.adoptWorst(cell)
		parts.sum += rule.weight * rescale(points, rule.bounds.Low, rule.bounds.High, p.totalRange.Low, p.totalRange.High)
	}
	return parts
}

// publishTotal sets the published value of a total with all its parts.
func (p *Policy) publishTotal(c *Cell, parts totalParts, now Instant) {
	c.history.hasPoints = true
	c.updateSince(now)
	deadband := c.history.deadband(p.deadband)
	switch {
	case parts.anyVetoed:
		c.State, c.Value, c.history.hasPublished = Vetoed, Lowest, true
	case parts.anyKept: // with points of the old policy, if it has just changed
		c.publishPoints(Kept, c.Points, deadband, p.totalRange)
	default:
		c.publishPoints(Scored, c.Points, deadband, p.totalRange)
		c.history.skipDamping = false
	}
}

// endTotal applies the outcome of a total with a missing part.
func (c *Cell) endTotal(then v1alpha1.MissingOutcome, now Instant) {
	c.updateSince(now)
	c.SampleTime = 0
	c.endKeeping(then, Lowest)
}

// updateSince keeps the time from which a value is missing.
func (c *Cell) updateSince(now Instant) {
	switch {
	case c.Outcome.IsExpected():
		c.Since = 0
	case c.Since.IsZero():
		c.Since = now
	}
}

// adoptWorst takes over the outcome of a part without a usable value, the oldest sample
// time and the earliest end of a keep time.
func (c *Cell) adoptWorst(part *Cell) {
	if !part.Outcome.IsExpected() || part.Outcome == None && c.Outcome == OK {
		c.Outcome = part.Outcome
	}
	if part.SampleTime < c.SampleTime {
		c.SampleTime = part.SampleTime
	}
	if !part.KeptUntil.IsZero() && (c.KeptUntil.IsZero() || part.KeptUntil < c.KeptUntil) {
		c.KeptUntil = part.KeptUntil
	}
}

// rescale converts v from the range low..high to the range toLow..toHigh.
func rescale(v, low, high, toLow, toHigh float64) float64 {
	return toLow + (v-low)/(high-low)*(toHigh-toLow)
}
