package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A burst of decisions on one sample must not send every workload to one cluster.
func TestReserveDecidesAgainAfterAnotherDebit(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 1})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	s := b.look()
	other := s.Entry("cluster1", fixture.Noon)
	other.UID = "other"
	b.engine.Ledger.Debit(other)
	next := b.engine.Reserve(s)
	if next.Decision.State != gate.Pending || len(next.Reservation.Entries) > 0 {
		t.Errorf("another workload took the room between observation and reservation, got %s with %v", next.Decision.State, next.Reservation.Entries)
	}
	if diff := cmp.Diff(map[string]int64{"cluster1": 2}, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s", diff)
	}
}

func TestReservationOfNominations(t *testing.T) {
	for _, tc := range []struct {
		name                string
		nominated, reserved time.Duration // ago
		want                map[string]int64
	}{
		{"nominated a minute ago", time.Minute, time.Minute, map[string]int64{"cluster1": 2, "cluster2": 2}},
		{"nominated longer ago than the ledger's TTL", 61 * time.Minute, 61 * time.Minute, map[string]int64{"cluster2": 2}},
		{"nominated by an older attempt", 61 * time.Minute, 60 * time.Minute, map[string]int64{"cluster1": 2, "cluster2": 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			record := fixture.RecordOf(fixture.Noon.Add(-tc.nominated), "cluster1")
			record.QuotaReservedAt = fixture.Noon.Add(-tc.nominated)
			b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-tc.reserved)), "cluster1"), record))
			s := b.look()
			res := lifecycle.Reserve(s, []string{"cluster1", "cluster2", "full"}, gate.Decision{Order: []string{"cluster1", "cluster2"}})
			if !b.engine.Ledger.Commit(s.Room.View, "uid", res.Kept, res.Entries, nil) {
				t.Fatal("the ledger did not change")
			}
			if diff := cmp.Diff(tc.want, b.engine.Ledger.DevicesByCluster()); diff != "" {
				t.Errorf("reserved devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSentTo(t *testing.T) {
	multiKueue := func(change func(*kueue.Workload)) *kueue.Workload {
		wl := fixture.WithRecord(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), fixture.RecordOf(fixture.Noon, "cluster1"))
		change(wl)
		return wl
	}
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		want []string
	}{
		{"nominated to another cluster than the annotation has",
			multiKueue(func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster2"} }), []string{"cluster2"}},
		{"operator stopped after the annotation", multiKueue(func(*kueue.Workload) {}), []string{"cluster1"}},
		{"quota reserved after the annotation", multiKueue(func(wl *kueue.Workload) {
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Second))
		}), nil},
		{"evicted", multiKueue(func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon) }), nil},
		{"chosen by a Ready check without MultiKueue", fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon), []string{"cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(tc.wl)
			if diff := cmp.Diff(tc.want, lifecycle.SentTo(b.look())); diff != "" {
				t.Errorf("sent to (-want +got):\n%s", diff)
			}
		})
	}
}

// Each eviction changes the random choice, and Explain shows the decision that follows.
func TestExplainShowsTheNextDecision(t *testing.T) {
	for _, tc := range []struct {
		name      string
		nominated []string
		want      map[string]bool
	}{
		{"without nominations every cluster is drawn at some time", nil, map[string]bool{"cluster1": true, "cluster2": true}},
		{"the nominated cluster stays first", []string{"cluster2"}, map[string]bool{"cluster2": true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := map[string]bool{}
			for evictions := range int32(20) {
				b := newBench(t, v1alpha1.PlacementGateSpec{})
				wl := fixture.Nominated(fixture.PendingWorkload(fixture.Noon), tc.nominated...)
				wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: evictions}}}
				b.create(wl)
				s, e := b.look(), &gate.Explanation{}
				if err := b.explainDecision(t.Context(), s, e); err != nil {
					t.Fatal(err)
				}
				d := s.Decision(s.Record.Attempt + 1)
				if diff := cmp.Diff(d.Order, e.Decision.Order); diff != "" {
					t.Errorf("after %d evictions (-decided +explained):\n%s", evictions, diff)
				}
				first[d.Order[0]] = true
			}
			if diff := cmp.Diff(tc.want, first); diff != "" {
				t.Errorf("first clusters (-want +got):\n%s", diff)
			}
		})
	}
}

// Nominations of another dispatcher stay nominated, and are no orphaned copies.
func TestForeignNominationsAreNoOrphanedCopies(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 9})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
	b.create(wl)
	b.reconcile()
	record := b.dispatchRecord()
	if diff := cmp.Diff([]string{"cluster1", "cluster2"}, record.Nominated); diff != "" || strings.Contains(record.Reason, "copy") {
		t.Errorf("nominated because %q (-want +got):\n%s", record.Reason, diff)
	}
}

