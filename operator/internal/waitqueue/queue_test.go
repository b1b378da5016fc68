package waitqueue

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

func TestWaitersAreWokenByRoundsAndChanges(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	board := registry.New()
	board.Put(registry.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: 10}})
	w := New(board, func() time.Time { return now })
	woken, asked := 0, map[querycache.Key]time.Time{}
	w.SetEnqueuer(func(types.NamespacedName) { woken++ })
	w.Refresh = func(s querycache.Key, newer time.Time) { asked[s] = newer }
	small, big := querycache.Key{Gate: "gpu", Facts: "small"}, querycache.Key{Gate: "gpu", Facts: "big"}
	w.Add(small, types.NamespacedName{Name: "a"}, now.Add(-time.Second))
	w.Add(small, types.NamespacedName{Name: "b"}, now.Add(-time.Minute))
	w.Add(big, types.NamespacedName{Name: "c"}, now.Add(-time.Second))
	if q := board.WaitSummaries()["gpu"]; q.Workloads != 3 || !q.Since.Equal(now.Add(-time.Minute)) {
		t.Errorf("the queue is %+v, want 3 workloads since a minute ago", q)
	}
	renewed := func() {
		for s, newer := range asked {
			w.Refreshed(s, newer)
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
		w.StartRounds()
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
	w.MarkDirty("gpu")
	step("a change too soon after a round", 500*time.Millisecond, 0, 0)
	step("is not forgotten", 500*time.Millisecond, 3, 2)
	w.MarkDirty("")
	w.Remove(types.NamespacedName{Name: "b"})
	step("a change of everything", time.Second, 2, 2)
	w.MarkDirty("other")
	step("another gate's change", 2*time.Second, 0, 0)
	if got := board.Waiting("gpu"); got != 2 {
		t.Errorf("the board says that %d wait, want 2", got)
	}
	w.ExpectChanges(3 * time.Second)
	step("something ended: soon", 2*time.Second, 2, 2)
	step("not all the time", time.Second, 0, 0)
	step("until the samples must show it", time.Second, 2, 2)
	step("and no longer", 2*time.Second, 0, 0)
	w.Remove(types.NamespacedName{Name: "a"})
	w.Remove(types.NamespacedName{Name: "c"})
	step("nobody waits", time.Minute, 0, 0)
	if got := board.Waiting("gpu"); got != 0 {
		t.Errorf("the board says that %d wait, want 0", got)
	}
}

// Rounds may follow each other faster than a source answers.
func TestSlowAnswersWakeAllTheSame(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w := New(registry.New(), func() time.Time { return now })
	woken := 0
	w.SetEnqueuer(func(types.NamespacedName) { woken++ })
	var asked []time.Time
	w.Refresh = func(_ querycache.Key, newer time.Time) { asked = append(asked, newer) }
	s := querycache.Key{Gate: "gpu"}
	w.Add(s, types.NamespacedName{Name: "a"}, now)
	w.Refreshed(s, asked[0])
	asked, woken = nil, 0
	for range 3 {
		now = now.Add(time.Second)
		w.MarkDirty("gpu")
		w.StartRounds()
	}
	if len(asked) != 3 {
		t.Fatalf("%d rounds, want 3", len(asked))
	}
	w.Refreshed(s, asked[0])
	if woken != 1 {
		t.Errorf("woken %d times by the first round's answers, want once", woken)
	}
	w.Refreshed(s, asked[2])
	w.Refreshed(s, asked[2])
	if woken != 2 {
		t.Errorf("woken %d times, want once more by the last round's", woken)
	}
}

// A round that was asked for is not served by answers that were asked for before.
func TestOnlyAnswersNewerThanTheCauseWake(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w := New(registry.New(), func() time.Time { return now })
	woken, s, key := 0, querycache.Key{Gate: "gpu"}, types.NamespacedName{Name: "a"}
	w.SetEnqueuer(func(types.NamespacedName) { woken++ })
	w.Add(s, key, now)
	w.Refreshed(s, now)
	now = now.Add(time.Minute)
	woken = 0
	w.StartRounds()
	w.Refreshed(s, now.Add(-time.Millisecond))
	w.Add(s, key, now) // decided anew for another reason
	w.Refreshed(s, now.Add(-time.Millisecond))
	if woken != 0 {
		t.Error("woken by answers that are older than the cause")
	}
	w.Refreshed(s, now)
	w.Add(s, key, now)
	w.Refreshed(s, now)
	if woken != 1 {
		t.Errorf("woken %d times by the answers that are newer than the cause, want once", woken)
	}
}

// A workload whose shape changed was decided on answers that nobody renewed for it.
func TestAnotherShapeBeginsToWait(t *testing.T) {
	w := New(registry.New(), func() time.Time { return noon })
	var asked []querycache.Key
	w.Refresh = func(s querycache.Key, _ time.Time) { asked = append(asked, s) }
	before, after := querycache.Key{Gate: "gpu", Generation: 1}, querycache.Key{Gate: "gpu", Generation: 2}
	for _, s := range []querycache.Key{before, before, after} {
		w.Add(s, types.NamespacedName{Name: "a"}, noon)
	}
	if diff := cmp.Diff([]querycache.Key{before, after}, asked, cmp.AllowUnexported(querycache.Key{})); diff != "" {
		t.Errorf("shapes asked about (-want +got):\n%s", diff)
	}
}

// What has just changed makes rounds more frequent, never less.
func TestSettlingKeepsAShortPeriod(t *testing.T) {
	now := noon
	board := registry.New()
	board.Put(registry.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: 1}})
	w := New(board, func() time.Time { return now })
	w.Add(querycache.Key{Gate: "gpu"}, types.NamespacedName{Name: "a"}, now)
	rounds := 0
	w.Refresh = func(querycache.Key, time.Time) { rounds++ }
	w.ExpectChanges(time.Minute)
	for range 4 {
		now = now.Add(time.Second)
		w.StartRounds()
	}
	if rounds != 4 {
		t.Errorf("%d rounds in 4 s of a gate with a period of 1 s", rounds)
	}
}

// What a gate of many waiting workloads costs at each round.
func BenchmarkPark(b *testing.B) {
	board := registry.New()
	w := New(board, time.Now)
	const n = 8000
	keys := make([]types.NamespacedName, n)
	since := time.Now()
	for i := range keys {
		keys[i] = types.NamespacedName{Namespace: "team-a", Name: strconv.Itoa(i)}
		w.Add(querycache.Key{Gate: "gpu"}, keys[i], since)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Add(querycache.Key{Gate: "gpu"}, keys[i%n], since)
	}
}
