package workload

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func TestWaitersAreWokenByRoundsAndChanges(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	board := gate.NewBoard()
	board.Put(gate.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: 10}})
	w := newWaiters(board, func() time.Time { return now })
	woken, rounds := 0, 0
	w.enqueue(func(types.NamespacedName) { woken++ })
	w.before = func(string) { rounds++ }
	for _, name := range []string{"a", "b", "c"} {
		w.park("gpu", types.NamespacedName{Name: name}, now.Add(-time.Minute))
	}
	if q := board.Queues()["gpu"]; q.Workloads != 3 || !q.Since.Equal(now.Add(-time.Minute)) {
		t.Errorf("the queue is %+v, want 3 workloads since a minute ago", q)
	}
	step := func(what string, after time.Duration, wantWoken, wantRounds int) {
		t.Helper()
		now = now.Add(after)
		woken, rounds = 0, 0
		w.wake()
		if woken != wantWoken || rounds != wantRounds {
			t.Errorf("%s: %d workloads woken in %d rounds, want %d in %d", what, woken, rounds, wantWoken, wantRounds)
		}
	}
	step("within the period", 9*time.Second, 0, 0)
	step("one round for all of them", time.Second, 3, 1)
	w.dirty("gpu")
	step("a change too soon after a round", 500*time.Millisecond, 0, 0)
	step("is not forgotten", 500*time.Millisecond, 3, 1)
	w.dirty("")
	w.leave(types.NamespacedName{Name: "b"})
	step("a change of everything", time.Second, 2, 1)
	w.dirty("other")
	step("another gate's change", 2*time.Second, 0, 0)
	if got := board.Waiting("gpu"); got != 2 {
		t.Errorf("the board says that %d wait, want 2", got)
	}
	w.dirtyAfter(3 * time.Second)
	step("not yet", 2*time.Second, 0, 0)
	step("a while after an end", time.Second, 2, 1)
	step("once", 2*time.Second, 0, 0)
	w.leave(types.NamespacedName{Name: "a"})
	w.leave(types.NamespacedName{Name: "c"})
	step("nobody waits", time.Minute, 0, 0)
	if got := board.Waiting("gpu"); got != 0 {
		t.Errorf("the board says that %d wait, want 0", got)
	}
}
