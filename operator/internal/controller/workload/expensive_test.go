//go:build !race

package workload

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

// Workloads wait in one line only if this holds: if the first of them fits nowhere, neither do the
// others. Each pair of these workloads is decided in each of these situations.
func TestLineDecidesAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	variants := lineVariants()
	differs := make([]bool, len(variants))
	for _, s := range lineSituations() {
		var decided []lineDecision
		for _, v := range variants {
			decided = append(decided, decideInSituation(t, s, v.change))
		}
		for i, a := range decided {
			if !slices.Equal(a.fits, decided[0].fits) {
				differs[i] = true
			}
			if isInLine := a.isInLineOf(decided[0]); variants[i].isAlike && !isInLine {
				t.Errorf("%s: %q waits in a line of its own", s.name, variants[i].name)
			}
			for j, other := range decided {
				isBehind := other.entry.Rank.Before(a.entry.Rank, a.entry.Aging, noon)
				if i == j || isBehind || !a.isInLineOf(other) {
					continue
				}
				for _, cluster := range other.fits {
					if !slices.Contains(a.fits, cluster) {
						t.Errorf("%s: %q and %q wait in one line, and only the second fits on %s", s.name, variants[i].name, variants[j].name, cluster)
					}
				}
			}
		}
	}
	for i, v := range variants[1:] {
		if differs[i+1] == v.isAlike {
			t.Errorf("%q is decided differently in some situation: %t", v.name, differs[i+1])
		}
	}
}

// Whatever the hub shows, the observation has a documented phase, the step is one that Kueue accepts,
// and carrying it out leads to a state that needs no further write.
func TestStepsOfRandomObservations(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	const most = 8 // steps until nothing is left to write
	covered := map[Phase]int{}
	for seed := range uint64(40_000) {
		l := ledger.New(time.Second, time.Hour)
		o := chance{rand.New(rand.NewPCG(seed, 1))}.observe(l)
		for n := 0; ; n++ {
			covered[o.phase]++
			s := next(o)
			if err := forbidden(o, s); err != nil {
				t.Fatalf("seed %d, phase %s: %v", seed, o.phase, err)
			}
			to := s.leadsTo(o.phase)
			if !isDocumented(o.phase, to) {
				t.Fatalf("seed %d: %s leads to %s, which is not documented", seed, o.phase, to)
			}
			if len(s.writes) == 0 {
				break
			}
			if n == most {
				t.Fatalf("seed %d, phase %s: the step still writes %+v", seed, o.phase, s.writes[0])
			}
			if err := carryOut(o, s, l); err != nil {
				t.Fatalf("seed %d, phase %s: %v", seed, o.phase, err)
			}
		}
	}
	for _, phase := range declaredPhases(t) {
		if covered[phase] == 0 {
			t.Errorf("phase %s was never observed", phase)
		}
	}
}
