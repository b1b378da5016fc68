package score

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinear(t *testing.T) {
	for _, tc := range []struct {
		name        string
		v, from, to float64
		r           pointRange
		want        float64
	}{
		{"sdk lowest", 0, 0, 50, fullRange, -100},
		{"sdk middle", 25, 0, 50, fullRange, 0},
		{"sdk highest", 50, 0, 50, fullRange, 100},
		{"sdk below", -10, 0, 50, fullRange, -100},
		{"sdk above", 60, 0, 50, fullRange, 100},
		{"usage-collect no GPU", 0, 0, 20, fullRange, -100},
		{"usage-collect 2 GPUs", 2, 0, 20, fullRange, -80},
		{"usage-collect 3 GPUs", 3, 0, 20, fullRange, -70},
		{"usage-collect 6 GPUs, best node", 6, 0, 20, fullRange, -40},
		{"usage-collect 12 GPUs, cluster", 12, 0, 20, fullRange, 20},
		{"usage-collect 20 GPUs", 20, 0, 20, fullRange, 100},
		{"usage-collect 1000 GPUs", 1000, 0, 20, fullRange, 100},
		{"usage-collect 28 CPUs, best node", 28, 0, 100, fullRange, -44},
		{"usage-collect 44 CPUs, cluster", 44, 0, 100, fullRange, -12},
		{"zero to 100", 25, 0, 50, zeroTo100, 50},
		{"reversed", 10, 50, 0, zeroTo100, 80},
		{"reversed above", 60, 50, 0, zeroTo100, 0},
		{"from equals to, below", 4, 5, 5, fullRange, -100},
		{"from equals to, equal", 5, 5, 5, fullRange, -100},
		{"from equals to, above", 6, 5, 5, fullRange, 100},
		{"huge", math.MaxFloat64, 0, 1, fullRange, 100},
		{"huge interval", math.MaxFloat64, -math.MaxFloat64, math.MaxFloat64, fullRange, 100},
		{"middle of a huge interval", 0, -math.MaxFloat64, math.MaxFloat64, fullRange, 0},
		{"huge value and interval", 1e307, 0, 2e307, zeroTo100, 50},
		{"smallest interval", 5e-324, 0, 5e-324, zeroTo100, 100},
		{"below the smallest interval", -math.MaxFloat64, 0, 5e-324, zeroTo100, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := linearPoints(tc.v, tc.from, tc.to, tc.r); math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Binary fractions have no exact 28.5 here: 57.0/200*100 is 28.499999999999996.
func TestPointsAreDecimal(t *testing.T) {
	for _, tc := range []struct{ v, to, want float64 }{{57, 200, 28.5}, {0.29, 1, 29}, {0.57, 1, 57}, {1, 3, 33.333333333}} {
		if got := linearPoints(tc.v, 0, tc.to, zeroTo100); got != tc.want {
			t.Errorf("%v of %v: %v, want %v", tc.v, tc.to, got, tc.want)
		}
	}
}

func TestSteps(t *testing.T) {
	steps := []step{{0, 10}, {5, 60}, {10, 100}}
	for _, tc := range []struct {
		name    string
		v, want float64
	}{
		{"below the first step", -1, -100}, {"first step", 0, 10}, {"between two steps", 4.9, 10},
		{"second step", 5, 60}, {"last step", 10, 100}, {"far above the last step", 1e9, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := stepPoints(tc.v, steps, fullRange); got != tc.want {
				t.Errorf("stepPoints(%v) = %v, want %v", tc.v, got, tc.want)
			}
		})
	}
}

func TestFleetInTheFullRange(t *testing.T) {
	for name, f := range map[string]func([]float64, bool, pointRange){"min max": minMaxPoints, "rank": rankPoints} {
		values := []float64{30, 20, 10}
		f(values, false, fullRange)
		if d := cmp.Diff([]float64{100, 0, -100}, values); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestFleet(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    func([]float64, bool, pointRange)
		desc bool
		in   []float64
		want []float64
	}{
		{"min max", minMaxPoints, false, []float64{10, 20, 15}, []float64{0, 100, 50}},
		{"min max descending", minMaxPoints, true, []float64{10, 20, 15}, []float64{100, 0, 50}},
		{"min max all equal", minMaxPoints, false, []float64{7, 7}, []float64{100, 100}},
		{"min max of the largest values", minMaxPoints, false, []float64{-math.MaxFloat64, 0, math.MaxFloat64}, []float64{0, 50, 100}},
		{"min max of no values", minMaxPoints, false, []float64{}, []float64{}},
		{"rank", rankPoints, false, []float64{5, 900, 7}, []float64{0, 100, 50}},
		{"rank descending", rankPoints, true, []float64{5, 900, 7}, []float64{100, 0, 50}},
		{"rank with a tie", rankPoints, false, []float64{1, 2, 2}, []float64{0, 100, 100}},
		{"rank of two values", rankPoints, false, []float64{3, 4}, []float64{0, 100}},
		{"rank with a tie of the worst", rankPoints, false, []float64{1, 1, 2}, []float64{50, 50, 100}},
		{"rank of one value", rankPoints, false, []float64{1}, []float64{100}},
		{"rank of no values", rankPoints, false, []float64{}, []float64{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.f(tc.in, tc.desc, zeroTo100)
			if d := cmp.Diff(tc.want, tc.in); d != "" {
				t.Error(d)
			}
		})
	}
}
