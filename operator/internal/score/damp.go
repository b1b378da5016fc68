package score

import (
	"math"
	"time"
)

// damp returns the points that count now. The mean is exponentially weighted by
// the time between values: a step is half taken after one half life. What is worse
// then counts at once; what is better counts once it has lasted for rise, with the
// lowest that was seen meanwhile.
func (rule *rule) damp(m *memory, current, points float64, now Instant) float64 {
	if !m.good || m.jump {
		m.smooth, m.at, m.rising, m.jump = points, now, 0, false
		return points
	}
	m.smooth = weigh(m.smooth, points, now.sub(m.at), rule.halfLife)
	m.at = now
	if m.smooth <= current || rule.rise == 0 {
		m.rising = 0
		return m.smooth
	}
	if m.rising.IsZero() {
		m.rising, m.riseMin = now, m.smooth
		return current
	}
	m.riseMin = min(m.riseMin, m.smooth)
	if now.sub(m.rising) < rule.rise {
		return current
	}
	risen := m.riseMin
	m.rising = 0
	if m.smooth > risen {
		m.rising, m.riseMin = now, m.smooth
	}
	return risen
}

// weigh moves mean towards v by 1 - 2^(-elapsed/halfLife).
func weigh(mean, v float64, elapsed, halfLife time.Duration) float64 {
	if halfLife == 0 {
		return v
	}
	return v + (mean-v)*math.Exp2(-elapsed.Seconds()/halfLife.Seconds())
}
