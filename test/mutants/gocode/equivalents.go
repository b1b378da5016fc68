package main

import "fmt"

// equivalent selects mutants that no test can notice. pkg is the package below the module, function and
// change are as the command prints them. Lines are not part of it, because they move.
type equivalent struct {
	pkg, function, change string
	reason                string
}

var equivalents = []equivalent{
	{"operator/internal/admission/lifecycle", "Situation.WaitsForPods", "0 -> 1 in return 0, false", "nobody reads a time that is not waited"},
}

// withoutEquivalents returns the mutants of a package that a test could notice. It counts the others, and
// the entries for the package that select none: their function has changed.
func (r *report) withoutEquivalents(s *source, entries []equivalent) []mutant {
	used := map[equivalent]bool{}
	var mutants []mutant
	for _, m := range mutantsOf(s) {
		r.sites++
		isEquivalent := false
		for _, e := range entries {
			if e.pkg == s.name() && e.function == m.function && e.change == m.change {
				used[e], isEquivalent = true, true
			}
		}
		if isEquivalent {
			r.equivalent++
		} else {
			mutants = append(mutants, m)
		}
	}
	for _, e := range entries {
		if e.pkg == s.name() && !used[e] {
			r.unused = append(r.unused, fmt.Sprintf("%s: %s: %s: no such mutant, remove it from equivalents.go", e.pkg, e.function, e.change))
		}
	}
	return mutants
}
