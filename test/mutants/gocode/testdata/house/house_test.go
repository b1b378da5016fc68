package house

import "testing"

func TestFees(t *testing.T) {
	if got := Fees(1, 2); got != 7 {
		t.Errorf("got %d", got)
	}
}