// With Kueue's built-in dispatcher the gate's Ready check is the reservation.
func TestBuiltinDispatchReservesDevicesOfReadyWorkloads(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.Nominates = false
	b.room(map[string]float64{"cluster1": 2, "cluster2": 1})
	states := map[kueue.CheckState]int{}
	for i := range 5 {
		wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
		wl.Name, wl.UID = fmt.Sprint("job-", i), types.UID(fmt.Sprint(i))
		b.create(wl)
		b.reconcile()
		states[b.check().State]++
	}
	if diff := cmp.Diff(map[kueue.CheckState]int{kueue.CheckStateReady: 3, kueue.CheckStatePending: 2}, states); diff != "" {
		t.Errorf("five jobs, room for three (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"cluster1": 4, "cluster2": 2}, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s", diff)
	}
}

// Whatever Kueue nominates, a workload reserves devices once, and in the end on the
// cluster that admits it.
func TestBuiltinDispatchReservesOneCluster(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.Nominates = false
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
	b.create(wl)
	b.reconcile()
	reserved := b.engine.Ledger.DevicesByCluster()
	if reserved["cluster1"]+reserved["cluster2"] != 2 {
		t.Fatalf("want two devices, reserved: %v", reserved)
	}
	admits := "cluster1"
	if reserved[admits] > 0 {
		admits = "cluster2"
	}
	b.update(func(wl *kueue.Workload) { fixture.AdmitBy(wl, admits) })
	b.reconcile()
	if diff := cmp.Diff(map[string]int64{admits: 2}, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("admitted by the other cluster, reserved devices (-want +got):\n%s", diff)
	}
}

// A component goes where the rest of its job is, whichever dispatcher nominates.
func TestComponentsReserveOnTheClusterOfTheirJob(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.Nominates = false
	b.createReplicas(2)
	b.update(func(wl *kueue.Workload) { cluster := "cluster2"; wl.Status.ClusterName = &cluster })
	b.selectReplica(1)
	b.reconcile()
	if diff := cmp.Diff(map[string]int64{"cluster2": 2}, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s", diff)
	}
	if state := b.check().State; state != kueue.CheckStateReady {
		t.Errorf("the check is %s", state)
	}
}

// The chosen cluster of a Ready check that no nomination follows is an annotation of the
// pods, with the gate's own node selector and tolerations if it has podSetUpdates.
func TestReadyCheckRecordsTheChosenCluster(t *testing.T) {
	annotations := map[string]string{v1alpha1.ClusterAnnotation: "cluster1"}
	for _, tc := range []struct {
		name      string
		wl        *kueue.Workload
		nominates bool
		updates   *v1alpha1.GatePodSetUpdates
		want      []kueue.PodSetUpdate
	}{
		{"without MultiKueue", fixture.PendingWorkload(fixture.Noon), true, nil, []kueue.PodSetUpdate{{Name: "main", Annotations: annotations}}},
		{"without MultiKueue, pinned", fixture.PendingWorkload(fixture.Noon), true, &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{"site": "{cluster}.example.com"}},
			[]kueue.PodSetUpdate{{Name: "main", Annotations: annotations, NodeSelector: map[string]string{"site": "cluster1.example.com"}}}},
		{"with Kueue's dispatcher", fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), false, nil, []kueue.PodSetUpdate{{Name: "main", Annotations: annotations}}},
		{"with the operator as dispatcher", fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), true, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{PodSetUpdates: tc.updates})
			b.engine.Nominates = tc.nominates
			b.room(map[string]float64{"cluster1": 9})
			b.create(tc.wl)
			b.reconcile()
			check := b.check()
			if check.State != kueue.CheckStateReady {
				t.Fatalf("the check is %s: %s", check.State, check.Message)
			}
			if diff := cmp.Diff(tc.want, check.PodSetUpdates); diff != "" {
				t.Errorf("podSetUpdates (-want +got):\n%s", diff)
			}
		})
	}
}

// decideAs writes a decision as if the gate had made it now.
func (b *bench) decideAs(d gate.Decision) {
	b.t.Helper()
	s := b.look()
	if err := b.apply(s, lifecycle.Step{Writes: lifecycle.WriteDecision(s, d, s.Record.Record)}); err != nil {
		b.t.Fatal(err)
	}
}

