package waitqueue

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestWakeUpsDecideTheFirstOfEachLine(t *testing.T) {
	f := newFixture(10)
	f.add("small", "a", 0, time.Second)
	f.add("small", "b", 0, time.Minute)
	f.add("big", "c", 0, time.Second)
	want := gatestate.WaitSummary{Workloads: 3, Since: f.now.Add(-time.Minute)}
	if got := f.gates.WaitSummaries()["gpu"]; got != want {
		t.Errorf("summary %+v, want %+v", got, want)
	}
	f.now = f.now.Add(time.Second)
	f.StartWakeUps()
	f.run()
	for _, step := range []struct {
		name   string
		change func()
		wait   time.Duration
		want   []string
	}{
		{name: "no wake-up within the period", wait: 9 * time.Second},
		{name: "one wake-up after the period", wait: time.Second, want: []string{"b", "c"}},
		{name: "a change too soon after a wake-up", change: func() { f.MarkDirty("gpu") }, wait: 500 * time.Millisecond},
		{name: "the wake-up follows later", wait: 500 * time.Millisecond, want: []string{"b", "c"}},
		{name: "a change of several gates", change: func() { f.MarkDirty("other", "gpu"); f.Remove(workload("b")) }, wait: time.Second, want: []string{"a", "c"}},
		{name: "a change of another gate", change: func() { f.MarkDirty("other") }, wait: 2 * time.Second},
		{name: "an early wake-up while changes are expected", change: func() { f.ExpectChanges(3*time.Second, nil, "gpu") }, wait: 2 * time.Second, want: []string{"a", "c"}},
		{name: "no wake-up within the settling gap", wait: time.Second},
		{name: "the last early wake-up", wait: time.Second, want: []string{"a", "c"}},
		{name: "no early wake-up after that", wait: 2 * time.Second},
		{name: "no early wake-up while changes of another gate are expected", change: func() { f.ExpectChanges(time.Minute, nil, "other") }, wait: 2 * time.Second},
		{name: "no workload waits", change: func() { f.Remove(workload("a")); f.Remove(workload("c")) }, wait: time.Minute},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.change != nil {
				step.change()
			}
			f.now, f.decided = f.now.Add(step.wait), nil
			f.StartWakeUps()
			if len(f.woken) > 0 {
				t.Errorf("%v woken before the results are refreshed", f.woken)
			}
			f.run()
			if diff := cmp.Diff(step.want, f.decided); diff != "" {
				t.Errorf("decided (-want +got):\n%s", diff)
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

// Devices that become free concern the workloads that might use them. The others cost no query
// until the period is over, and early wake-ups do not delay that.
func TestFreedDevicesConcernTheirLines(t *testing.T) {
	freed := func(model string) []shape.PodSet {
		return []shape.PodSet{{Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: 8, Pods: 1}}
	}
	f := newFixture(10)
	f.add("h100", "a", 0, time.Second)
	f.addFor("NVIDIA-L4", "l4", "b", 0, time.Second)
	f.addFor("", "any model", "c", 0, time.Second)
	f.addFor("NVIDIA-A100", "a100", "d", 0, time.Second)
	f.now = f.now.Add(time.Second)
	f.MarkDirty("gpu")
	f.StartWakeUps()
	f.run()
	for _, step := range []struct {
		name   string
		change func()
		wait   time.Duration
		want   []string
	}{
		{"one model", func() { f.MarkFreed(freed(h100), "gpu") }, time.Second, []string{"a", "c"}},
		{"two models", func() { f.MarkFreed(freed(h100), "gpu"); f.MarkFreed(freed("NVIDIA-L4"), "gpu") }, time.Second, []string{"a", "b", "c"}},
		{"another gate", func() { f.MarkFreed(freed(h100), "other") }, time.Second, nil},
		{"while the samples settle", func() { f.ExpectChanges(3*time.Second, freed("NVIDIA-L4"), "gpu") }, 2 * time.Second, []string{"b", "c"}},
		{"while they settle and another model is freed", func() { f.MarkFreed(freed(h100), "gpu") }, 2 * time.Second, []string{"a", "b", "c"}},
		{"the period of the others is over", nil, 3 * time.Second, []string{"a", "b", "c", "d"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.change != nil {
				step.change()
			}
			f.now, f.decided = f.now.Add(step.wait), nil
			f.StartWakeUps()
			if n := len(f.refreshes); n != len(step.want) {
				t.Errorf("%d refreshes, want %d", n, len(step.want))
			}
			f.run()
			slices.Sort(f.decided)
			if diff := cmp.Diff(step.want, f.decided); diff != "" {
				t.Errorf("decided (-want +got):\n%s", diff)
			}
		})
	}
}

// A wake-up decides in the order of priority, then of waiting time, over all lines. It wakes as
// many workloads of a line as find room, and one more.
func TestWakeUpDecidesInOrder(t *testing.T) {
	f := newFixture(10)
	for i := range 20 {
		f.add("small", fmt.Sprintf("old-%02d", i), 1, time.Hour-time.Duration(i)*time.Second)
	}
	f.add("big", "urgent", 1000, time.Second)
	f.add("small", "later", 2, time.Second)
	f.add("other queue", "oldest", 1, 2*time.Hour)
	f.room = map[string]int{"small": 3}
	f.now = f.now.Add(time.Second)
	f.StartWakeUps()
	f.run()
	if diff := cmp.Diff([]string{"urgent", "later", "oldest", "old-00", "old-01", "old-02"}, f.decided); diff != "" {
		t.Errorf("decided (-want +got):\n%s", diff)
	}
}

func TestAgedWorkloadComesFirst(t *testing.T) {
	f := newFixture(10)
	f.add("small", "urgent", 1000, time.Minute)
	f.add("small", "aged", 1, 5*time.Hour)
	f.now = f.now.Add(time.Second)
	f.StartWakeUps()
	f.run()
	if len(f.decided) != 1 || f.decided[0] != "aged" {
		t.Errorf("decided %v, want the aged workload", f.decided)
	}
}

// The results of the line that ranks first take longer. Lines that compete with it wait, and
// lines for other devices do not.
func TestLineWaitsForResultsOfTheLineBefore(t *testing.T) {
	f := newFixture(10)
	f.add("big", "urgent", 1000, time.Second)
	f.add("small", "later", 1, time.Second)
	f.addFor("NVIDIA-L4", "l4", "elsewhere", 1, time.Second)
	f.now = f.now.Add(time.Second)
	f.MarkDirty("gpu")
	f.StartWakeUps()
	f.Refreshed(key("small"), f.now)
	f.Refreshed(key("l4"), f.now)
	f.decideWoken()
	if diff := cmp.Diff([]string{"elsewhere"}, f.decided); diff != "" {
		t.Errorf("decided before the results of the first line (-want +got):\n%s", diff)
	}
	f.Refreshed(key("big"), f.now)
	f.decideWoken()
	if diff := cmp.Diff([]string{"elsewhere", "urgent", "later"}, f.decided); diff != "" {
		t.Errorf("decided (-want +got):\n%s", diff)
	}
}

// The source takes longer than the period, so that the first workload, which fits nowhere, is always due for a later
// wake-up. Each wake-up decides both.
func TestSlowSourceDecidesAllLines(t *testing.T) {
	f := newFixture(10)
	f.add("big", "first", 1, time.Hour)
	f.add("small", "second", 1, time.Minute)
	f.run()
	f.decided = nil
	f.now = f.now.Add(10 * time.Second)
	f.StartWakeUps()
	for range 5 {
		before := f.now
		f.now = f.now.Add(10 * time.Second)
		f.StartWakeUps()
		f.Refreshed(key("big"), before)
		f.decideWoken()
		f.Refreshed(key("small"), before)
		f.decideWoken()
	}
	want := []string{"first", "second", "first", "second", "first", "second", "first", "second", "first", "second"}
	if diff := cmp.Diff(want, f.decided); diff != "" {
		t.Errorf("decided (-want +got):\n%s", diff)
	}
}

func TestPreceding(t *testing.T) {
	f := newFixture(10)
	f.add("big", "waiting", 10, time.Minute)
	f.addFor("NVIDIA-A100", "old", "head", 10, time.Minute)
	f.addFor("NVIDIA-A100", "old", "next", 5, time.Hour)
	for _, tc := range []struct {
		name        string
		e           Entry
		want        string
		wantFollows bool
	}{
		{"the first of a line, whose priority was lowered", f.entry("NVIDIA-A100", "old", "head", 4, time.Minute), "next", true},
		{"the first of a line, whose priority was raised", f.entry("NVIDIA-A100", "old", "head", 11, time.Minute), "", false},
		{"later arrival of the same priority", f.entry(h100, "small", "new", 10, 0), "waiting", false},
		{"later arrival in the same line", f.entry(h100, "big", "new", 10, 0), "waiting", true},
		{"higher priority", f.entry(h100, "small", "new", 11, 0), "", false},
		{"other devices", f.entry("NVIDIA-L4", "small", "new", 1, 0), "", false},
		{"the workload itself", f.entry(h100, "big", "waiting", 10, time.Minute), "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, follows := f.Preceding(tc.e)
			if got.Name != tc.want || follows != tc.wantFollows {
				t.Errorf("got %q, follows %t, want %q, %t", got.Name, follows, tc.want, tc.wantFollows)
			}
		})
	}
}

// A workload with the turn that is deleted, cannot be decided, or moves to another gate does
// not stop the wake-up.
func TestTurnEnds(t *testing.T) {
	for name, end := range map[string]func(f *fixture){
		"removed":           func(f *fixture) { f.Remove(workload("first")) },
		"could not decide":  func(f *fixture) { f.EndTurn(workload("first")) },
		"moves to new gate": func(f *fixture) { e := f.entry(h100, "a", "first", 2, time.Second); e.Key.Gate = "other"; f.Add(e) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(10)
			f.add("a", "first", 2, time.Second)
			f.add("b", "second", 1, time.Second)
			f.now = f.now.Add(time.Second)
			f.MarkDirty("gpu")
			f.StartWakeUps()
			f.Refreshed(key("a"), f.now)
			f.Refreshed(key("b"), f.now)
			if len(f.woken) != 1 || f.HasTurn(workload("second")) {
				t.Fatalf("woken %v, want the first alone", f.woken)
			}
			end(f)
			if !f.HasTurn(workload("second")) {
				t.Error("the second workload does not get its turn")
			}
		})
	}
}

// A change that concerns the whole line, such as stale metrics, is reported by all of it.
func TestChangedOutcomeWakesTheLine(t *testing.T) {
	f := newFixture(10)
	for i := range 3 {
		f.add("small", fmt.Sprint("job-", i), 1, time.Minute-time.Duration(i)*time.Second)
	}
	for _, tc := range []struct {
		outcome string
		want    int
	}{{"NoRoom", 0}, {"NoRoom", 0}, {"StaleSamples", 2}, {"StaleSamples", 0}} {
		f.now, f.outcome, f.decided, f.reported = f.now.Add(10*time.Second), tc.outcome, nil, nil
		f.StartWakeUps()
		f.run()
		if len(f.decided) != 1 || len(f.reported) != tc.want {
			t.Errorf("%s: decided %v, reported %v, want one and %d", tc.outcome, f.decided, f.reported, tc.want)
		}
	}
}

// A workload that another one of its line now precedes reports so: what it said before would become old.
func TestFormerHeadOfALineReports(t *testing.T) {
	f := newFixture(10)
	f.add("small", "first", 1, time.Minute)
	f.add("small", "later", 1, 0)
	f.run()
	f.add("small", "urgent", 2, 0)
	f.decideWoken()
	if !slices.Equal(f.reported, []string{"first"}) {
		t.Errorf("reported %v after a workload of a higher priority came, want the first", f.reported)
	}
	f.now, f.reported = f.now.Add(4*time.Hour), nil // the first one is older, and ages first
	f.StartWakeUps()
	f.decideWoken()
	if !slices.Equal(f.reported, []string{"urgent"}) {
		t.Errorf("reported %v after another one has aged, want the urgent one", f.reported)
	}
}

// Wake-ups may start faster than a source responds. The results of the first wake-up wake the
// line, and those of the last wake-up wake it again.
func TestRefreshedWakesDuringFastWakeUps(t *testing.T) {
	f := newFixture(0)
	f.add("", "a", 0, 0)
	f.run()
	f.decided = nil
	for range 3 {
		f.now = f.now.Add(time.Second)
		f.MarkDirty("gpu")
		f.StartWakeUps()
	}
	if len(f.refreshes) != 3 {
		t.Fatalf("%d wake-ups, want 3", len(f.refreshes))
	}
	first, last := f.refreshes[0].newerThan, f.refreshes[2].newerThan
	for _, tc := range []struct {
		newerThan time.Time
		want      int
	}{{first.Add(-time.Millisecond), 0}, {first, 1}, {first, 1}, {last, 2}, {last, 2}} {
		f.Refreshed(key(""), tc.newerThan)
		if f.decideWoken(); len(f.decided) != tc.want {
			t.Errorf("decided %d times, want %d", len(f.decided), tc.want)
		}
	}
}

// Workloads with other limits wait in a line of their own. Lines with one key share its results.
func TestLimitsSeparateLines(t *testing.T) {
	f := newFixture(10)
	restricted := f.entry(h100, "a", "restricted", 0, time.Hour)
	restricted.Limits = `["cluster1"]`
	f.Add(restricted)
	f.add("a", "second", 0, time.Minute)
	f.add("a", "third", 0, time.Second)
	f.now = f.now.Add(10 * time.Second)
	f.StartWakeUps()
	f.run()
	if want := []string{"restricted", "second"}; !slices.Equal(f.decided, want) {
		t.Errorf("decided %q, want the first of each line: %q", f.decided, want)
	}
}

// A workload whose key changes, for example with a new generation of its gate, needs fresh
// results of the new key.
func TestAddRefreshesANewKey(t *testing.T) {
	f := newFixture(0)
	before, after := gatestate.QueryKey{Gate: "gpu", Version: gatestate.Version{Generation: 1}}, gatestate.QueryKey{Gate: "gpu", Version: gatestate.Version{Generation: 2}}
	for _, key := range []gatestate.QueryKey{before, before, after} {
		e := f.entry(h100, "", "a", 0, 0)
		e.Key = key
		f.Add(e)
	}
	var keys []gatestate.QueryKey
	for _, r := range f.refreshes {
		keys = append(keys, r.key)
	}
	if diff := cmp.Diff([]gatestate.QueryKey{before, after}, keys); diff != "" {
		t.Errorf("refreshed keys (-want +got):\n%s", diff)
	}
}

// Expected changes make wake-ups more frequent, never less frequent.
func TestExpectChangesKeepsAShorterPeriod(t *testing.T) {
	f := newFixture(1)
	f.add("", "a", 0, 0)
	f.refreshes = nil
	f.ExpectChanges(time.Minute, nil, "gpu")
	for range 4 {
		f.now = f.now.Add(time.Second)
		f.StartWakeUps()
	}
	if got := len(f.refreshes); got != 4 {
		t.Errorf("%d wake-ups in 4 s with a period of 1 s, want 4", got)
	}
}

// BenchmarkWakeUp measures a wake-up over 10,000 waiting workloads in 100 lines.
func BenchmarkWakeUp(b *testing.B) {
	f := newFixture(1)
	for i := range 10000 {
		f.add(strconv.Itoa(i%100), strconv.Itoa(i), int32(i%7), time.Duration(i)*time.Second)
	}
	b.ReportAllocs()
	for b.Loop() {
		f.now, f.decided = f.now.Add(time.Second), nil
		f.StartWakeUps()
		f.run()
	}
	b.ReportMetric(float64(len(f.decided)), "decisions/wake-up")
}

// BenchmarkAdd measures the update of one of many waiting workloads.
func BenchmarkAdd(b *testing.B) {
	q := New(gatestate.New(), time.Now, func(gatestate.QueryKey, time.Time) {})
	const n = 8000
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = Entry{Workload: types.NamespacedName{Namespace: "team-a", Name: strconv.Itoa(i)}, Key: gatestate.QueryKey{Gate: "gpu"}}
		entries[i].Rank.Name = entries[i].Workload.String()
		q.Add(entries[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Add(entries[i%n])
	}
}

// A workload that leaves before its results arrive does not keep the workloads behind it waiting for
// them.
func TestWorkloadThatLeavesDelaysNoOther(t *testing.T) {
	f := newFixture(10)
	f.add("slow", "first", 2, time.Second)
	f.add("fast", "second", 1, time.Second)
	f.now = f.now.Add(time.Second)
	f.MarkDirty("gpu")
	f.StartWakeUps()
	f.Refreshed(key("fast"), f.now)
	if len(f.woken) > 0 {
		t.Fatalf("woken %v before the results of the first", f.woken)
	}
	f.Remove(workload("first"))
	if !f.HasTurn(workload("second")) {
		t.Error("the second workload waits for results that nothing needs")
	}
}
