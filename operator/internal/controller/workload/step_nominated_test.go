package workload

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// If no other cluster has room, the workload waits on, and one event per attempt says why.
func TestLateNominationWithoutAnotherCluster(t *testing.T) {
	const notAdmitted = "Warning NotAdmitted cluster1 has not admitted it within 30s; check that the worker has the queue and quota; no other cluster is known to have room"
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.configure("cluster1")
	b.room(onlyCluster1)
	sent := fixture.RecordOf(fixture.Noon, "cluster1")
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), sent))
	for _, tc := range []struct {
		name  string
		after time.Duration
		want  []string
	}{
		{"before the time to widen", 29 * time.Second, nil},
		{"at the time to widen", time.Second, []string{notAdmitted}},
		{"a minute later", time.Minute, nil},
	} {
		b.clock.add(tc.after)
		b.reconcile()
		if diff := cmp.Diff(tc.want, b.events()); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", tc.name, diff)
		}
	}
	b.update(func(wl *kueue.Workload) {
		fixture.WithRecord(wl, sent.Begin([]string{"cluster1"}, time.Time{}, "", b.now()))
	})
	b.clock.add(30 * time.Second)
	b.reconcile()
	if diff := cmp.Diff([]string{notAdmitted}, b.events()); diff != "" {
		t.Errorf("next attempt: events (-want +got):\n%s", diff)
	}
}

func TestWideningIsOneEvent(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-time.Minute)), "cluster1"), fixture.RecordOf(fixture.Noon.Add(-30*time.Second), "cluster1")))
	b.reconcile()
	if events := b.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Normal Widened nominated cluster1, cluster2: ") {
		t.Errorf("events: %q", events)
	}
	if diff := cmp.Diff([]string{"cluster1", "cluster2"}, b.workload().Status.NominatedClusterNames); diff != "" {
		t.Errorf("nominated (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"cluster1": 2, "cluster2": 2}, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s", diff)
	}
}

// MultiKueue starts the job before it writes which cluster admitted the workload. While the pods hold
// devices on the nominated cluster, another one must not start the job, too.
func TestWideningWaitsForPodsThatHoldDevices(t *testing.T) {
	const notRecorded = "Warning AdmissionNotRecorded its pods hold devices on cluster1, but Kueue has not recorded that the cluster admitted it; other clusters are not nominated yet"
	holds := func(cluster, namespace, kind, name string, pods float64) query.Sample {
		return query.Sample{Labels: map[string]string{"cluster": cluster, "namespace": namespace, "owner_kind": kind, "owner_name": name}, Value: pods}
	}
	for _, tc := range []struct {
		name    string
		holders []query.Sample
		err     error
		after   time.Duration
		want    []string
	}{
		{"its pods hold devices", []query.Sample{holds("cluster1", "team-a", "Job", "train", 1)}, nil, 30 * time.Second, []string{"cluster1"}},
		{"in the stage that heals", []query.Sample{holds("cluster1", "team-a", "Job", "train", 1)}, nil, 119 * time.Second, []string{"cluster1"}},
		{"in the last stage", []query.Sample{holds("cluster1", "team-a", "Job", "train", 1)}, nil, 120 * time.Second, []string{"cluster1", "cluster2"}},
		{"no pod holds devices", nil, nil, 30 * time.Second, []string{"cluster1", "cluster2"}},
		{"pods of another job", []query.Sample{holds("cluster1", "team-a", "Job", "other", 1), holds("cluster1", "team-b", "Job", "train", 1),
			holds("cluster1", "team-a", "RayJob", "train", 1)}, nil, 30 * time.Second, []string{"cluster1", "cluster2"}},
		{"pods of an earlier copy on a cluster that is not nominated", []query.Sample{holds("cluster2", "team-a", "Job", "train", 1)}, nil, 30 * time.Second,
			[]string{"cluster1", "cluster2"}},
		{"the query fails", nil, errors.New("timeout"), 30 * time.Second, []string{"cluster1", "cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.source.holders, b.source.holdersErr = tc.holders, tc.err
			wl := fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), fixture.RecordOf(fixture.Noon, "cluster1"))
			wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train"}}
			b.create(wl)
			b.clock.add(tc.after)
			result := b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
			if len(tc.want) > 1 {
				return
			}
			if diff := cmp.Diff([]string{notRecorded}, b.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if want := 60*time.Second - tc.after%(60*time.Second); result.RequeueAfter != want {
				t.Errorf("the next look is in %s, want %s", result.RequeueAfter, want)
			}
			b.reconcile()
			if events := b.events(); len(events) > 0 {
				t.Errorf("another look at the same attempt: events %q", events)
			}
		})
	}
}

