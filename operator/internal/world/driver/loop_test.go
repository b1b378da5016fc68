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
	for _, tc := range []struct {
		name    string
		has     func(world.Fault) bool
		seeds   []uint64 // with faults: those that change where jobs go
		atLeast float64
	}{
		{"without faults", noFault, []uint64{1, 2, 3, 4}, 0.8},
		{"with faults", isLoopFault, []uint64{6, 9, 10, 11, 12}, 0.7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			jobs, alike := 0, 0
			for _, seed := range tc.seeds {
				spec := loopSpec(seed, tc.has)
				n, same := compareWithLoop(t, spec)
				jobs, alike = jobs+n, alike+same
				if len(spec.Faults) > 0 && nominatedAlike(loop.Run(spec, loop.Options{}), loop.Run(loopSpec(seed, noFault), loop.Options{})) == n {
					t.Errorf("the faults of seed %d change no nomination: choose another one", seed)
				}
			}
			t.Logf("%d of %d jobs are nominated alike", alike, jobs)
			if float64(alike) < tc.atLeast*float64(jobs) {
				t.Errorf("want at least %.0f %%", 100*tc.atLeast)
			}
		})
	}
}

// compareWithLoop returns the number of jobs of a world, and of those that both drivers nominate alike.
func compareWithLoop(t *testing.T, spec world.Spec) (jobs, alike int) {
	t.Helper()
	want := Run(t, spec, Options{Verbose: printLog()})
	got := loop.Run(spec, loop.Options{Verbose: printLog()})
	for _, p := range got.Problems {
		if knownFailures[p.Invariant] == "" {
			t.Errorf("seed %d: %s", spec.Seed, p)
		}
	}
	for i, r := range want.Runs() {
		if other := got.Runs()[i]; slices.Equal(r.Nominated, other.Nominated) {
			alike++
		} else {
			t.Logf("seed %d: %s %v, in the loop %v", spec.Seed, r.Name, r.Nominated, other.Nominated)
		}
	}
	t.Logf("seed %d with %d faults: %d of %d", spec.Seed, len(spec.Faults), alike, len(want.Runs()))
	return len(want.Runs()), alike
}

// nominatedAlike is the number of jobs that went to the same clusters in two runs of a world.
func nominatedAlike(a, b *world.World) (n int) {
	for i, r := range a.Runs() {
		if slices.Equal(r.Nominated, b.Runs()[i].Nominated) {
			n++
		}
	}
	return n
}

func noFault(world.Fault) bool { return false }

// isLoopFault reports whether the loop has a fault. It has none of the metrics store, of a second process, of elastic jobs
// or of clusters that OCM decides otherwise.
func isLoopFault(f world.Fault) bool {
	return !slices.Contains([]world.FaultKind{world.StoreLost, world.PrometheusDown, world.PrometheusSlow, world.LeaderCut, world.Resized, world.Leaves}, f.Kind)
}

// loopSpec is a random world of jobs and queues that the loop has, with some of its faults.
func loopSpec(seed uint64, has func(world.Fault) bool) world.Spec {
	s := world.Random(seed)
	s.Settings.Standbys, s.Settings.Score, s.Settings.Reclaim = 0, "", nil
	s.Faults = slices.DeleteFunc(s.Faults, func(f world.Fault) bool { return !has(f) })
	s.Settings.Trial = nil
	s.Settings.Gate.Queries, s.Settings.Gate.Profiles = v1alpha1.GateQueries{}, nil
	isLeftOut := func(j world.Job) bool { return j.Elastic || j.Kind == world.KindSet || j.Topology != "" }
	s.Faults = slices.DeleteFunc(s.Faults, func(f world.Fault) bool {
		return slices.ContainsFunc(s.Jobs, func(j world.Job) bool { return j.Name == f.Job && isLeftOut(j) })
	})
	s.Jobs = slices.DeleteFunc(s.Jobs, isLeftOut)
	for i := range s.Queues {
		if s.Settings.Capacity != nil || s.Queues[i].Cohort != "" { // its jobs may need what it borrows
			s.Queues[i].Nominal = nil
		}
		s.Queues[i].Cohort, s.Queues[i].ReclaimCohort = "", ""
	}
	s.Settings.Capacity = nil
	return s
}
