package lifecycle

import (
	"testing"
	"time"
)

// A rounded time is never shorter, at most an eighth longer, and one of few.
func TestRoundUp(t *testing.T) {
	values := map[time.Duration]bool{}
	for d := time.Duration(0); d <= 24*time.Hour; d += 7 * time.Second {
		rounded := roundUp(d)
		if rounded < d || d >= 8*time.Second && rounded > d+d/8 {
			t.Errorf("%s is rounded to %s", d, rounded)
		}
		values[rounded] = true
	}
	if n := len(values); n > 120 {
		t.Errorf("%d values up to a day", n)
	}
}
