package workload

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// An situation from before the last write would take back what the ledger holds.
func TestStaleCacheChangesNothing(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(onlyCluster1)
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	stale := b.workload()
	b.reconcile()
	want := map[string]int64{"cluster1": 2}
	if diff := cmp.Diff(want, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Fatalf("reserved devices (-want +got):\n%s", diff)
	}
	written := b.workload()
	b.room(onlyCluster2)
	b.clock.add(timing.MaxCacheLag - time.Second)
	b.client = newStaleClient(b.hub, stale)
	if result := b.reconcile(); result.RequeueAfter != timing.RereadDelay {
		t.Errorf("next look after %s", result.RequeueAfter)
	}
	if diff := cmp.Diff(want, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(written, b.workload()); diff != "" {
		t.Errorf("the workload changed (-want +got):\n%s", diff)
	}
}

// A conflict means that the situation was out of date, and is no error. Another error is.
func TestFailedWriteEndsTheStep(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	s := b.look()
	b.update(func(wl *kueue.Workload) { wl.Labels = map[string]string{"changed": "true"} })
	if err := b.apply(s, lifecycle.Next(s)); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("want a conflict with the object, got %v", err)
	}
	if wl := b.workload(); wl.Status.AdmissionChecks[0].State != kueue.CheckStatePending || len(wl.Annotations) > 0 || len(wl.Status.NominatedClusterNames) > 0 {
		t.Errorf("a later write of the step was sent: %+v", wl.Status)
	}
	if events := b.events(); len(events) > 0 {
		t.Errorf("events of writes that failed: %q", events)
	}
}
