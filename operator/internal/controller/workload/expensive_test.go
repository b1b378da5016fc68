//go:build !race

package workload

import (
	"slices"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
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
				isBehind := other.entry.Rank.Before(a.entry.Rank, a.entry.Aging, fixture.Noon)
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
