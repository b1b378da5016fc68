//go:build !race

package driver

import (
	"slices"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/loop"
)

// TestLoopNominatesAlike runs the same worlds with the whole operator and in the event loop. Queries take another time
// in each, so that decisions come at other moments: where jobs wait for each other, some then differ.
func TestLoopNominatesAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("runs worlds")
	}
	const worlds, atLeast = 4, 0.8
	jobs, alike := 0, 0
	for seed := uint64(1); seed <= worlds; seed++ {
		spec := loopSpec(seed)
		want := Run(t, spec, Options{Verbose: printLog()})
		got := loop.Run(spec, loop.Options{Verbose: printLog()})
		for _, p := range got.Problems {
			if knownFailures[p.Invariant] == "" {
				t.Errorf("seed %d: %s", seed, p)
			}
		}
		for i, r := range want.Runs() {
			jobs++
			if other := got.Runs()[i]; slices.Equal(r.Nominated, other.Nominated) {
				alike++
			} else {
				t.Logf("seed %d: %s %v, in the loop %v", seed, r.Name, r.Nominated, other.Nominated)
			}
		}
	}
	t.Logf("%d of %d jobs are nominated alike", alike, jobs)
	if float64(alike) < atLeast*float64(jobs) {
		t.Errorf("want at least %.0f %%", 100*atLeast)
	}
}

// loopSpec is a random world of jobs and queues that the loop has.
func loopSpec(seed uint64) world.Spec {
	s := world.Random(seed)
	s.Faults, s.Settings.Standbys, s.Settings.Score, s.Settings.Reclaim = nil, 0, "", nil
	s.Settings.Trial = nil
	s.Settings.Gate.Queries, s.Settings.Gate.Profiles = v1alpha1.GateQueries{}, nil
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j world.Job) bool { return j.Elastic || j.Kind == world.KindSet || j.Topology != "" })
	for i := range s.Queues {
		s.Queues[i].Cohort, s.Queues[i].ReclaimCohort = "", ""
		if s.Settings.Capacity != nil {
			s.Queues[i].Nominal = nil
		}
	}
	s.Settings.Capacity = nil
	return s
}
