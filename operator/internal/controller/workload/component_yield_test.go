package workload

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// A job of two components fits nowhere, and another workload waits for quota. Both return theirs.
func TestJobYieldsAsAWhole(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}})
	b.room(nil)
	queue, local, small := clusterQueue("gpu", ""), localQueue("gpu", "gpu"), queuedWorkload("small", "gpu", "")
	for _, create := range []func() error{
		func() error { return b.hub.Create(t.Context(), &queue) },
		func() error { return b.hub.Create(t.Context(), &local) },
		func() error { return b.hub.Create(t.Context(), &small) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	b.createReplicas(2)
	isActive := func(index int) bool {
		b.selectReplica(index)
		b.reconcile()
		active := b.workload().Spec.Active
		return active == nil || *active
	}
	b.clock.add(time.Minute)
	if !isActive(0) || !isActive(1) {
		t.Fatal("a component yields before yieldAfterSeconds")
	}
	b.clock.add(time.Hour)
	if isActive(0) {
		t.Fatal("component 0 does not yield")
	}
	if isActive(1) {
		t.Error("component 1 keeps its quota")
	}
}

// The steps of the other components depend on the cluster and the quota of a component.
func TestEventsThatConcernComponents(t *testing.T) {
	with := func(index int, changes ...func(*kueue.Workload)) *kueue.Workload {
		wl := fixture.Replica(index)
		for _, change := range changes {
			change(wl)
		}
		return wl
	}
	onCluster := func(wl *kueue.Workload) { fixture.AdmitBy(wl, "cluster1") }
	for _, tc := range []struct {
		name     string
		from, to *kueue.Workload
		want     bool
	}{
		{"a component gets a cluster", with(1), with(1, onCluster), true},
		{"a component loses its cluster", with(1, onCluster), with(1), true},
		{"the primary component yields", with(0), with(0, fixture.Pausing), true},
		{"the primary component loses its quota", with(0), with(0, fixture.WithoutQuota), true},
		{"the primary component is rejected", with(0), with(0, fixture.RejectedCheck), true},
		{"a component gets quota", with(1, fixture.WithoutQuota), with(1), true},
		{"the primary component returns", with(0, fixture.Pausing), with(0), true},
		{"another component loses its quota", with(1), with(1, fixture.WithoutQuota), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := concernsComponents.Update(event.UpdateEvent{ObjectOld: tc.from, ObjectNew: tc.to}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
	if !concernsComponents.Delete(event.DeleteEvent{Object: with(0, fixture.Pausing)}) {
		t.Error("components that are parked with a primary component do not see that it was deleted")
	}
}

// Component 0 reserves devices for the whole job. When it loses its quota, only its own stay reserved:
// its copies may still run.
func TestReservationsOfAJobEndWithItsPrimary(t *testing.T) {
	onlyOwn := map[string]int64{"cluster1": 2}
	for _, tc := range []struct {
		name   string
		change func(b *bench)
		want   map[string]int64
	}{
		{"loses its quota", func(b *bench) { b.update(fixture.WithoutQuota) }, onlyOwn},
		{"is decided again without room", func(b *bench) {
			b.update(func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = nil }) // as if the write had failed
			b.room(nil)
			b.clock.add(time.Minute)
		}, map[string]int64{}},
		{"is nominated", func(*bench) {}, map[string]int64{"cluster1": 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.createReplicas(3)
			b.room(map[string]float64{"cluster1": 3})
			b.reconcile()
			if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != 6 {
				t.Fatalf("%d devices are reserved, want 6", got)
			}
			tc.change(b)
			b.reconcile()
			requireDevices(t, b.engine.Ledger, tc.want)
		})
	}
}

func requireDevices(t *testing.T, l *ledger.Ledger, want map[string]int64) {
	t.Helper()
	got := l.DevicesByCluster()
	for _, cluster := range []string{"cluster1", "cluster2"} {
		if got[cluster] != want[cluster] {
			t.Errorf("%d devices are reserved on %s, want %d", got[cluster], cluster, want[cluster])
		}
	}
}
