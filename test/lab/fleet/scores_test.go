package fleet

import (
	"math"
	"testing"
)

func TestCountNumbers(t *testing.T) {
	samples := []Sample{{Value: 0}, {Value: math.NaN()}, {Value: math.Inf(1)}, {Value: math.NaN()}}
	if got := CountNumbers(samples); got != 2 {
		t.Errorf("%d numbers, want 2", got)
	}
	if got := CountNumbers(nil); got != 0 {
		t.Errorf("%d numbers without samples", got)
	}
}