// A cluster that is about to leave the MultiKueueConfig gets no copies: Kueue would not delete
// them.
func TestWideningAvoidsLeavingClusters(t *testing.T) {
	for _, tc := range []struct {
		name    string
		leaving string
		problem string // of the gate, which then can't decide
		want    []string
	}{
		{"none leaves", "", "", []string{"cluster1", "cluster2"}},
		{"the other one leaves", "cluster2", "", []string{"cluster1"}},
		{"its own one was to leave", "cluster1", "", []string{"cluster1", "cluster2"}},
		{"none leaves, and the gate can't decide", "", "no source", []string{"cluster1", "cluster2"}},
		{"the other one leaves, and the gate can't decide", "cluster2", "no source", []string{"cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(map[string]float64{"cluster1": 4, "cluster2": 4})
			b.putGate(func(g *gatestate.Gate) {
				g.Problem = tc.problem
				for i := range g.Clusters {
					g.Clusters[i].Leaving = g.Clusters[i].Name == tc.leaving
				}
			})
			b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-time.Hour)), "cluster1"), fixture.RecordOf(fixture.Noon.Add(-9*time.Minute), "cluster1")))
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAttemptIsMispredictedOnce(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-time.Minute)), "cluster1"), fixture.RecordOf(fixture.Noon.Add(-time.Minute), "cluster1")))
	s := b.look()
	for _, tc := range []struct {
		name             string
		attempt, counted int
		want             bool
	}{
		{"first look", 1, 0, true},
		{"second look", 1, 1, false},
		{"next attempt", 2, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.Record.Attempt, s.History.LateAttempt = tc.attempt, tc.counted
			if next := lifecycle.Next(s); next.Mispredicted != tc.want || (next.LateAttempt == tc.attempt) != tc.want {
				t.Errorf("mispredicted %t, late attempt %d", next.Mispredicted, next.LateAttempt)
			}
		})
	}
}

// Nominations that another component removed are restored, if Kueue can use them.
func TestRevokedNominationsAreRestored(t *testing.T) {
	for _, tc := range []struct {
		name      string
		connected bool
		want      []string
		conflict  string
	}{
		{"connected", true, []string{"cluster1", "cluster2"}, "team-a/job: another component removed the nomination of cluster2"},
		{"disconnected", false, []string{"cluster1"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			if !tc.connected {
				b.disconnect("cluster2")
			}
			b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1", "cluster2"), fixture.RecordOf(fixture.Noon, "cluster1", "cluster2")))
			b.reconcile()
			b.update(func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster1"} })
			b.reconcile() // sees that the nomination is gone
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
			if got := b.engine.Registry.Conflict("gpu", fixture.Noon); got != tc.conflict {
				t.Errorf("conflict %q, want %q", got, tc.conflict)
			}
		})
	}
}

// An eviction that waits for a cluster is completed by a Ready check and a nomination, also
// if no cluster has room.
func TestStuckEvictionIsRepaired(t *testing.T) {
	for _, tc := range []struct {
		name string
		room map[string]float64
		ever []string
		want []string
	}{
		{"a cluster has room", onlyCluster2, []string{"cluster1"}, []string{"cluster2"}},
		{"no room, nominated before", nil, []string{"cluster1", "cluster3"}, []string{"cluster1"}},
		{"no room, never nominated", nil, nil, []string{"cluster1", "cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.room)
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
			record := fixture.RecordOf(fixture.Noon, tc.ever...)
			b.create(fixture.WithRecord(wl, record))
			if result := b.reconcile(); result.RequeueAfter != fixture.StuckAfter || b.check().State != kueue.CheckStatePending {
				t.Errorf("within the grace period: next look after %s, check %s", result.RequeueAfter, b.check().State)
			}
			b.clock.add(fixture.StuckAfter)
			b.reconcile()
			if state := b.check().State; state != kueue.CheckStateReady {
				t.Errorf("the check is %s", state)
			}
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
		})
	}
}

// The checks of other controllers are left alone, and the repair waits for them.
func TestStuckEvictionWithFurtherChecks(t *testing.T) {
	for _, state := range []kueue.CheckState{kueue.CheckStatePending, kueue.CheckStateReady} {
		t.Run(string(state), func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: state})
			fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
			b.create(wl)
			b.clock.add(fixture.StuckAfter)
			b.reconcile()
			b.reconcile()
			wl = b.workload()
			if got := kueuestate.FindCheck(wl, "budget").State; got != state || (len(wl.Status.NominatedClusterNames) > 0) != (state == kueue.CheckStateReady) {
				t.Errorf("check budget is %s, nominated %v", got, wl.Status.NominatedClusterNames)
			}
		})
	}
}

