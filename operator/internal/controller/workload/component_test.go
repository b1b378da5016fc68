package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// createReplicas stores the replicas and selects the first one.
func (b *bench) createReplicas(n int) {
	for i := range n {
		b.create(fixture.Replica(i))
	}
	b.selectReplica(0)
}

func (b *bench) selectReplica(index int) { b.key.Name = fmt.Sprintf("serve-%d", index) }

func TestComponentWaitsForItsPrimary(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(2)
	b.selectReplica(1)
	b.expectExplained()
	b.reconcile()
	if got, want := checkTexts(b.workload())["plimsoll"], "Pending waits until Kueue has placed component 0 of the job, Workload serve-0"; got != want {
		t.Errorf("check %q, want %q", got, want)
	}
	if n := b.engine.Registry.Waiting("gpu"); n != 1 {
		t.Errorf("%d workloads are counted as waiting, want 1", n)
	}
	b.selectReplica(0)
	b.update(func(wl *kueue.Workload) { cluster := "cluster2"; wl.Status.ClusterName = &cluster })
	b.selectReplica(1)
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStateReady || !strings.Contains(got.Message, "cluster2") {
		t.Errorf("the primary is on cluster2, which has room: check %s %q", got.State, got.Message)
	}
	if got := b.workload().Status.NominatedClusterNames; len(got) > 0 {
		t.Errorf("Kueue nominates components itself, but the operator nominated %v", got)
	}
}

// A component must not pass because another cluster than its primary's has room.
func TestComponentNeedsRoomOnTheClusterOfItsPrimary(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(2)
	b.update(func(wl *kueue.Workload) { cluster := "cluster1"; wl.Status.ClusterName = &cluster })
	b.selectReplica(1)
	b.room(map[string]float64{"cluster1": 0, "cluster2": 9})
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStatePending || !strings.Contains(got.Message, "cluster1") {
		t.Errorf("only cluster2 has room: check %s %q", got.State, got.Message)
	}
}

func TestPrimaryNeedsRoomForItsWholeJob(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(3)
	b.room(map[string]float64{"cluster1": 2, "cluster2": 2})
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStatePending {
		t.Errorf("three pods on two places: check %s %q", got.State, got.Message)
	}
	b.room(map[string]float64{"cluster1": 2, "cluster2": 3})
	b.clock.add(time.Minute)
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) != 1 || got[0] != "cluster2" {
		t.Errorf("nominated %v, want cluster2", got)
	}
	if devices := b.engine.Ledger.DevicesByCluster()["cluster2"]; devices != 6 {
		t.Errorf("%d devices are reserved on cluster2, want 6 for three components", devices)
	}
}

// The reservations of a job must not count against the job itself.
func TestReservationsOfAJobDoNotBlockIt(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(2)
	b.room(map[string]float64{"cluster1": 2})
	b.reconcile()
	b.update(func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = nil }) // as if the write had failed
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) != 1 {
		t.Fatalf("nominated %v, want cluster1 again: %q", got, b.check().Message)
	}
	b.update(func(wl *kueue.Workload) {
		cluster := "cluster1"
		wl.Status.ClusterName = &cluster
		wl.Status.NominatedClusterNames = nil
	})
	b.selectReplica(1)
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStateReady {
		t.Errorf("the second component has a reservation: check %s %q", got.State, got.Message)
	}
}

// Kueue sends a component to the cluster of its job only. If the Placement no longer decides this
// cluster, the check states what keeps the component waiting.
func TestComponentOfAClusterThatIsNotDecided(t *testing.T) {
	const others = "cluster1 does not run the job's other components, which are on cluster2"
	for _, tc := range []struct {
		name    string
		decided []gatestate.Cluster
		want    string
	}{
		{"another cluster is decided", []gatestate.Cluster{{Name: "cluster1"}},
			"Pending no cluster is eligible; cluster2 runs the job's other components, but is not decided by Placement plimsoll-system/gpu, " + others},
		{"no cluster is decided", nil, "Pending Placement plimsoll-system/gpu has decided no cluster"},
		{"decided again", []gatestate.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}, "Ready cluster2 has room for 9 such pods; the quota of its queue is unknown (QuotaUnknown)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{PlacementRef: v1alpha1.NamespacedReference{Namespace: "plimsoll-system", Name: "gpu"}})
			b.putGate(func(g *gatestate.Gate) { g.Clusters = tc.decided })
			b.createReplicas(2)
			b.update(func(wl *kueue.Workload) { cluster := "cluster2"; wl.Status.ClusterName = &cluster })
			b.selectReplica(1)
			b.reconcile()
			if got := checkTexts(b.workload())["plimsoll"]; got != tc.want {
				t.Errorf("check %q\nwant  %q", got, tc.want)
			}
		})
	}
}

