// Package normalize converts raw values to points within a range. Its functions are pure.
// Callers must not pass NaN or infinite values.
package normalize

import (
	"cmp"
	"math"
	"slices"
)

// Range is a range of points. Low is less than High.
type Range struct{ Low, High float64 }

var (
	// ZeroTo100 is the default range.
	ZeroTo100 = Range{0, 100}
	// Full is the range of an AddOnPlacementScore.
	Full = Range{-100, 100}
)

// Clamp limits points to the range. clamped reports whether they were outside.
func (r Range) Clamp(points float64) (limited float64, clamped bool) {
	if limited = min(max(points, r.Low), r.High); limited != points {
		return limited, true
	}
	return points, false
}

// Round rounds points to nine decimals. It removes the errors of binary fractions, which
// otherwise decide at the limits of rounding and of vetoes: 57/200*100 is 28.499999999999996.
func Round(points float64) float64 {
	const unit = 1e9
	return math.Round(points*unit) / unit
}

// Linear maps the interval from..to linearly to the range. Values outside the interval get
// the nearest end of the range. The mapping is reversed if from > to. If from == to,
// values above from get the highest points, and all others the lowest.
func Linear(v, from, to float64, r Range) float64 {
	if from == to {
		if v > from {
			return r.High
		}
		return r.Low
	}
	v = min(max(v, min(from, to)), max(from, to))
	if math.IsInf(to-from, 0) {
		v, from, to = v/2, from/2, to/2
	}
	return Round(r.Low + (v-from)/(to-from)*(r.High-r.Low))
}

// Step assigns points to values from a threshold on.
type Step struct{ From, Points float64 }

// Steps returns the points of the last step whose From is not above v, or the lowest points
// of the range if v is below the first step. Steps must ascend by From.
func Steps(v float64, steps []Step, r Range) float64 {
	points := r.Low
	for _, s := range steps {
		if v < s.From {
			break
		}
		points = s.Points
	}
	return points
}

// MinMax replaces the values by points: Linear between the lowest and the highest value. If
// all values are equal, all get the highest points.
func MinMax(values []float64, descending bool, r Range) {
	if len(values) == 0 {
		return
	}
	low, high := slices.Min(values), slices.Max(values)
	if descending {
		low, high = high, low
	}
	for i, v := range values {
		if low == high {
			values[i] = r.High
			continue
		}
		values[i] = Linear(v, low, high, r)
	}
}

// Rank replaces the values by points: the best value gets the highest points, the worst the
// lowest, and the others are evenly spaced. Equal values share the better rank.
func Rank(values []float64, descending bool, r Range) {
	n := len(values)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if descending {
			a, b = b, a
		}
		return cmp.Compare(values[b], values[a])
	})
	last, points := math.NaN(), r.High
	for rank, i := range order {
		if v := values[i]; v != last {
			last = v
			if n > 1 {
				points = Round(r.High - float64(rank)/float64(n-1)*(r.High-r.Low))
			}
		}
		values[i] = points
	}
}
