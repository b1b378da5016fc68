package waitqueue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
)

// addIn adds a workload of a namespace that is alone in its line.
func (f *fixture) addIn(namespace, name string, waited time.Duration) {
	e := f.entry(h100, name, name, 0, waited)
	e.Key = gatestate.QueryKey{Gate: "gpu", Namespace: namespace, Facts: name}
	f.Add(e)
}

// respond finishes requested refreshes in their order and decides what is woken, until no
// refresh is left. It returns how many refreshes finished before the workload was decided.
func (f *fixture) respond(workload string) (before int) {
	for n := 1; len(f.refreshes) > 0; n++ {
		r := f.refreshes[0]
		f.refreshes = f.refreshes[1:]
		f.Refreshed(r.key, r.newerThan)
		f.decideWoken()
		if before == 0 && slices.Contains(f.decided, workload) {
			before = n
		}
	}
	return before
}

// mergeRefreshes merges the refreshes of a key into its first one, as the query cache does.
func (f *fixture) mergeRefreshes() {
	var merged []refresh
	for _, r := range f.refreshes {
		if i := slices.IndexFunc(merged, func(m refresh) bool { return m.key == r.key }); i >= 0 {
			merged[i] = r
			continue
		}
		merged = append(merged, r)
	}
	f.refreshes = merged
}

// 400 older shapes of one namespace delay a workload of another by maxDueLines results. All of
// them are decided, in the order of their ranks.
func TestManyLinesOfANamespaceDelayOthersLittle(t *testing.T) {
	f := newFixture(10)
	const flood = 400
	for i := range flood {
		f.addIn("flood", fmt.Sprintf("flood-%03d", i), time.Duration(flood-i)*time.Minute)
	}
	f.addIn("team", "other", time.Second)
	f.run()
	f.respond("")
	for wakeUp := range 3 {
		f.now, f.decided = f.now.Add(10*time.Second), nil
		f.StartWakeUps()
		if n := len(f.refreshes); n != maxDueLines+1 {
			t.Fatalf("wake-up %d requests %d refreshes at once, want %d", wakeUp, n, maxDueLines+1)
		}
		if n := f.respond("other"); n == 0 || n > maxDueLines+1 {
			t.Errorf("wake-up %d: decided after %d refreshes, want at most %d", wakeUp, n, maxDueLines+1)
		}
		f.decided = slices.DeleteFunc(f.decided, func(name string) bool { return name == "other" })
		if len(f.decided) != flood || !slices.IsSorted(f.decided) {
			t.Errorf("wake-up %d decided %d workloads of the large namespace, in order: %t", wakeUp, len(f.decided), slices.IsSorted(f.decided))
		}
	}
}

// If a wake-up takes longer than the period, lines that had no place yet come first in the next.
func TestLinesWithoutAPlaceComeFirstInTheNextWakeUp(t *testing.T) {
	f := newFixture(10)
	const lines = 3 * maxDueLines
	for i := range lines {
		f.addIn("flood", fmt.Sprintf("flood-%03d", i), time.Duration(lines-i)*time.Minute)
	}
	f.respond("")
	f.decided = nil
	for range 6 {
		f.now = f.now.Add(10 * time.Second)
		f.StartWakeUps()
		f.mergeRefreshes()
		for range maxDueLines / 2 { // the source responds to half a batch per period
			r := f.refreshes[0]
			f.refreshes = f.refreshes[1:]
			f.Refreshed(r.key, r.newerThan)
			f.decideWoken()
		}
	}
	slices.Sort(f.decided)
	if n := len(slices.Compact(f.decided)); n != lines {
		t.Errorf("%d of %d lines were decided, want all", n, lines)
	}
}
