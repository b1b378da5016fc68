package profile

import (
	"math"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Scale divides the values of a quantity into buckets. Bucket 0 ends at First, and each
// other one ends at Ratio times the end of the one before.
type Scale struct {
	First, Ratio float64
	// Min is the smallest value on the scale. Smaller ones are dropped.
	Min float64
	// Max is the largest possible value. Up to 1% more counts as Max, because exporters round.
	// Larger values are errors of a metric.
	Max float64
}

// tolerance is the factor up to which a value above Max counts as Max.
const tolerance = 1.01

// index returns the bucket of a value. It returns false for a value outside the scale.
func (s Scale) index(v float64) (int, bool) {
	if math.IsNaN(v) || v < s.Min || v > s.Max*tolerance {
		return 0, false
	}
	if v = min(v, s.Max); v <= s.First {
		return 0, true
	}
	// Rounding must not move a value at the end of a bucket to the next one.
	return int(math.Ceil(math.Log(v/s.First)/math.Log(s.Ratio) - 1e-9)), true
}

// end returns the largest value of a bucket.
func (s Scale) end(bucket int) float64 {
	return min(s.First*math.Pow(s.Ratio, float64(bucket)), s.Max)
}

const (
	mebibyte = 1 << 20
	tebibyte = 1 << 40
	year     = 365 * 24 * 3600
)

// ratios is the scale of quantities from 0 to 1.
var ratios = Scale{First: 0.01, Ratio: 1.1, Max: 1}

// IsOnScale reports whether a profile can hold a value of a quantity.
func IsOnScale(q v1alpha1.ProfileQuantity, value float64) bool {
	_, ok := scales[q].index(value)
	return ok
}

// scales of all quantities. Ratios of 5% serve quantities from which room is computed, and
// those of 25% quantities that only characterize. No scale has more than 512 buckets, the limit of
// the schema. A throughput has the unit of the user's query, and is never 0: models whose copies did
// nothing would be equally fast.
var scales = map[v1alpha1.ProfileQuantity]Scale{
	v1alpha1.QuantityDuration:     {First: 1, Ratio: 1.1, Max: year},
	v1alpha1.QuantityMemoryPeak:   {First: 64 * mebibyte, Ratio: 1.05, Max: 4 * tebibyte},
	v1alpha1.QuantityUtilization:  ratios,
	v1alpha1.QuantityTensorActive: ratios,
	v1alpha1.QuantityDRAMActive:   ratios,
	v1alpha1.QuantityNVLink:       {First: 1e6, Ratio: 1.25, Max: 1e14},
	v1alpha1.QuantityPCIe:         {First: 1e6, Ratio: 1.25, Max: 1e13},
	v1alpha1.QuantityEnergy:       {First: 1e3, Ratio: 1.25, Max: 1e16},
	v1alpha1.QuantityThroughput:   {First: 1e-9, Ratio: 1.15, Min: 1e-9, Max: 1e18},
}
