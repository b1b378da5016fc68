package score

import (
	"math"
	"time"
)

// damp returns the points that apply now: an exponentially weighted mean that the new points enter.
// After one half-life, half of a step change has taken effect.
func (r *rule) damp(h *history, points float64, now Instant) float64 {
	if !h.hasPoints || h.skipDamping {
		h.mean, h.updated, h.skipDamping = points, now, false
		return points
	}
	h.mean = roundPoints(weightedMean(h.mean, points, now.sub(h.updated), r.halfLife))
	h.updated = now
	return h.mean
}

// deadband returns the deadband of the next value. After a change of the policy, it is 0: the
// published value is one of the old policy.
func (h *history) deadband(points float64) float64 {
	if h.skipDamping {
		return 0
	}
	return points
}

// weightedMean moves the mean towards v by the factor 1 - 2^(-elapsed/halfLife). A
// negative elapsed time, after a correction of the clock, counts as 0.
func weightedMean(mean, v float64, elapsed, halfLife time.Duration) float64 {
	if halfLife == 0 {
		return v
	}
	return v + (mean-v)*math.Exp2(-max(elapsed, 0).Seconds()/halfLife.Seconds())
}
