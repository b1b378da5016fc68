package waitqueue

import (
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
)

// Parked workloads have no quota. They keep no other workload waiting, look once in each period, and return one after
// the other once the first one may.
func TestParkedWorkloads(t *testing.T) {
	f := newFixture(30)
	for _, name := range []string{"parked1", "parked2", "parked3"} {
		e := f.entry(h100, "large", name, 10, time.Hour)
		e.Parked = true
		f.Add(e)
	}
	f.add("small", "waits", 0, time.Minute)
	f.run()
	if got, _ := f.Preceding(f.entry(h100, "small", "waits", 0, time.Minute)); got != noTurn {
		t.Errorf("%s is decided before", got)
	}
	want := gatestate.WaitSummary{Workloads: 1, Parked: 3, Since: f.now.Add(-time.Minute)}
	if got := f.gates.WaitSummaries()["gpu"]; got != want {
		t.Errorf("summary %+v, want %+v", got, want)
	}
	if got := f.Devices()["gpu"][gatestate.DeviceKind{Resource: "nvidia.com/gpu", Model: h100}]; got != 1 {
		t.Errorf("%d devices are waited for, want 1", got)
	}
	f.decided = nil
	f.MarkFreed(f.entry(h100, "small", "waits", 0, 0).PodSets, "gpu")
	f.now = f.now.Add(10 * time.Second)
	f.StartWakeUps()
	f.run()
	if !slices.Equal(f.decided, []string{"waits"}) {
		t.Errorf("freed devices woke %v, want waits only", f.decided)
	}
	f.decided = nil
	f.now = f.now.Add(30 * time.Second)
	f.StartWakeUps()
	f.run()
	if !slices.Equal(slices.Sorted(slices.Values(f.decided)), []string{"parked1", "waits"}) {
		t.Errorf("after a period, %v are decided, want waits and the first parked one", f.decided)
	}
	f.decided, f.room = nil, map[string]int{"large": 3}
	f.now = f.now.Add(30 * time.Second)
	f.StartWakeUps()
	f.run()
	if got := f.gates.WaitSummaries()["gpu"]; len(f.decided) != 4 || got.Parked != 0 || got.Workloads != 1 {
		t.Errorf("%v are decided, and %+v wait; want all parked ones to return", f.decided, got)
	}
	f.Remove(workload("waits"))
	if got := f.gates.WaitSummaries()["gpu"]; got != (gatestate.WaitSummary{}) {
		t.Errorf("in the end %+v wait", got)
	}
}
