package score

import (
	"math"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// decideTotal sets the last cell of a row: the weighted mean of the others, each
// first brought to the total's range. One vetoed part vetoes it. It is missing when
// a weighted part is missing after its hold: weights are never shared out anew.
func (p *Policy) decideTotal(row []Cell, now Instant) {
	parts, total := row[:len(row)-1], &row[len(row)-1]
	var sum float64
	held, vetoed, worst, omitted := false, false, false, false
	total.Outcome, total.SampleTime, total.HeldUntil = OK, now, 0
	for i := range parts {
		rule, part := &p.scores[i], &parts[i]
		vetoed = vetoed || part.State == Vetoed
		if rule.weight == 0 && part.State != Vetoed {
			continue
		}
		points := part.Points
		switch part.State {
		case Scored, Vetoed:
		case Worst:
			worst = true
		case Omitted:
			omitted = true
		case Fixed:
			points = float64(part.Value)
		case Held:
			held = true
		}
		total.follow(part)
		sum += rule.weight * rescale(points, rule.bounds.Low, rule.bounds.High, p.total.Low, p.total.High)
	}
	switch {
	case vetoed:
		total.settleTotal(held, true, 0, now)
	case worst:
		total.end(v1alpha1.MissingWorst, now)
	case omitted:
		total.end(v1alpha1.MissingOmit, now)
	case p.weights == 0:
		total.Outcome = Absent
		total.end(v1alpha1.MissingOmit, now)
	default:
		total.Points, _ = p.total.Clamp(sum / p.weights)
		total.Raw = math.NaN()
		total.settleTotal(held, false, p.deadband, now)
	}
}

func (c *Cell) settleTotal(held, vetoed bool, deadband float64, now Instant) {
	c.memory.good = true
	if c.Outcome == OK {
		c.Since = 0
	} else if c.Since.IsZero() {
		c.Since = now
	}
	switch {
	case vetoed:
		c.State, c.Value, c.memory.published = Vetoed, Lowest, true
	case held:
		c.settle(Held, c.Points, deadband)
	default:
		c.settle(Scored, c.Points, deadband)
	}
}

func (c *Cell) end(then v1alpha1.MissingOutcome, now Instant) {
	if c.Since.IsZero() {
		c.Since = now
	}
	c.SampleTime = 0
	c.forget(then, Lowest)
}

// follow takes over what is worst in a part: its outcome, the oldest sample and
// the earliest end of a hold.
func (c *Cell) follow(part *Cell) {
	if part.Outcome != OK {
		c.Outcome = part.Outcome
	}
	if part.SampleTime < c.SampleTime {
		c.SampleTime = part.SampleTime
	}
	if !part.HeldUntil.IsZero() && (c.HeldUntil.IsZero() || part.HeldUntil < c.HeldUntil) {
		c.HeldUntil = part.HeldUntil
	}
}

func rescale(v, low, high, toLow, toHigh float64) float64 {
	return toLow + (v-low)/(high-low)*(toHigh-toLow)
}