// Kueue sends a component with an evicted copy back to the cluster of the others.
func TestPrimaryFollowsPlacedComponents(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(2)
	b.selectReplica(1)
	b.update(func(wl *kueue.Workload) { cluster := "cluster2"; wl.Status.ClusterName = &cluster })
	b.selectReplica(0)
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) > 0 {
		t.Errorf("Kueue nominates cluster2 itself, but the operator nominated %v", got)
	}
	if got := b.check(); got.State != kueue.CheckStateReady || !strings.Contains(got.Message, "cluster2") {
		t.Errorf("check %s %q", got.State, got.Message)
	}
}

// Kueue sends a component to the cluster of the others also if these have finished, so that room on
// another cluster is of no use.
func TestPrimaryFollowsFinishedComponents(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(2)
	b.selectReplica(1)
	b.update(func(wl *kueue.Workload) {
		cluster := "cluster2"
		wl.Status.ClusterName = &cluster
		fixture.SetCondition(wl, kueue.WorkloadFinished, fixture.Noon)
	})
	b.selectReplica(0)
	b.room(map[string]float64{"cluster1": 9, "cluster2": 1})
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) > 0 {
		t.Errorf("Kueue nominates cluster2 itself, but the operator nominated %v", got)
	}
	if got := b.check(); got.State != kueue.CheckStateReady || !strings.Contains(got.Message, "cluster2") {
		t.Errorf("check %s %q", got.State, got.Message)
	}
}

// The cluster of the job is known, so that component 0 needs room for itself only: each of the others is
// decided for itself.
func TestPrimaryOfAPlacedJobNeedsRoomForItself(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(3)
	b.selectReplica(2)
	b.update(func(wl *kueue.Workload) { cluster := "cluster2"; wl.Status.ClusterName = &cluster })
	b.selectReplica(0)
	b.room(map[string]float64{"cluster1": 9, "cluster2": 1})
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStateReady || !strings.Contains(got.Message, "cluster2 has room for 1 such pod") {
		t.Errorf("check %s %q", got.State, got.Message)
	}
	if got := b.engine.Ledger.DevicesByCluster(); got["cluster2"] != 2 {
		t.Errorf("reserved %v, want the 2 devices of component 0", got)
	}
}

// A component 0 that has ended has no quota because it needs none: the others are not rejected or
// returned with it.
func TestComponentWithoutAnUnfinishedPrimary(t *testing.T) {
	hour := int32(3600)
	for _, tc := range []struct {
		name string
		end  func(*bench)
	}{
		{"finished", func(b *bench) {
			b.update(func(wl *kueue.Workload) {
				fixture.RejectedCheck(wl)
				fixture.SetCondition(wl, kueue.WorkloadFinished, fixture.Noon)
			})
		}},
		{"is being deleted", func(b *bench) {
			b.update(func(wl *kueue.Workload) {
				fixture.RejectedCheck(wl)
				wl.Finalizers = []string{"kueue.x-k8s.io/resource-in-use"}
			})
			b.delete()
		}},
		{"does not exist", func(b *bench) { b.delete() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}})
			b.createReplicas(2)
			tc.end(b)
			b.selectReplica(1)
			b.reconcile()
			if got, want := checkTexts(b.workload())["plimsoll"], "Pending waits until Kueue has placed component 0 of the job"; got != want {
				t.Errorf("check %q, want %q", got, want)
			}
		})
	}
}

func TestPlacementOfOneComponentWakesTheOthers(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicas(3)
	b.selectReplica(2)
	b.update(func(wl *kueue.Workload) { wl.Status.Admission = nil; wl.Status.Conditions = nil })
	b.selectReplica(0)
	b.update(func(wl *kueue.Workload) { cluster := "cluster1"; wl.Status.ClusterName = &cluster })
	var names []string
	for _, request := range b.otherComponents(t.Context(), b.workload()) {
		names = append(names, request.Name)
	}
	if got := strings.Join(names, " "); got != "serve-1" {
		t.Errorf("woke %q, want the component that waits with quota", got)
	}
}

func TestAnnotationRestrictsClusters(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Annotations = map[string]string{kueuestate.ClusterNamesAnnotation: "cluster9, cluster2"}
	b.create(wl)
	b.room(map[string]float64{"cluster1": 99, "cluster2": 1})
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) != 1 || got[0] != "cluster2" {
		t.Errorf("nominated %v, want cluster2", got)
	}
	b.clock.add(5 * time.Minute) // every cluster would be nominated by now
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; len(got) != 1 {
		t.Errorf("nominated %v, want cluster2 only", got)
	}
}

func TestAnnotationThatExcludesEveryCluster(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Annotations = map[string]string{kueuestate.ClusterNamesAnnotation: "cluster9"}
	b.create(wl)
	b.reconcile()
	want := "Pending can never start here: the job permits no cluster of the gate; cluster1 is not in annotation kueue.x-k8s.io/multikueue-cluster-names, cluster2 is not in annotation kueue.x-k8s.io/multikueue-cluster-names"
	if got := checkTexts(b.workload())["plimsoll"]; got != want {
		t.Errorf("check %q, want %q", got, want)
	}
}
