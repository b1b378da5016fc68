package score

import (
	"cmp"
	"math"
	"slices"
)

// pointRange is a range of points. Normalization maps raw values to it, and must not get NaN or
// infinite values. Low is less than High.
type pointRange struct{ Low, High float64 }

var (
	// zeroTo100 is the default range.
	zeroTo100 = pointRange{0, 100}
	// fullRange is the range of an AddOnPlacementScore.
	fullRange = pointRange{-100, 100}
)

// clamp limits points to the range. clamped reports whether they were outside.
func (r pointRange) clamp(points float64) (limited float64, clamped bool) {
	if limited = min(max(points, r.Low), r.High); limited != points {
		return limited, true
	}
	return points, false
}

// roundPoints rounds points to nine decimals. It removes the errors of binary fractions, which
// otherwise decide at the limits of rounding and of vetoes: 57/200*100 is 28.499999999999996.
func roundPoints(points float64) float64 {
	const unit = 1e9
	return math.Round(points*unit) / unit
}

// linearPoints maps the interval from..to linearly to the range. Values outside the interval get
// the nearest end of the range. The mapping is reversed if from > to. If from == to,
// values above from get the highest points, and all others the lowest.
func linearPoints(v, from, to float64, r pointRange) float64 {
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
	return roundPoints(r.Low + (v-from)/(to-from)*(r.High-r.Low))
}

// step assigns points to values from a threshold on.
type step struct{ From, Points float64 }

// stepPoints returns the points of the last step whose From is not above v, or the lowest points
// of the range if v is below the first step. steps must ascend by From.
func stepPoints(v float64, steps []step, r pointRange) float64 {
	points := r.Low
	for _, s := range steps {
		if v < s.From {
			break
		}
		points = s.Points
	}
	return points
}

// minMaxPoints replaces the values by points: linearPoints between the lowest and the highest value. If
// all values are equal, all get the highest points.
func minMaxPoints(values []float64, descending bool, r pointRange) {
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
		values[i] = linearPoints(v, low, high, r)
	}
}

// rankPoints replaces the values by points: the best value gets the highest points, the worst the
// lowest, and the others are evenly spaced. Equal values share the better rank.
func rankPoints(values []float64, descending bool, r pointRange) {
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
				points = roundPoints(r.High - float64(rank)/float64(n-1)*(r.High-r.Low))
			}
		}
		values[i] = points
	}
}
