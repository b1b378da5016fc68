package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func loadOne(t *testing.T, folder string) *source {
	t.Helper()
	sources, err := load(t.Context(), []string{folder})
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) != 1 {
		t.Fatalf("%d packages in %s", len(sources), folder)
	}
	return sources[0]
}

// TestMutantsOf also checks that logs, metrics, locks, panics, capacities and String have no mutants.
func TestMutantsOf(t *testing.T) {
	want := strings.TrimSpace(`
limit: 1 -> 0 in limit = 1
store.put: error check removed: if err := check(name); err != nil
store.put: condition negated: if n < limit && name != s.last
store.put: && -> || in n < limit && name != s.last
store.put: < -> <= in n < limit
store.put: < -> >= in n < limit
store.put: != -> == in name != s.last
store.put: removed: return errors.New(name + " is below the limit") in if n < limit && name != s.last (does not compile)
store.put: += -> -= in s.values[name] += n
store.put: removed: s.values[name] += n
store.put: removed: s.last = name
check: == -> != in name == ""
store.isKnown: condition negated: if !known
store.isKnown: false -> true in return 0, false, in if !known
store.isKnown: removed: return 0, false in if !known
store.isKnown: 0 -> 1 in return 0, false
store.isKnown: true -> false in return n, true, in store.isKnown
store.keep: 0 -> 1 in make([]string, 0, 1)
store.keep: 0 -> 1 in i := 0
store.keep: < -> <= in i < len(names)
store.keep: < -> >= in i < len(names)
store.keep: ++ -> -- in i++
store.keep: == -> != in names[i] == s.last
store.keep: removed: continue in if names[i] == s.last
store.keep: removed: kept = append(kept, names[i])
store.keep: removed: clear(s.values)
clamp: case removed: case n < 0
clamp: < -> <= in n < 0
clamp: < -> >= in n < 0
clamp: 0 -> 1 in n < 0
clamp: removed: return min(n, -1) in case n < 0 (does not compile)
clamp: min -> max in min(n, -1)
clamp: 1 -> 0 in -1
clamp: case removed: default (does not compile)
clamp: removed: return int(math.Max(1, float64(n))) in default (does not compile)
clamp: Max -> Min in math.Max(1, float64(n))
clamp: 1 -> 0 in math.Max(1, float64(n))
`)
	var got []string
	for _, m := range mutantsOf(loadOne(t, "testdata/kinds")) {
		text := m.function + ": " + m.change
		if !m.compiles() {
			text += " (does not compile)"
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), got); diff != "" {
		t.Error(diff)
	}
}
