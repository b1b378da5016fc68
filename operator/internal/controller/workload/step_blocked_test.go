package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A workload that no gate decides waits like any other: it is counted, and its Pending
// checks and one event state the reason.
func TestBlockedWorkloads(t *testing.T) {
	const absent = "PlacementGate gpu does not exist"
	twice := gate.TooManyChecksMessage([]string{"plimsoll", "second"})
	for _, tc := range []struct {
		name      string
		wl        *kueue.Workload
		isDeleted bool // the gate
		want      map[string]string
		event     string
	}{
		{"the gate does not exist", fixture.PendingWorkload(fixture.Noon), true, map[string]string{"plimsoll": "Pending " + absent}, absent},
		{"two Pending checks", fixture.WithSecondCheck(fixture.PendingWorkload(fixture.Noon), kueue.CheckStatePending), false,
			map[string]string{"plimsoll": "Pending " + twice, "second": "Pending " + twice}, twice},
		{"one of two checks is Ready", fixture.WithSecondCheck(fixture.PendingWorkload(fixture.Noon), kueue.CheckStateReady), false,
			map[string]string{"plimsoll": "Pending " + twice, "second": "Ready as it was"}, twice},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			if tc.isDeleted {
				b.engine.Registry.Delete("gpu")
			}
			b.create(tc.wl)
			for range 2 {
				b.reconcile()
			}
			if diff := cmp.Diff(tc.want, checkTexts(b.workload())); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]gatestate.WaitSummary{"gpu": {Workloads: 1, Since: fixture.Noon}}, b.engine.Registry.WaitSummaries()); diff != "" {
				t.Errorf("wait summaries (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"Warning GateNotReady " + tc.event}, b.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A check whose parameters were damaged still belongs to a gate: its workloads wait, and are not sent
// everywhere like those of a queue without a gate.
func TestCheckWithoutAGateBlocks(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	check := &kueue.AdmissionCheck{}
	if err := b.hub.Get(t.Context(), types.NamespacedName{Name: "plimsoll"}, check); err != nil {
		t.Fatal(err)
	}
	check.Spec.Parameters.Kind = "Gate"
	if err := b.hub.Update(t.Context(), check); err != nil {
		t.Fatal(err)
	}
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	if nominated := b.workload().Status.NominatedClusterNames; len(nominated) > 0 {
		t.Errorf("nominated %v, want none", nominated)
	}
	want := "AdmissionCheck plimsoll names no PlacementGate: correct its spec.parameters"
	if c := b.check(); c.State != kueue.CheckStatePending || c.Message != want {
		t.Errorf("check %s %q, want Pending %q", c.State, c.Message, want)
	}
}

// If the gate exists and was merely not read yet, the workload waits without a message.
func TestUnreadGateIsNotReported(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.Registry.Delete("gpu")
	if err := b.hub.Create(t.Context(), &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	b.create(fixture.PendingWorkload(fixture.Noon))
	b.reconcile()
	if events := b.events(); len(events) != 0 || b.check().Message != "" || b.engine.Registry.Waiting("gpu") != 1 {
		t.Errorf("events %q, message %q, %d waiting", events, b.check().Message, b.engine.Registry.Waiting("gpu"))
	}
}

func TestTwoReadyChecksWaitForNothing(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithSecondCheck(fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon), kueue.CheckStateReady))
	before := checkTexts(b.workload())
	b.engine.Waiting.Add(waitqueue.Entry{Workload: b.key, Key: gatestate.QueryKey{Gate: "gpu"}})
	b.reconcile()
	if diff := cmp.Diff(before, checkTexts(b.workload())); diff != "" || b.engine.Registry.Waiting("gpu") != 0 {
		t.Errorf("%d waiting, checks (-before +after):\n%s", b.engine.Registry.Waiting("gpu"), diff)
	}
}

// If Kueue leaves nominations to the operator and the operator leaves them to Kueue, every
// workload stays Ready for ever.
func TestMissingDispatcherIsReported(t *testing.T) {
	const evidence = "team-a/job has had no nominated cluster since 12:00:00 UTC"
	for _, tc := range []struct {
		name      string
		after     time.Duration
		nominates bool
		clusters  []string // connected
		nominated []string
		want      string
		look      time.Duration
	}{
		{name: "within the grace period", after: 10 * time.Second, clusters: []string{"cluster1"}, look: 20 * time.Second},
		{name: "after the grace period", after: time.Minute, clusters: []string{"cluster1"}, want: evidence, look: 30 * time.Second},
		{name: "no cluster connected", after: time.Minute},
		{name: "Kueue nominates", after: time.Minute, clusters: []string{"cluster1"}, nominated: []string{"cluster1"}},
		{name: "the operator nominates", after: time.Minute, clusters: []string{"cluster1"}, nominates: true, look: 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.engine.Nominates = tc.nominates
			b.configure(tc.clusters...)
			b.create(fixture.Nominated(fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon), tc.nominated...))
			b.clock.add(tc.after)
			for range 2 {
				if got := b.reconcile().RequeueAfter; got != tc.look {
					t.Errorf("next look after %s, want %s", got, tc.look)
				}
			}
			events := b.events()
			other := fixture.Nominated(fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon), tc.nominated...)
			other.Name, other.UID = "another", "another" // the evidence of one workload stands for all
			b.create(other)
			b.reconcile()
			if got := b.engine.Registry.Conflict("gpu", b.now()); got != tc.want {
				t.Errorf("conflict %q, want %q", got, tc.want)
			}
			var want []string
			if tc.want != "" {
				want = []string{"Warning NotNominated no dispatcher has nominated a cluster since 12:00:00 UTC; check that multiKueue.dispatcherName in Kueue's configuration names one of Kueue's own dispatchers"}
			}
			if diff := cmp.Diff(want, events); diff != "" && !tc.nominates {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConflictingDispatcherIsReported(t *testing.T) {
	elsewhere := "cluster2"
	const evidence = "team-a/job was nominated to cluster2 by another dispatcher"
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   string
	}{
		{"only the gate nominated", func(*kueue.Workload) {}, ""},
		{"another cluster was added", func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"} }, evidence},
		{"placed where the gate did not send it", func(wl *kueue.Workload) {
			wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, &elsewhere
		}, evidence},
		{"placed long ago by the dispatcher of that time", func(wl *kueue.Workload) {
			wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, &elsewhere
			wl.Status.AdmissionChecks[1] = kueue.AdmissionCheckState{
				Name: "multikueue", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(fixture.Noon.Add(-time.Hour))}
		}, ""},
		{"the gate is new on the queue of a running job", func(wl *kueue.Workload) {
			wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, &elsewhere
			wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
		}, ""},
		{"the gate is new on the queue of a job that another dispatcher placed", func(wl *kueue.Workload) {
			fixture.AdmitBy(wl, elsewhere)
			wl.Annotations = nil
			wl.Status.AdmissionChecks[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Hour))
		}, ""},
		{"the gate nominated for quota that the workload has lost", func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(-time.Hour))
			wl.Status.Conditions = nil
			fixture.SetCondition(wl, kueue.WorkloadQuotaReserved, fixture.Noon.Add(-time.Minute))
		}, ""},
		{"being evicted", func(wl *kueue.Workload) {
			wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
			fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			wl := fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), fixture.RecordOf(fixture.Noon, "cluster1"))
			tc.change(wl)
			b.create(wl)
			b.reconcile()
			if got := b.engine.Registry.Conflict("gpu", fixture.Noon); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The pause of a yielded workload ends once: the next look decides, and does not
// deactivate it again.
func TestYieldedWorkloadReturns(t *testing.T) {
	inactive := false
	for _, tc := range []struct {
		name     string
		active   *bool
		until    time.Duration
		isActive bool
		isAsleep bool
		isTaken  bool // the quota, before the pause began
		look     time.Duration
	}{
		{"during the pause", &inactive, time.Second, false, true, false, time.Second},
		{"after the pause", &inactive, -time.Second, true, false, true, 0},
		{"after the pause, with quota that Kueue has not taken yet", &inactive, -time.Hour, false, true, false, 0},
		{"activated by a user", nil, time.Second, true, false, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			wl := fixture.WithRecord(fixture.PendingWorkload(fixture.Noon), dispatch.Record{Attempt: 1, SleepsUntil: fixture.Noon.Add(tc.until)})
			wl.Spec.Active = tc.active
			if tc.isTaken {
				loseQuota("Pending")(wl)
				wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(tc.until - timing.YieldSleep))
			}
			b.create(wl)
			if got := b.reconcile().RequeueAfter; got != tc.look {
				t.Errorf("next look after %s, want %s", got, tc.look)
			}
			wl = b.workload()
			if isActive := wl.Spec.Active == nil || *wl.Spec.Active; isActive != tc.isActive {
				t.Errorf("active %t, want %t", isActive, tc.isActive)
			}
			if isAsleep := !b.dispatchRecord().SleepsUntil.IsZero(); isAsleep != tc.isAsleep {
				t.Errorf("asleep %t, want %t", isAsleep, tc.isAsleep)
			}
		})
	}
}

// An annotation that does not parse is replaced; what is nominated begins a new attempt.
func TestUnreadableRecordIsReset(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1")
	wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: "{"}
	b.create(wl)
	b.reconcile()
	if record := b.dispatchRecord(); record.Attempt != 1 || !cmp.Equal(record.Nominated, []string{"cluster1"}) {
		t.Errorf("record: %+v", record)
	}
	if events := b.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning BadAnnotation ") || !strings.HasSuffix(events[0], "; the annotation was reset") {
		t.Errorf("events: %q", events)
	}
}

// A workload whose check leaves the queue waits for the gate no longer: otherwise
// the gate's status and alert count it for ever.
func TestRemovedCheckEndsTheWait(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(nil)
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	if n := b.engine.Registry.Waiting("gpu"); n != 1 {
		t.Fatalf("%d workloads wait, want 1", n)
	}
	b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[1:] })
	b.reconcile()
	if n := b.engine.Registry.Waiting("gpu"); n != 0 {
		t.Errorf("%d workloads wait after the check was removed, want 0", n)
	}
}
