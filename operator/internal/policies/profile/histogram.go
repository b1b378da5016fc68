package profile

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// unit is the weight 1 in a checkpoint.
const unit = 1000

// maxGrowth is the number of half-lives after which the reference time moves to the present.
// Weights of that time are 2^maxGrowth, so that rounding to thousandths never matters.
const maxGrowth = 8

// add adds a value with the weight of its time. It returns false, and changes nothing, for a
// value outside the quantity's scale.
func add(h *v1alpha1.ProfileHistogram, value float64, at time.Time, halfLife time.Duration) bool {
	bucket, ok := scales[h.Quantity].index(value)
	if !ok {
		return false
	}
	if h.ReferenceTime.IsZero() {
		h.ReferenceTime = metav1.NewTime(at)
	}
	// The weights so far are those of the half-life with which they were computed.
	last := halfLife
	if h.HalfLifeHours > 0 {
		last = time.Duration(h.HalfLifeHours) * time.Hour
	}
	if after := at.Sub(h.ReferenceTime.Time); after > maxGrowth*halfLife || after > 0 && last != halfLife {
		moveReference(h, at, last)
	}
	h.HalfLifeHours = int32(halfLife / time.Hour)
	weights := weightsOf(h)
	// A run of long ago still counts a little, so that a bucket is never empty.
	weights[bucket] += max(int64(math.Round(unit*growth(at.Sub(h.ReferenceTime.Time), halfLife))), 1)
	setWeights(h, weights)
	return true
}

// growth returns the weight of a run after a time.
func growth(after, halfLife time.Duration) float64 {
	return math.Exp2(after.Seconds() / halfLife.Seconds())
}

// moveReference moves the reference time, and drops the buckets whose weights become 0.
func moveReference(h *v1alpha1.ProfileHistogram, to time.Time, halfLife time.Duration) {
	factor := growth(h.ReferenceTime.Sub(to), halfLife)
	weights := weightsOf(h)
	for bucket, weight := range weights {
		weights[bucket] = int64(math.Round(float64(weight) * factor))
	}
	h.ReferenceTime = metav1.NewTime(to)
	setWeights(h, weights)
}

// percentile returns the end of the bucket in which the percentile lies, p from 0 to 1. It
// returns false if the histogram is empty.
func percentile(h *v1alpha1.ProfileHistogram, p float64) (float64, bool) {
	weights := weightsOf(h)
	var total float64
	for _, weight := range weights {
		total += float64(weight)
	}
	var sum float64
	for _, bucket := range slices.Sorted(maps.Keys(weights)) {
		if sum += float64(weights[bucket]); sum >= p*total {
			return scales[h.Quantity].end(bucket), true
		}
	}
	return 0, false
}

// weightsOf returns the weights by bucket. Entries that the operator can't have written are
// left out: a status can be edited.
func weightsOf(h *v1alpha1.ProfileHistogram) map[int]int64 {
	last, _ := scales[h.Quantity].index(scales[h.Quantity].Max)
	weights := map[int]int64{}
	for key, weight := range h.Weights {
		bucket, err := strconv.Atoi(key)
		if err == nil && bucket >= 0 && bucket <= last && weight > 0 {
			weights[bucket] = min(weight, math.MaxInt32*unit)
		}
	}
	return weights
}

func setWeights(h *v1alpha1.ProfileHistogram, weights map[int]int64) {
	h.Weights = map[string]int64{}
	for bucket, weight := range weights {
		if weight > 0 {
			h.Weights[strconv.Itoa(bucket)] = weight
		}
	}
}
