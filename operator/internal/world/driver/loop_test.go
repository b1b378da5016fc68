//go:build !race

package driver

import (
	"fmt"
	"slices"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/loop"
)

// TestLoopNominatesAlike runs the same worlds with the whole operator and in the event loop, which nominates the
// jobs to the same clusters.
func TestLoopNominatesAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("runs worlds")
	}
	jobs, alike := 0, 0
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		spec := loopSpec(seed)
		want := Run(t, spec, Options{Verbose: printLog()})
		if printLog() != nil {
			fmt.Println("---")
		}
		got := loop.Run(spec, loop.Options{Verbose: printLog()})
		for _, p := range got.Problems {
			if knownFailures[p.Invariant] == "" {
				t.Errorf("seed %d: %s", seed, p)
			}
		}
		n := 0
		for i, r := range want.Runs() {
			jobs++
			if other := got.Runs()[i]; slices.Equal(r.Nominated, other.Nominated) {
				alike++
			} else {
				n++
				t.Logf("seed %d: %s %v, in the loop %v", seed, r.Name, r.Nominated, other.Nominated)
			}
		}
		t.Logf("seed %d: %d of %d jobs differ", seed, n, len(want.Runs()))
	}
	t.Logf("%d of %d jobs are nominated alike", alike, jobs)
}

// loopSpec is a random world of jobs and queues that the loop has.
func loopSpec(seed uint64) world.Spec {
	s := world.Random(seed)
	s.Faults, s.Settings.Standbys, s.Settings.Score, s.Settings.Reclaim = nil, 0, "", nil
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j world.Job) bool { return j.Elastic || j.Kind == world.KindSet })
	for i := range s.Queues {
		s.Queues[i].Cohort, s.Queues[i].ReclaimCohort = "", ""
	}
	return s
}
