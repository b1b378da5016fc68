package workload

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// newHoldBench is a bench with no room on cluster1, which has four slots, and on cluster2,
// which has eight.
func newHoldBench(t *testing.T, mode v1alpha1.HoldMode) *bench {
	b := newBench(t, v1alpha1.PlacementGateSpec{Hold: v1alpha1.GateHold{Mode: mode}})
	b.source.empty = map[string]float64{"cluster1": 4, "cluster2": 8}
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	return b
}

// submit stores a workload of the MultiKueue queue and runs a wake-up.
func (b *bench) submit(name string, pods, priority int32, waited time.Duration) {
	b.t.Helper()
	b.submitChanged(name, pods, priority, waited, func(*kueue.Workload) {})
}

// submitChanged is submit with a change of the workload.
func (b *bench) submitChanged(name string, pods, priority int32, waited time.Duration, change func(*kueue.Workload)) {
	b.t.Helper()
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(b.now().Add(-waited)))
	wl.Name, wl.UID = name, types.UID(name)
	wl.Spec.PodSets[0].Count, wl.Spec.Priority = pods, ptr.To(priority)
	change(wl)
	b.create(wl)
	b.reconcile()
	b.wakeUp()
	b.key.Name = name
}

// wakeUp lets a period pass and decides the waiting workloads in the order of the wait queue.
func (b *bench) wakeUp() {
	b.t.Helper()
	b.clock.add(timing.DefaultPeriod)
	b.cache = b.newCache() // the queue's refresh would replace every result
	b.woken, b.refreshes = nil, 0
	b.engine.Waiting.StartWakeUps()
	for _, key := range b.refreshed[len(b.refreshed)-b.refreshes:] {
		b.engine.Waiting.Refreshed(key, b.now())
	}
	for len(b.woken) > 0 {
		b.key, b.woken = b.woken[0], b.woken[1:]
		b.reconcile()
	}
}

// holds are the holds as "cluster workload".
func (b *bench) holds() []string {
	var list []string
	for _, h := range b.engine.Ledger.View().HoldsOf("gpu") {
		list = append(list, h.Cluster+" "+h.Workload)
	}
	return list
}

func (b *bench) expectHolds(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.holds(), cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("holds (-want +got):\n%s", diff)
	}
}

// A hold is reported in an event, a metric and the explanation of the workload that it is for,
// and in the message of a workload that it keeps waiting. It ends with a place.
func TestHoldIsReportedUntilTheWorkloadHasAPlace(t *testing.T) {
	b := newHoldBench(t, v1alpha1.HoldEnforce)
	b.submit("big", 3, 0, 10*time.Minute)
	b.expectHolds("cluster1 team-a/big")
	want := "Normal ClusterHeld the gate holds cluster1 for this workload, which fits nowhere, until it has room"
	if events := b.events(); !slices.Contains(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	b.lead()
	if e, err := b.Explain(t.Context(), b.key); err != nil || e.Decision.Hold == nil || e.Decision.Hold.Cluster != "cluster1" {
		t.Errorf("explained %+v, %v, want a hold on cluster1", e, err)
	}
	b.wakeUp()
	if events := b.events(); len(events) > 0 {
		t.Errorf("the hold goes on, but there are new events: %q", events)
	}
	metric := `
# HELP plimsoll_gate_hold_seconds Time since the gate began to hold the cluster for a waiting workload, in seconds. With mode="shadow", the cluster is not kept free.
# TYPE plimsoll_gate_hold_seconds gauge
plimsoll_gate_hold_seconds{cluster="cluster1",gate="gpu",mode="enforce"} 30
`
	if err := testutil.CollectAndCompare(b.metrics.ledgerDevices, strings.NewReader(metric), "plimsoll_gate_hold_seconds"); err != nil {
		t.Error(err)
	}

	b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
	b.submit("small", 1, 0, 0)
	if c := b.check(); c.State != kueue.CheckStatePending || !strings.Contains(c.Message, "cluster1 is held for team-a/big") {
		t.Errorf("small: %s %q, want Pending because of the hold", c.State, c.Message)
	}

	b.room(map[string]float64{"cluster1": 3, "cluster2": 0})
	b.wakeUp()
	b.key.Name = "big"
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster1"}) {
		t.Errorf("big is nominated to %v, want the held cluster1", got)
	}
	b.expectHolds()
	if n := testutil.CollectAndCount(b.metrics.ledgerDevices, "plimsoll_gate_hold_seconds"); n > 0 {
		t.Error("the metric outlives the hold")
	}
	b.room(map[string]float64{"cluster1": 4, "cluster2": 0})
	b.wakeUp()
	b.key.Name = "small"
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster1"}) {
		t.Errorf("small is nominated to %v after the hold, want cluster1", got)
	}
}