// The eviction of a reclaimed workload is completed while the workload is inactive, so that its
// copy does not start. The workload is activated after the eviction and the pause.
func TestReclaimedWorkloadReturnsAfterTheRepair(t *testing.T) {
	const grace = time.Minute // of its pods, which is longer than the pause of a yield
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl, inactive := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), false
	wl.Spec.Active = &inactive
	fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
	b.create(fixture.WithRecord(wl, fixture.RecordOf(fixture.Noon, "cluster1").Reclaim("idle-gpus", "idle", grace, fixture.Noon)))
	b.clock.add(grace + time.Second)
	b.reconcile() // sets the check Ready
	b.reconcile() // nominates
	if wl = b.workload(); *wl.Spec.Active || len(wl.Status.NominatedClusterNames) == 0 {
		t.Fatalf("active %t, nominated %v", *wl.Spec.Active, wl.Status.NominatedClusterNames)
	}
	b.update(func(wl *kueue.Workload) {
		wl.Status.Admission, wl.Status.NominatedClusterNames = nil, nil
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", LastTransitionTime: metav1.NewTime(b.now())})
	})
	if result := b.reconcile(); result.RequeueAfter != grace || *b.workload().Spec.Active {
		t.Errorf("after the eviction: next look after %s, active %t", result.RequeueAfter, *b.workload().Spec.Active)
	}
	b.clock.add(grace)
	b.reconcile()
	if record := b.dispatchRecord(); !*b.workload().Spec.Active || !record.SleepsUntil.IsZero() || record.Reclaimed == nil {
		t.Errorf("after the pause: active %t, record %+v", *b.workload().Spec.Active, record)
	}
}

// A copy on a cluster that is known to be full could not start. A cluster without fresh samples
// may have room.
func TestLastWideningAvoidsFullClusters(t *testing.T) {
	for _, tc := range []struct {
		name string
		fit  map[string]float64
		want []string
	}{
		{"full", map[string]float64{"cluster1": 0, "cluster2": 0}, []string{"cluster1"}},
		{"with room", map[string]float64{"cluster1": 0, "cluster2": 1}, []string{"cluster1", "cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.fit)
			b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-3*time.Minute)), "cluster1"), fixture.RecordOf(fixture.Noon.Add(-2*time.Minute), "cluster1")))
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
		})
	}
}

// With a backlog in MultiKueue the copy does not exist yet when advanced.widenAfterSeconds is over.
// Further clusters would make the backlog longer.
func TestBacklogDelaysWidening(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.engine.ObserveLag(fixture.Noon.Add(-100*time.Second), fixture.Noon.Add(-10*time.Second))
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-time.Minute)), "cluster1"), fixture.RecordOf(fixture.Noon.Add(-40*time.Second), "cluster1")))
	result := b.reconcile()
	if diff := cmp.Diff([]string{"cluster1"}, b.workload().Status.NominatedClusterNames); diff != "" {
		t.Errorf("nominated (-want +got):\n%s", diff)
	}
	if want := 80 * time.Second; result.RequeueAfter != want { // 90 s lag and 30 s, less 40 s
		t.Errorf("looks again after %s, want %s", result.RequeueAfter, want)
	}
}

