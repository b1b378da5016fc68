package workload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// restart makes the next reconciliation rebuild the ledger.
func (b *bench) restart() {
	b.t.Helper()
	b.rebuilt = false
	if err := b.rebuildOnce(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func TestRebuiltLedger(t *testing.T) {
	ago := func(minutes int) time.Time { return noon.Add(-time.Duration(minutes) * time.Minute) }
	sent := func(at, reserved time.Time) *kueue.Workload {
		return withRecord(nominated(pendingWorkload(reserved), "cluster1"), recordOf(at, "cluster1"))
	}
	ready := func(at time.Time) *kueue.Workload { return readyFor(pendingWorkload(ago(120)), "cluster1", at) }
	admitted := func(at time.Time) *kueue.Workload {
		wl := ready(at)
		setCondition(wl, kueue.WorkloadAdmitted, at)
		return wl
	}
	reset := ready(ago(1))
	reset.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		want int64
	}{
		{"nominated", sent(ago(1), ago(2)), 2},
		{"nominated before it reserved its quota", sent(ago(2), ago(1)), 0},
		{"nominated too long ago", sent(ago(61), ago(62)), 0},
		{"Ready without MultiKueue", ready(ago(1)), 2},
		{"Ready too long ago", ready(ago(61)), 0},
		{"Ready before the check was reset", reset, 0},
		{"admitted", admitted(ago(1)), 2},
		{"admitted so long ago that samples show it", admitted(ago(61)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(tc.wl)
			b.restart()
			if got := b.ledger.DevicesByCluster()["cluster1"]; got != tc.want {
				t.Errorf("%d devices reserved on cluster1, want %d", got, tc.want)
			}
		})
	}
}

// If the operator nominates, it decides again when its turn comes. With Kueue's dispatcher,
// the Ready check is what a new process knows of the reservation.
func TestRebuiltLedgerOfReadyMultiKueueWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name      string
		nominates bool
		want      map[string]int64
	}{
		{"the operator nominates", true, map[string]int64{}},
		{"Kueue nominates", false, map[string]int64{"cluster1": 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.nominates = tc.nominates
			b.create(nominated(readyFor(pendingWorkload(noon), "cluster1", noon)))
			b.restart()
			if diff := cmp.Diff(tc.want, b.ledger.DevicesByCluster()); diff != "" {
				t.Errorf("reserved devices (-want +got):\n%s", diff)
			}
		})
	}
}

// A late attempt that the former process counted is not counted again.
func TestRebuiltHistoryKeepsTheLateAttempt(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(withRecord(nominated(pendingWorkload(noon.Add(-time.Minute)), "cluster1"), recordOf(noon.Add(-40*time.Second), "cluster1")))
	b.restart()
	if got := b.histories.get("uid").lateAttempt; got != 1 {
		t.Errorf("late attempt %d, want 1", got)
	}
}

// A decision on half a ledger would overcommit clusters: nothing is decided until the
// ledger is complete.
func TestFailedRebuildDecidesNothing(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(pendingWorkload(noon))
	b.rebuilt = false
	b.client = interceptor.NewClient(b.hub, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, isQueue := obj.(*kueue.ClusterQueue); isQueue {
			return errors.New("the cache did not sync")
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key}); err == nil || b.rebuilt {
		t.Errorf("want an error and no rebuilt ledger, got %v, rebuilt %t", err, b.rebuilt)
	}
	if state := b.check().State; state != kueue.CheckStatePending {
		t.Errorf("the check is %s", state)
	}
	b.client = b.hub
	b.reconcile()
	if state := b.check().State; state != kueue.CheckStateReady || !b.rebuilt {
		t.Errorf("after the error ended the check is %s", state)
	}
}
