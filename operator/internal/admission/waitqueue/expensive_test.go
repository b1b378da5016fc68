//go:build !race

package waitqueue

import (
	"testing"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

// With small jobs flowing at a load of 0.85, no job that needs a whole node starts without order
// and hold. With them, every one does.
func TestHoldPreventsStarvation(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	run := func(c starvationCase) (big, small waits) {
		jobs := starvationJobs(0.85)
		simulate(starvationFleet, jobs, simSeconds, c.strategy())
		big, small = waitsOf(jobs, true), waitsOf(jobs, false)
		t.Logf("%s: whole nodes %s, others %s", c.name, big, small)
		return big, small
	}
	if big, _ := run(withoutOrder); big.neverStarted < big.jobs/2 {
		t.Errorf("without order and hold %d of %d never start: the simulation does not show starvation", big.neverStarted, big.jobs)
	}
	big, small := run(withDefaults)
	if big.neverStarted > 0 || big.longest > 3600 {
		t.Errorf("whole nodes: %d never start, the longest wait is %d s, want none and at most an hour", big.neverStarted, big.longest)
	}
	if mean := small.total / small.jobs; mean > 180 {
		t.Errorf("the others wait %d s on average, want at most 180 s", mean)
	}
}