// A ClusterQueue that is stopped (Hold) releases the quota of a nominated workload without an
// eviction: check and nomination stay. When it is resumed, MultiKueue acts on them at once.
func TestNominationOfLostQuota(t *testing.T) {
	for _, tc := range []struct {
		name      string
		fit       map[string]float64
		withdrawn bool
	}{
		{"the cluster still has room", map[string]float64{"cluster1": 1, "cluster2": 9}, false},
		{"the cluster is full", map[string]float64{"cluster1": 0, "cluster2": 9}, true},
		{"the cluster has no such devices", map[string]float64{"cluster2": 9}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.fit)
			record := fixture.RecordOf(fixture.Noon.Add(-time.Hour), "cluster1")
			record.QuotaReservedAt = fixture.Noon.Add(-time.Hour)
			wl := fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), record)
			wl.Status.AdmissionChecks[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(-time.Hour))
			b.create(wl)
			b.reconcile()
			isWithdrawn := b.workload().Spec.Active != nil && !*b.workload().Spec.Active
			if isWithdrawn != tc.withdrawn {
				t.Fatalf("withdrawn: %t, want %t", isWithdrawn, tc.withdrawn)
			}
			if devices := b.engine.Ledger.DevicesByCluster()["cluster1"]; !tc.withdrawn && devices != 2 {
				t.Errorf("%d devices of cluster1 are promised, want 2", devices)
			}
			want := []string{"Warning Requeued the nomination of cluster1 was for quota that it has lost; it returns to its queue"}
			if diff := cmp.Diff(want, b.events()); tc.withdrawn && diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorkloadThatNoClusterAdmitsIsRequeued(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{Advanced: v1alpha1.AdvancedGate{NotAdmittedAfterSeconds: 300}})
	b.room(onlyCluster1)
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), fixture.RecordOf(fixture.Noon, "cluster1")))
	b.clock.add(299 * time.Second)
	b.reconcile()
	if b.workload().Spec.Active != nil {
		t.Fatal("the workload was deactivated early")
	}
	b.events()
	b.clock.add(time.Second)
	b.reconcile()
	if active := b.workload().Spec.Active; active == nil || *active {
		t.Fatal("a workload must return to its queue after notAdmittedAfterSeconds")
	}
	want := []string{"Warning Requeued cluster1 has not admitted it within 5m0s; it returns to its queue"}
	if diff := cmp.Diff(want, b.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(b.metrics.requeues.WithLabelValues("gpu")); n != 1 {
		t.Errorf("%g requeues are counted, want 1", n)
	}
	b.update(func(wl *kueue.Workload) { // Kueue evicts it
		wl.Status.Admission, wl.Status.Conditions, wl.Status.NominatedClusterNames = nil, nil, nil
	})
	b.reconcile()
	b.clock.add(timing.YieldSleep)
	b.reconcile()
	if active := b.workload().Spec.Active; active == nil || !*active {
		t.Error("the workload must become active again after the pause")
	}
}

func TestPodsThatDoNotBecomeReadyAreReported(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	cluster := "cluster1"
	wl.Status.ClusterName = &cluster
	for i := range wl.Status.AdmissionChecks {
		wl.Status.AdmissionChecks[i].State, wl.Status.AdmissionChecks[i].LastTransitionTime = kueue.CheckStateReady, metav1.NewTime(fixture.Noon)
	}
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionFalse,
		Reason: kueue.WorkloadWaitForStart, LastTransitionTime: metav1.NewTime(fixture.Noon)})
	b.create(wl)
	late := lifecycle.LateAdmission{Gate: "gpu", Cluster: "cluster1"}
	b.clock.add(time.Minute)
	if result := b.reconcile(); result.RequeueAfter != timing.PodsReadyLimit-time.Minute || b.engine.LateAdmissions()[late] != 0 {
		t.Errorf("looks again after %s, late %v", result.RequeueAfter, b.engine.LateAdmissions())
	}
	b.clock.add(timing.PodsReadyLimit)
	for range 2 {
		b.reconcile()
	}
	want := []string{"Warning PodsNotReady cluster1 admitted it 11m0s ago, but its pods are not ready; check there whether they can be scheduled"}
	if diff := cmp.Diff(want, b.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := b.engine.LateAdmissions()[late]; n != 1 {
		t.Errorf("%d late admissions, want 1", n)
	}
	b.update(func(wl *kueue.Workload) {
		ready := &wl.Status.Conditions[len(wl.Status.Conditions)-1]
		ready.Status, ready.Reason = metav1.ConditionTrue, kueue.WorkloadStarted
	})
	b.reconcile()
	if n := b.engine.LateAdmissions()[late]; n != 0 {
		t.Errorf("%d late admissions after the pods became ready, want none", n)
	}
}
