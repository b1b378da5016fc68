package waitqueue

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

func TestRoundsWakeWaitingWorkloads(t *testing.T) {
	f := newFixture(10)
	small, big := querycache.Key{Gate: "gpu", Facts: "small"}, querycache.Key{Gate: "gpu", Facts: "big"}
	f.Add(small, workload("a"), f.now.Add(-time.Second))
	f.Add(small, workload("b"), f.now.Add(-time.Minute))
	f.Add(big, workload("c"), f.now.Add(-time.Second))
	want := registry.WaitSummary{Workloads: 3, Since: f.now.Add(-time.Minute)}
	if got := f.gates.WaitSummaries()["gpu"]; got != want {
		t.Errorf("summary %+v, want %+v", got, want)
	}
	f.finishRefreshes()
	if f.woken != 3 {
		t.Errorf("%d workloads woken by fresh results after they started to wait, want 3", f.woken)
	}
	for _, step := range []struct {
		name                string
		change              func()
		wait                time.Duration
		wantWoken, wantKeys int
	}{
		{name: "no round within the period", wait: 9 * time.Second},
		{name: "one round after the period", wait: time.Second, wantWoken: 3, wantKeys: 2},
		{name: "a change too soon after a round", change: func() { f.MarkDirty("gpu") }, wait: 500 * time.Millisecond},
		{name: "the round follows later", wait: 500 * time.Millisecond, wantWoken: 3, wantKeys: 2},
		{name: "a change of several gates", change: func() { f.MarkDirty("other", "gpu"); f.Remove(workload("b")) }, wait: time.Second, wantWoken: 2, wantKeys: 2},
		{name: "a change of another gate", change: func() { f.MarkDirty("other") }, wait: 2 * time.Second},
		{name: "an early round while changes are expected", change: func() { f.ExpectChanges(3*time.Second, "gpu") }, wait: 2 * time.Second, wantWoken: 2, wantKeys: 2},
		{name: "no round within the settling gap", wait: time.Second},
		{name: "the last early round", wait: time.Second, wantWoken: 2, wantKeys: 2},
		{name: "no early round after that", wait: 2 * time.Second},
		{name: "no early round while changes of another gate are expected", change: func() { f.ExpectChanges(time.Minute, "other") }, wait: 2 * time.Second},
		{name: "no workload waits", change: func() { f.Remove(workload("a")); f.Remove(workload("c")) }, wait: time.Minute},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.change != nil {
				step.change()
			}
			f.now, f.woken = f.now.Add(step.wait), 0
			f.StartRounds()
			keys := map[querycache.Key]bool{}
			for _, r := range f.refreshes {
				keys[r.key] = true
			}
			if f.woken > 0 {
				t.Errorf("%d workloads woken before their results are refreshed", f.woken)
			}
			if f.finishRefreshes(); f.woken != step.wantWoken || len(keys) != step.wantKeys {
				t.Errorf("%d workloads woken and %d keys refreshed, want %d and %d", f.woken, len(keys), step.wantWoken, step.wantKeys)
			}
			if got, want := int(f.gates.Waiting("gpu")), len(f.workloads); got != want {
				t.Errorf("the registry counts %d waiting workloads, want %d", got, want)
			}
		})
	}
	if got := f.gates.Waiting("gpu"); got != 0 {
		t.Errorf("the registry counts %d waiting workloads at the end, want 0", got)
	}
}

// Rounds may start faster than a source responds. The results of the first round wake the
// workload, and those of the last round wake it again.
func TestRefreshedWakesDuringFastRounds(t *testing.T) {
	f := newFixture(0)
	key := querycache.Key{Gate: "gpu"}
	f.Add(key, workload("a"), f.now)
	f.finishRefreshes()
	f.woken = 0
	for range 3 {
		f.now = f.now.Add(time.Second)
		f.MarkDirty("gpu")
		f.StartRounds()
	}
	if len(f.refreshes) != 3 {
		t.Fatalf("%d rounds, want 3", len(f.refreshes))
	}
	first, last := f.refreshes[0].newerThan, f.refreshes[2].newerThan
	f.Refreshed(key, first)
	if f.woken != 1 {
		t.Errorf("woken %d times by the results of the first round, want once", f.woken)
	}
	f.Refreshed(key, last)
	f.Refreshed(key, last)
	if f.woken != 2 {
		t.Errorf("woken %d times after the results of the last round, want twice", f.woken)
	}
}

// Results that were queried before a round do not show the change that caused the round.
func TestRefreshedIgnoresOlderResults(t *testing.T) {
	f := newFixture(0)
	key := querycache.Key{Gate: "gpu"}
	f.Add(key, workload("a"), f.now)
	f.Refreshed(key, f.now)
	f.now = f.now.Add(time.Minute)
	f.woken = 0
	f.StartRounds()
	f.Refreshed(key, f.now.Add(-time.Millisecond))
	f.Add(key, workload("a"), f.now) // decided again for another reason
	f.Refreshed(key, f.now.Add(-time.Millisecond))
	if f.woken != 0 {
		t.Error("woken by results that are older than the round")
	}
	f.Refreshed(key, f.now)
	f.Add(key, workload("a"), f.now)
	f.Refreshed(key, f.now)
	if f.woken != 1 {
		t.Errorf("woken %d times by the results of the round, want once", f.woken)
	}
}

// A workload whose key changes, for example with a new generation of its gate, needs fresh
// results of the new key.
func TestAddRefreshesANewKey(t *testing.T) {
	f := newFixture(0)
	before, after := querycache.Key{Gate: "gpu", Generation: 1}, querycache.Key{Gate: "gpu", Generation: 2}
	for _, key := range []querycache.Key{before, before, after} {
		f.Add(key, workload("a"), f.now)
	}
	var keys []querycache.Key
	for _, r := range f.refreshes {
		keys = append(keys, r.key)
	}
	if diff := cmp.Diff([]querycache.Key{before, after}, keys); diff != "" {
		t.Errorf("refreshed keys (-want +got):\n%s", diff)
	}
}

// Expected changes make rounds more frequent, never less frequent.
func TestExpectChangesKeepsAShorterPeriod(t *testing.T) {
	f := newFixture(1)
	f.Add(querycache.Key{Gate: "gpu"}, workload("a"), f.now)
	f.refreshes = nil
	f.ExpectChanges(time.Minute, "gpu")
	for range 4 {
		f.now = f.now.Add(time.Second)
		f.StartRounds()
	}
	if got := len(f.refreshes); got != 4 {
		t.Errorf("%d rounds in 4 s with a period of 1 s, want 4", got)
	}
}

// BenchmarkAdd measures the update of one of many waiting workloads, which each of them
// causes once per round.
func BenchmarkAdd(b *testing.B) {
	q := New(registry.New(), time.Now, func(querycache.Key, time.Time) {})
	const n = 8000
	workloads := make([]types.NamespacedName, n)
	since := time.Now()
	for i := range workloads {
		workloads[i] = types.NamespacedName{Namespace: "team-a", Name: strconv.Itoa(i)}
		q.Add(querycache.Key{Gate: "gpu"}, workloads[i], since)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Add(querycache.Key{Gate: "gpu"}, workloads[i%n], since)
	}
}