// Numbers in messages change with nearly every job. The waiting workloads of all gates
// share one write per MessageInterval.
func TestMessagesWithNewNumbersAreRateLimited(t *testing.T) {
	for _, tc := range []struct {
		name    string
		waiting int32
		after   time.Duration
		want    string
	}{
		{"two waiting workloads before the interval", 1, 9 * time.Second, "1 free"},
		{"two waiting workloads after the interval", 1, 10 * time.Second, "2 free"},
		{"twelve waiting workloads before the interval", 11, 59 * time.Second, "1 free"},
		{"twelve waiting workloads after the interval", 11, time.Minute, "2 free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(fixture.PendingWorkload(fixture.Noon))
			b.engine.Registry.SetWaiting("gpu", gatestate.WaitSummary{Workloads: tc.waiting, Since: fixture.Noon})
			b.engine.Registry.SetWaiting("tpu", gatestate.WaitSummary{Workloads: 1, Since: fixture.Noon})
			for _, message := range []string{"1 free", "2 free"} {
				b.decideAs(gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: message})
				b.clock.add(tc.after)
			}
			if got := b.check().Message; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A message that differs in more than its numbers is written at once.
func TestMessagesOfAnotherKindAreWrittenAtOnce(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.PendingWorkload(fixture.Noon))
	b.engine.Registry.SetWaiting("gpu", gatestate.WaitSummary{Workloads: 100, Since: fixture.Noon})
	noRoom := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "1 free"}
	for _, d := range []gate.Decision{noRoom,
		{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "1 free; connection refused", Incomplete: true},
		{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "Placement a does not exist"},
		{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "Placement b does not exist"}, noRoom} {
		b.decideAs(d)
		if got := b.check().Message; got != d.Message {
			t.Errorf("got %q, want %q", got, d.Message)
		}
	}
	s := b.look()
	if err := b.apply(s, lifecycle.Step{Writes: lifecycle.Block(s, s.Checks.Own, "two checks")}); err != nil {
		t.Fatal(err)
	}
	b.decideAs(noRoom)
	if got := b.check().Message; got != "1 free" {
		t.Errorf("decided again after a block, got %q", got)
	}
	b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].Message = "" })
	b.decideAs(noRoom)
	if got := b.check().Message; got != "1 free" {
		t.Errorf("after Kueue cleared the message, got %q", got)
	}
}

func TestMessageKind(t *testing.T) {
	for _, tc := range []struct {
		name     string
		decision gate.Decision
		want     string
	}{
		{"reason", gate.Decision{Reason: gate.ReasonNoRoom, Message: "1 free"}, gate.ReasonNoRoom},
		{"incomplete metrics", gate.Decision{Reason: gate.ReasonNoRoom, Incomplete: true}, gate.ReasonNoRoom + ", incomplete"},
		{"problem of the gate", gate.Decision{Reason: gate.ReasonGateNotReady, Message: "no Placement"}, "no Placement"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := lifecycle.MessageKind(tc.decision); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A Ready check ends the time without room where no nomination of ours follows.
func TestReadyCheckResetsTheRecord(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.Nominates = false
	b.create(fixture.WithRecord(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), dispatch.Record{UnplacedSeconds: 100, Yields: 2}))
	b.reconcile()
	if diff := cmp.Diff(dispatch.Record{}, b.dispatchRecord()); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// The decision after a yield is news, even if its reason is that of the decision before.
func TestDecisionAfterAYieldIsAnEvent(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}})
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	s := b.look()
	if err := b.apply(s, lifecycle.Step{Writes: []lifecycle.Write{lifecycle.WriteYield(s, gate.Decision{State: gate.Retry, Reason: gate.ReasonYield}, s.Record.Record)}}); err != nil {
		t.Fatal(err)
	}
	b.update(loseQuota("Pending"))
	b.clock.add(time.Minute)
	b.reconcile() // activates it
	b.update(reserveQuota(b.now()))
	b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].Message = "reset by Kueue" })
	b.events()
	b.reconcile()
	if events := b.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Normal NoRoom ") {
		t.Errorf("events: %q", events)
	}
}

// A decision counts the devices of the flavor, for the gate's condition PreemptionGated.
func TestDecisionCountsDevicesOfFlavor(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Capacity: "floor(devices)"}})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"}}}
	b.create(wl)
	b.look()
	got, measured := b.engine.Registry.DevicesOf("gpu", gatestate.FlavorDevices{ClusterQueue: "gpu", Flavor: "h100", Resource: "nvidia.com/gpu"})
	if want := (gatestate.Devices{Count: 18, Complete: true}); got != want || !measured {
		t.Errorf("got %+v, %t, want %+v", got, measured, want)
	}
}
