// Package normalize turns raw values into bounded points. Everything in it is a
// function of its arguments; a NaN or infinite value is the caller's to refuse.
package normalize

import (
	"math"
	"slices"
)

// Range of points, Low < High.
type Range struct{ Low, High float64 }

var (
	// ZeroTo100 is the default range.
	ZeroTo100 = Range{0, 100}
	// Full is all that an AddOnPlacementScore can hold.
	Full = Range{-100, 100}
)

// Clamp bounds points to the range and says whether it had to.
func (r Range) Clamp(points float64) (float64, bool) {
	if bounded := min(max(points, r.Low), r.High); bounded != points {
		return bounded, true
	}
	return points, false
}

// Linear maps from..to on the range and bounds what lies outside. It is reversed
// when from > to. When from == to, values above it get the highest points and
// all others the lowest.
func Linear(v, from, to float64, r Range) float64 {
	if from == to {
		if v > from {
			return r.High
		}
		return r.Low
	}
	points, _ := r.Clamp(r.Low + (v-from)/(to-from)*(r.High-r.Low))
	return points
}

// Step gives points from a value on.
type Step struct{ From, Points float64 }

// Steps returns the points of the last step that v reaches, the range's lowest
// below the first. Steps must ascend by From.
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

// MinMax is Linear between the lowest and the highest of values; all get the
// highest points when these are the same.
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

// Rank gives the best value the highest points, the worst the lowest, and the
// others equal steps between; equal values share the better rank.
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
		switch {
		case values[a] > values[b]:
			return -1
		case values[a] < values[b]:
			return 1
		}
		return 0
	})
	last, points := math.NaN(), r.High
	for rank, i := range order {
		if v := values[i]; v != last {
			last = v
			if n > 1 {
				points = r.High - float64(rank)/float64(n-1)*(r.High-r.Low)
			}
		}
		values[i] = points
	}
}