// A hold that ends makes room. The workloads that it kept waiting are decided within a second.
func TestHoldEndsWithTheWait(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*bench)
	}{
		{"deleted", func(b *bench) { b.delete() }},
		{"evicted", func(b *bench) { b.update(func(wl *kueue.Workload) { wl.Status.Admission = nil }) }},
		{"finished", func(b *bench) {
			b.update(func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadFinished, b.now()) })
		}},
		{"check removed from the queue", func(b *bench) { b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil }) }},
		{"gate deleted", func(b *bench) { b.engine.Registry.Delete("gpu") }},
		{"holds switched off", func(b *bench) {
			b.putGate(func(g *gatestate.Gate) { g.Spec.Hold.Mode, g.Generation = v1alpha1.HoldOff, 2 })
		}},
		{"gate broken", func(b *bench) {
			b.putGate(func(g *gatestate.Gate) { g.Problem = "MetricsSource thanos does not exist" })
		}},
		{"samples too old", func(b *bench) { b.source.age = 3 * time.Minute }},
		{"cluster disconnected", func(b *bench) { b.disconnect("cluster1"); b.disconnect("cluster2") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newHoldBench(t, v1alpha1.HoldEnforce)
			b.submit("big", 3, 0, 10*time.Minute)
			b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
			b.submit("small", 1, 0, 0)
			b.expectHolds("cluster1 team-a/big")
			b.clock.add(timing.MinWakeUpGap)
			b.engine.Waiting.StartWakeUps()
			b.key.Name = "big"
			tc.end(b)
			b.clock.add(timing.MinWakeUpGap)
			b.cache = b.newCache() // forgets the results
			b.reconcile()
			b.expectHolds()
			b.refreshes = 0
			b.clock.add(timing.MinWakeUpGap)
			if b.engine.Waiting.StartWakeUps(); b.refreshes == 0 {
				t.Error("no wake-up for the workloads that the hold kept waiting")
			}
		})
	}
}

// A gate holds one cluster per kind of device: the one for the workload that ranks first.
func TestOneHoldPerGateAndDevices(t *testing.T) {
	b := newHoldBench(t, v1alpha1.HoldEnforce)
	b.submit("first", 3, 0, 20*time.Minute)
	b.submit("second", 2, 0, 10*time.Minute)
	b.expectHolds("cluster1 team-a/first")
	if events := b.events(); slices.ContainsFunc(events[1:], func(e string) bool { return strings.Contains(e, "ClusterHeld") }) {
		t.Errorf("events %q, want one hold", events)
	}
	b.submit("urgent", 6, 100, 6*time.Minute)
	b.expectHolds("cluster2 team-a/urgent")
	b.wakeUp()
	b.expectHolds("cluster2 team-a/urgent")
}

// A workload that waits for another check, such as that of its trial, can't use the room of a cluster. A
// hold would keep out its own copies, which the check waits for.
func TestNoHoldWhileAnotherCheckIsAwaited(t *testing.T) {
	awaitTrial := func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "trial", State: kueue.CheckStatePending})
	}
	b := newHoldBench(t, v1alpha1.HoldEnforce)
	b.submitChanged("big", 3, 0, 10*time.Minute, awaitTrial)
	b.expectHolds()
	if events := b.events(); slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "ClusterHeld") }) {
		t.Errorf("events %q, want no hold", events)
	}
	b.lead()
	if e, err := b.Explain(t.Context(), b.key); err != nil || e.Decision.Hold != nil {
		t.Errorf("explained %+v, %v, want no hold", e, err)
	}
	b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
	b.submit("small", 1, 0, 0)
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster1"}) {
		t.Errorf("small is nominated to %v, want cluster1; check %q", got, b.check().Message)
	}

	b.key.Name = "big"
	b.update(func(wl *kueue.Workload) { kueuestate.FindCheck(wl, "trial").State = kueue.CheckStateReady })
	b.reconcile()
	b.wakeUp()
	b.expectHolds("cluster1 team-a/big")
}

// A workload behind one that waits for another check is held for.
func TestWorkloadThatAwaitsACheckDoesNotStopHolds(t *testing.T) {
	b := newHoldBench(t, v1alpha1.HoldEnforce)
	b.submitChanged("tried", 3, 0, 10*time.Minute, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "trial", State: kueue.CheckStatePending})
	})
	b.submit("next", 3, 0, 4*time.Minute)
	for range 3 {
		b.wakeUp()
	}
	b.expectHolds("cluster1 team-a/next")
}

// Nothing is held on a guess.
func TestNoHoldWithoutFreshAndCompleteMetrics(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*bench)
	}{
		{"samples too old", func(b *bench) { b.source.age = 3 * time.Minute }},
		{"size of the nodes unknown", func(b *bench) { b.source.empty = map[string]float64{} }},
		{"too small when empty", func(b *bench) { b.source.empty = map[string]float64{"cluster1": 2, "cluster2": 1} }},
		{"not connected", func(b *bench) { b.disconnect("cluster1"); b.disconnect("cluster2") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newHoldBench(t, v1alpha1.HoldEnforce)
			tc.change(b)
			b.submit("big", 3, 0, time.Hour)
			b.expectHolds()
			if events := b.events(); slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "ClusterHeld") }) {
				t.Errorf("events %q, want no hold", events)
			}
		})
	}
}

// A shadow hold is reported and keeps nothing free. Without holds there is nothing to report.
func TestShadowAndOff(t *testing.T) {
	for _, tc := range []struct {
		mode  v1alpha1.HoldMode
		holds []string
		event string
	}{
		{v1alpha1.HoldShadow, []string{"cluster1 team-a/big"}, "Normal ClusterHeld the gate would hold cluster1 for this workload, which fits nowhere: spec.hold.mode is Shadow"},
		{v1alpha1.HoldOff, nil, ""},
	} {
		t.Run(string(tc.mode), func(t *testing.T) {
			b := newHoldBench(t, tc.mode)
			b.submit("big", 3, 0, time.Hour)
			b.expectHolds(tc.holds...)
			if events := b.events(); tc.event != "" && !slices.Contains(events, tc.event) || tc.event == "" && slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "ClusterHeld") }) {
				t.Errorf("events %q, want %q", events, tc.event)
			}
			if n := testutil.CollectAndCount(b.metrics.ledgerDevices, "plimsoll_gate_hold_seconds"); n != len(tc.holds) {
				t.Errorf("%d series of holds, want %d", n, len(tc.holds))
			}
			b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
			b.submit("small", 1, 0, 0)
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster1"}) {
				t.Errorf("small is nominated to %v, want cluster1", got)
			}
		})
	}
}
