package workload

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func TestWaitersAreWokenByRoundsAndChanges(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	board := gate.NewBoard()
	board.Put(gate.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: 10}})
	w := newWaiters(board, func() time.Time { return now })
	woken, asked := 0, map[shape]time.Time{}
	w.enqueue(func(types.NamespacedName) { woken++ })
	w.renew = func(s shape, newer time.Time) { asked[s] = newer }
	small, big := shape{gate: "gpu", facts: "small"}, shape{gate: "gpu", facts: "big"}
	w.park(small, types.NamespacedName{Name: "a"}, now.Add(-time.Second))
	w.park(small, types.NamespacedName{Name: "b"}, now.Add(-time.Minute))
	w.park(big, types.NamespacedName{Name: "c"}, now.Add(-time.Second))
	if q := board.Queues()["gpu"]; q.Workloads != 3 || !q.Since.Equal(now.Add(-time.Minute)) {
		t.Errorf("the queue is %+v, want 3 workloads since a minute ago", q)
	}
	renewed := func() {
		for s, newer := range asked {
			w.renewed(s, newer)
		}
		clear(asked)
	}
	renewed()
	if woken != 3 {
		t.Errorf("who begins to wait is woken once more by newer answers, %d were", woken)
	}
	step := func(what string, after time.Duration, wantWoken, wantShapes int) {
		t.Helper()
		now = now.Add(after)
		woken = 0
		w.wake()
		shapes := len(asked)
		if woken > 0 {
			t.Errorf("%s: %d workloads woken before their answers were renewed", what, woken)
		}
		if renewed(); woken != wantWoken || shapes != wantShapes {
			t.Errorf("%s: %d workloads woken and %d shapes asked about, want %d and %d", what, woken, shapes, wantWoken, wantShapes)
		}
	}
	step("within the period", 9*time.Second, 0, 0)
	step("one round for all of them", time.Second, 3, 2)
	w.dirty("gpu")
	step("a change too soon after a round", 500*time.Millisecond, 0, 0)
	step("is not forgotten", 500*time.Millisecond, 3, 2)
	w.dirty("")
	w.leave(types.NamespacedName{Name: "b"})
	step("a change of everything", time.Second, 2, 2)
	w.dirty("other")
	step("another gate's change", 2*time.Second, 0, 0)
	if got := board.Waiting("gpu"); got != 2 {
		t.Errorf("the board says that %d wait, want 2", got)
	}
	w.settling(3 * time.Second)
	step("something ended: soon", 2*time.Second, 2, 2)
	step("not all the time", time.Second, 0, 0)
	step("until the samples must show it", time.Second, 2, 2)
	step("and no longer", 2*time.Second, 0, 0)
	w.leave(types.NamespacedName{Name: "a"})
	w.leave(types.NamespacedName{Name: "c"})
	step("nobody waits", time.Minute, 0, 0)
	if got := board.Waiting("gpu"); got != 0 {
		t.Errorf("the board says that %d wait, want 0", got)
	}
}

// Rounds may follow each other faster than a source answers.
func TestSlowAnswersWakeAllTheSame(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w := newWaiters(gate.NewBoard(), func() time.Time { return now })
	woken := 0
	w.enqueue(func(types.NamespacedName) { woken++ })
	var asked []time.Time
	w.renew = func(_ shape, newer time.Time) { asked = append(asked, newer) }
	s := shape{gate: "gpu"}
	w.park(s, types.NamespacedName{Name: "a"}, now)
	w.renewed(s, asked[0])
	asked, woken = nil, 0
	for range 3 {
		now = now.Add(time.Second)
		w.dirty("gpu")
		w.wake()
	}
	if len(asked) != 3 {
		t.Fatalf("%d rounds, want 3", len(asked))
	}
	w.renewed(s, asked[0])
	if woken != 1 {
		t.Errorf("woken %d times by the first round's answers, want once", woken)
	}
	w.renewed(s, asked[2])
	w.renewed(s, asked[2])
	if woken != 2 {
		t.Errorf("woken %d times, want once more by the last round's", woken)
	}
}

// A round that was asked for is not served by answers that were asked for before.
func TestOnlyAnswersNewerThanTheCauseWake(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w := newWaiters(gate.NewBoard(), func() time.Time { return now })
	woken, s, key := 0, shape{gate: "gpu"}, types.NamespacedName{Name: "a"}
	w.enqueue(func(types.NamespacedName) { woken++ })
	w.park(s, key, now)
	w.renewed(s, now)
	now = now.Add(time.Minute)
	woken = 0
	w.wake()
	w.renewed(s, now.Add(-time.Millisecond))
	w.park(s, key, now) // decided anew for another reason
	w.renewed(s, now.Add(-time.Millisecond))
	if woken != 0 {
		t.Error("woken by answers that are older than the cause")
	}
	w.renewed(s, now)
	w.park(s, key, now)
	w.renewed(s, now)
	if woken != 1 {
		t.Errorf("woken %d times by the answers that are newer than the cause, want once", woken)
	}
}

// A workload whose shape changed was decided on answers that nobody renewed for it.
func TestAnotherShapeBeginsToWait(t *testing.T) {
	w := newWaiters(gate.NewBoard(), func() time.Time { return noon })
	var asked []shape
	w.renew = func(s shape, _ time.Time) { asked = append(asked, s) }
	before, after := shape{gate: "gpu", generation: 1}, shape{gate: "gpu", generation: 2}
	for _, s := range []shape{before, before, after} {
		w.park(s, types.NamespacedName{Name: "a"}, noon)
	}
	if diff := cmp.Diff([]shape{before, after}, asked, cmp.AllowUnexported(shape{})); diff != "" {
		t.Errorf("shapes asked about (-want +got):\n%s", diff)
	}
}

// What has just changed makes rounds more frequent, never less.
func TestSettlingKeepsAShortPeriod(t *testing.T) {
	now := noon
	board := gate.NewBoard()
	board.Put(gate.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: 1}})
	w := newWaiters(board, func() time.Time { return now })
	w.park(shape{gate: "gpu"}, types.NamespacedName{Name: "a"}, now)
	rounds := 0
	w.renew = func(shape, time.Time) { rounds++ }
	w.settling(time.Minute)
	for range 4 {
		now = now.Add(time.Second)
		w.wake()
	}
	if rounds != 4 {
		t.Errorf("%d rounds in 4 s of a gate with a period of 1 s", rounds)
	}
}

// What a gate of many waiting workloads costs at each round.
func BenchmarkPark(b *testing.B) {
	board := gate.NewBoard()
	w := newWaiters(board, time.Now)
	const n = 8000
	keys := make([]types.NamespacedName, n)
	since := time.Now()
	for i := range keys {
		keys[i] = types.NamespacedName{Namespace: "team-a", Name: strconv.Itoa(i)}
		w.park(shape{gate: "gpu"}, keys[i], since)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.park(shape{gate: "gpu"}, keys[i%n], since)
	}
}
