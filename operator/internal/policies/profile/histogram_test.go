package profile

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const month = 30 * 24 * time.Hour

func histogram(q v1alpha1.ProfileQuantity) *v1alpha1.ProfileHistogram {
	return &v1alpha1.ProfileHistogram{Quantity: q}
}

// The percentiles of the histogram are above the exact ones by at most the ratio of a bucket.
func TestPercentilesConverge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for quantity, scale := range scales {
		var values []float64
		h := histogram(quantity)
		for range 2000 {
			v := scale.First * math.Exp(random.Float64()*math.Log(scale.Max/scale.First))
			values = append(values, v)
			if !add(h, v, noon, month) {
				t.Fatalf("%s: %g was refused", quantity, v)
			}
		}
		slices.Sort(values)
		for _, p := range []float64{0.5, 0.9} {
			exact := values[int(p*2000)-1]
			if got, ok := percentile(h, p); !ok || got < exact*(1-1e-9) || got > exact*scale.Ratio*(1+1e-9) {
				t.Errorf("%s: percentile %g is %g, want %g to %g", quantity, p, got, exact, exact*scale.Ratio)
			}
		}
	}
}

// The schema of a JobProfile limits the buckets.
func TestScalesHaveAtMost512Buckets(t *testing.T) {
	for quantity, scale := range scales {
		last, ok := scale.index(scale.Max)
		if !ok || last > 511 {
			t.Errorf("%s has %d buckets", quantity, last+1)
		}
		for bucket := range last + 1 {
			if got, ok := scale.index(scale.end(bucket)); !ok || got != bucket {
				t.Fatalf("%s: the end %g of bucket %d is in bucket %d", quantity, scale.end(bucket), bucket, got)
			}
		}
	}
}

func TestHostileValuesChangeNothing(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -math.SmallestNonzeroFloat64, math.MaxFloat64, 4.1 * tebibyte} {
		h := histogram(v1alpha1.QuantityMemoryPeak)
		if add(h, v, noon, month) || h.Weights != nil || !h.ReferenceTime.IsZero() {
			t.Errorf("%g was added: %+v", v, h)
		}
	}
	h := histogram(v1alpha1.QuantityUtilization)
	if !add(h, 1.005, noon, month) {
		t.Error("a rounding error of an exporter was refused")
	}
	if got, _ := percentile(h, 0.5); got != 1 {
		t.Errorf("percentile %g, want 1", got)
	}
}

// Ten old runs weigh as much as ten times half a new one after one half-life, and nothing
// after twenty.
func TestRunsDecay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		runs  int
		want  float64
	}{
		{"four new runs against ten halves", month, 4, 100},
		{"six new runs against ten halves", month, 6, 1000},
		{"two new runs after four half-lives", 4 * month, 2, 1000},
		{"one new run after twenty half-lives", 20 * month, 1, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := histogram(v1alpha1.QuantityDuration)
			for range 10 {
				add(h, 100, noon, month)
			}
			for range tc.runs {
				add(h, 1000, noon.Add(tc.after), month)
			}
			if got, _ := percentile(h, 0.5); got < tc.want || got > tc.want*1.1 {
				t.Errorf("median %g, want about %g", got, tc.want)
			}
		})
	}
}

// A run that ends every minute decays by less than a thousandth of its weight until the next.
func TestManySmallDecaysAddUp(t *testing.T) {
	h := histogram(v1alpha1.QuantityDuration)
	at := noon
	for range 5000 {
		at = at.Add(time.Minute)
		add(h, 100, at, 24*time.Hour)
	}
	for range 1500 { // about one half-life
		at = at.Add(time.Minute)
		add(h, 1000, at, 24*time.Hour)
	}
	if got, _ := percentile(h, 0.5); got < 1000 {
		t.Errorf("median %g: the old runs did not decay", got)
	}
	for bucket, weight := range h.Weights {
		if weight > unit*5000<<maxGrowth {
			t.Errorf("bucket %s has the weight %d", bucket, weight)
		}
	}
}

// Weights double with every half-life after the reference time, which therefore has to move.
func TestWeightsStayBounded(t *testing.T) {
	h := histogram(v1alpha1.QuantityDuration)
	for i := range 200 {
		add(h, 100, noon.Add(time.Duration(i)*month), month)
	}
	for bucket, weight := range h.Weights {
		if weight < unit || weight > unit<<(maxGrowth+2) {
			t.Errorf("bucket %s has the weight %d after 200 half-lives", bucket, weight)
		}
	}
}

// The weights of a histogram are those of the half-life with which they were computed. Another half-life
// applies from its first run on.
func TestHalfLifeChanges(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name     string
		from, to time.Duration
		after    time.Duration // of the last run with the new half-life
		runs     int
		want     float64
	}{
		{"a smaller one keeps the history", month, day, month, 1, 100},
		{"a smaller one keeps what is left of the history", month, day, month, 6, 1000},
		{"a larger one does not bring the history back", day, month, 20 * day, 1, 1000},
		{"a larger one, at once", day, month, time.Minute, 9, 100},
		{"a smaller one, at once", month, day, time.Minute, 9, 100},
		{"a smaller one, for a late run", month, day, -time.Hour, 9, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := histogram(v1alpha1.QuantityDuration)
			for range 10 {
				add(h, 100, noon, tc.from)
			}
			for range tc.runs {
				add(h, 1000, noon.Add(tc.after), tc.to)
			}
			if got, _ := percentile(h, 0.5); got < tc.want || got > tc.want*1.1 {
				t.Errorf("median %g, want about %g", got, tc.want)
			}
			if got := time.Duration(h.HalfLifeHours) * time.Hour; got != tc.to {
				t.Errorf("half-life %s", got)
			}
		})
	}
	h := histogram(v1alpha1.QuantityDuration)
	for range 10 {
		add(h, 100, noon, month)
	}
	add(h, 1000, noon.Add(month), day) // weighs twice as much as each of the five that are left of the ten
	for range 6 {
		add(h, 1000, noon.Add(month+day), day)
	}
	if got, _ := percentile(h, 0.5); got < 1000 {
		t.Errorf("median %g: the history does not decay with the new half-life", got)
	}
}

// Runs can end in another order than they are added.
func TestLateRunsCountLess(t *testing.T) {
	h := histogram(v1alpha1.QuantityDuration)
	add(h, 100, noon, month)
	add(h, 1000, noon.Add(-20*month), month)
	if got, _ := percentile(h, 0.9); got > 110 {
		t.Errorf("percentile %g: a run of long ago counts as a new one", got)
	}
}

// A status can be edited by hand.
func TestInvalidWeightsAreIgnored(t *testing.T) {
	h := histogram(v1alpha1.QuantityDuration)
	h.Weights = map[string]int64{"x": 5, "-1": 5, "999": 5, "7": -5, "8": 0, "9": math.MaxInt64, "10": math.MaxInt64}
	add(h, 1, noon, month)
	if got, ok := percentile(h, 0.9); !ok || got < 2.3 || got > 2.6 {
		t.Errorf("percentile %g, want the end of bucket 10", got)
	}
	if len(h.Weights) != 3 {
		t.Errorf("weights %v", h.Weights)
	}
	if _, ok := percentile(histogram(v1alpha1.QuantityDuration), 0.5); ok {
		t.Error("an empty histogram has a percentile")
	}
}
