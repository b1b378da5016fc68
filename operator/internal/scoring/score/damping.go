package score

import (
	"math"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/scoring/normalize"
)

// damp returns the points that apply now, given the current points and the new ones:
//
//  1. The new points enter an exponentially weighted mean. After one half-life, half of
//     a step change has taken effect.
//  2. A mean that is not better than the current points applies at once.
//  3. A better mean applies after it has been better for the rise time. Then the lowest
//     mean of that time applies.
func (r *rule) damp(h *history, current, points float64, now Instant) float64 {
	if !h.hasPoints || h.skipDamping {
		h.mean, h.updated, h.risingSince, h.skipDamping = points, now, 0, false
		return points
	}
	// Without rounding, the errors of binary fractions would begin a rise.
	h.mean = normalize.Round(weightedMean(h.mean, points, now.sub(h.updated), r.halfLife))
	h.updated = now
	if h.mean <= current || r.rise == 0 {
		h.risingSince = 0
		return h.mean
	}
	if h.risingSince.IsZero() {
		h.risingSince, h.risingMin = now, h.mean
		return current
	}
	h.risingMin = min(h.risingMin, h.mean)
	if now.sub(h.risingSince) < r.rise {
		return current
	}
	risen := h.risingMin
	h.risingSince = 0
	if h.mean > risen {
		h.risingSince, h.risingMin = now, h.mean
	}
	return risen
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
