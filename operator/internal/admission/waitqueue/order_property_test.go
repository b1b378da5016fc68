package waitqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// randomEntry is a workload of one of five lines, of two models or of any model.
func (f *fixture) randomEntry(random *rand.Rand, name string) Entry {
	model := []string{h100, "NVIDIA-A100", ""}[random.IntN(3)]
	facts := fmt.Sprintf("%s %d", model, random.IntN(2))
	return f.entry(model, facts, name, int32(random.IntN(3)), time.Duration(random.IntN(6*3600))*time.Second)
}

// requireTurn checks that the gate's turn belongs to a waiting workload which no competing one
// precedes that was not decided in its wake-up, and that a gate without a turn has no workload that could be decided.
func (f *fixture) requireTurn(t *testing.T, isNew bool) {
	t.Helper()
	g := f.gateQueueOf()
	if g == nil {
		return
	}
	if g.turn == noTurn {
		if next := g.next(f.now); next != nil {
			t.Fatalf("%s could be decided, and nothing has the turn", next.Workload.Name)
		}
		return
	}
	e := f.workloads[g.turn]
	if e == nil {
		t.Fatalf("%s has the turn and does not wait", g.turn.Name)
	}
	if !isNew {
		return
	}
	for _, l := range g.lines {
		head := l.first(f.now)
		isDecided := !l.servedFrom.Before(g.lines[e.line()].wakeFrom)
		if head != e && l.isDue() && !isDecided && l.competesWith(e.PodSets) && head.Rank.Before(e.Rank, e.Aging, f.now) {
			t.Fatalf("%s has the turn before %s", e.Workload.Name, head.Workload.Name)
		}
	}
}

// gateQueueOf is the gate's queue; nil = nothing waits.
func (f *fixture) gateQueueOf() *gateQueue { return f.Queue.gates["gpu"] }

func (f *fixture) turn() (name string) {
	if g := f.gateQueueOf(); g != nil {
		name = g.turn.Name
	}
	return name
}

// requireCounts checks that lines and summary have exactly the workloads that wait.
func (f *fixture) requireCounts(t *testing.T, waiting map[string]bool) {
	t.Helper()
	n := 0
	if g := f.gateQueueOf(); g != nil {
		for _, l := range g.lines {
			n += len(l.byPriority)
			if len(l.byPriority) == 0 || len(l.byPriority) != len(l.bySince) || !slices.IsSortedFunc(l.byPriority, comparePriority) || !slices.IsSortedFunc(l.bySince, compareSince) {
				t.Fatalf("a line has %d and %d workloads, or is not sorted", len(l.byPriority), len(l.bySince))
			}
		}
		if int(g.summary.Workloads) != n {
			t.Fatalf("the summary counts %d workloads, the lines have %d", g.summary.Workloads, n)
		}
	}
	if n != len(waiting) || len(f.workloads) != n {
		t.Fatalf("%d workloads in lines and %d in the queue, want %d", n, len(f.workloads), len(waiting))
	}
}

// In any order of events, the turn goes to the first of the competing workloads, a workload that left
// has no turn, and the queue does not stop while a workload could be decided.
func TestTurnsFollowTheOrderInAnySequence(t *testing.T) {
	turns := 0
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 1))
		f, waiting := newFixture(15), map[string]bool{}
		for range 80 {
			before, name := f.turn(), fmt.Sprint("w", random.IntN(12))
			switch random.IntN(8) {
			case 0, 1:
				f.Add(f.randomEntry(random, name))
				waiting[name] = true
			case 2:
				f.Remove(workload(name))
				delete(waiting, name)
			case 3:
				f.now = f.now.Add(time.Duration(random.IntN(20)) * time.Second)
				f.StartWakeUps()
			case 4, 5:
				if n := len(f.refreshes); n > 0 {
					i := random.IntN(n)
					r := f.refreshes[i]
					f.refreshes = slices.Delete(f.refreshes, i, i+1)
					f.Refreshed(r.key, r.newerThan)
				}
			case 6:
				if w := workload(f.turn()); f.HasTurn(w) {
					if random.IntN(2) == 0 {
						f.Remove(w)
						delete(waiting, w.Name)
					} else {
						f.Decided(w, []string{"NoRoom", "Held"}[random.IntN(2)])
					}
				}
			case 7:
				f.EndTurn(workload(name))
			}
			isNew := f.turn() != "" && f.turn() != before
			if isNew {
				turns++
			}
			f.requireTurn(t, isNew)
			f.requireCounts(t, waiting)
		}
		f.requireEnd(t, waiting)
	}
	if turns < 600 {
		t.Errorf("only %d turns", turns)
	}
}

// requireEnd gives every workload room and checks that all of them are decided.
func (f *fixture) requireEnd(t *testing.T, waiting map[string]bool) {
	t.Helper()
	for range 20 * len(waiting) {
		f.now = f.now.Add(15 * time.Second)
		f.StartWakeUps()
		for _, r := range f.refreshes {
			f.Refreshed(r.key, r.newerThan)
		}
		f.refreshes = nil
		for w := workload(f.turn()); f.HasTurn(w); w = workload(f.turn()) {
			f.Remove(w)
		}
	}
	if len(f.workloads) > 0 {
		t.Fatalf("%d of %d workloads never had a turn", len(f.workloads), len(waiting))
	}
}

// Workloads that arrive in any order are decided in the order of their ranks.
func TestOrderDoesNotDependOnTheArrival(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		f := newFixture(15)
		var entries []Entry
		for i := range 12 {
			entries = append(entries, f.entry(h100, fmt.Sprint(i%4), fmt.Sprint("w", i), int32(random.IntN(3)), time.Duration(random.IntN(6*3600))*time.Second))
		}
		want := slices.Clone(entries)
		slices.SortFunc(want, func(a, b Entry) int {
			if a.Rank.Before(b.Rank, a.Aging, f.now) {
				return -1
			}
			return 1
		})
		random.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		for _, e := range entries {
			f.Add(e)
		}
		f.StartWakeUps()
		for _, l := range f.gateQueueOf().lines {
			l.markDue(f.now)
		}
		for i := range 4 { // the results of all lines arrive before a decision
			f.Refreshed(key(fmt.Sprint(i)), f.now)
		}
		for _, e := range want {
			if f.turn() != e.Workload.Name {
				t.Fatalf("seed %d: %s has the turn, want %s", seed, f.turn(), e.Workload.Name)
			}
			f.Remove(e.Workload)
		}
	}
}
