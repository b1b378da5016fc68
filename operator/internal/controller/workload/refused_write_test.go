package workload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// refuse lets the API server refuse one kind of write.
func refuse(hub client.WithWatch, kind string, err error) client.Client {
	return interceptor.NewClient(hub, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if kind == "annotation" {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if kind == "check" {
				return err
			}
			return c.SubResource(name).Patch(ctx, obj, patch, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if kind == "nomination" {
				return err
			}
			return c.SubResource(name).Apply(ctx, obj, opts...)
		},
	})
}

// A write that the API server refuses sends the workload nowhere: the devices are free for others at once. The gate
// says why, and does not repeat the write before the pause is over.
func TestRefusedWriteEndsTheReservation(t *testing.T) {
	workloads := schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}, "job", nil)
	forbidden := apierrors.NewForbidden(workloads, "job", errors.New("the policy of the company"))
	for _, tc := range []struct {
		name, kind string
		err        error
		// state and reason of the check afterwards.
		state kueue.CheckState
		says  bool
	}{
		{"the annotation is invalid", "annotation", invalid, kueue.CheckStatePending, true},
		{"the annotation is forbidden", "annotation", forbidden, kueue.CheckStatePending, true},
		{"the check is forbidden", "check", forbidden, kueue.CheckStatePending, false},
		{"the nomination is forbidden", "nomination", forbidden, kueue.CheckStatePending, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
			b.client = refuse(b.hub, tc.kind, tc.err)
			if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key}); err == nil {
				t.Fatal("the write is not refused")
			}
			if devices := b.engine.Ledger.DevicesByCluster(); len(devices) != 0 {
				t.Errorf("still reserved: %v", devices)
			}
			isRefusal := func(e string) bool {
				return strings.HasPrefix(e, "Warning WriteRefused ") && strings.Contains(e, tc.err.Error())
			}
			if list := b.events(); !slices.ContainsFunc(list, isRefusal) {
				t.Errorf("events %q", list)
			}
			b.reconcile()
			version := b.workload().ResourceVersion
			if result := b.reconcile(); result.RequeueAfter != timing.RefusedPause || b.workload().ResourceVersion != version {
				t.Errorf("looks again after %s", result.RequeueAfter)
			}
			if e, err := b.Explain(t.Context(), b.key); err != nil || !strings.Contains(e.WaitsFor, tc.err.Error()) || e.Next != "the API server accepts the write" {
				t.Errorf("waits for %q until %q, error %v", e.WaitsFor, e.Next, err)
			}
			if c := b.check(); c.State != tc.state || strings.Contains(c.Message, tc.err.Error()) != tc.says {
				t.Errorf("check %s %q", c.State, c.Message)
			}
			b.clock.add(timing.RefusedPause)
			if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key}); err == nil {
				t.Error("the write is not tried again")
			}
			if slices.ContainsFunc(b.events(), isRefusal) {
				t.Error("the refusal is reported again")
			}
			b.client = b.hub
			b.clock.add(timing.RefusedPause)
			b.reconcile()
			if got := b.workload().Status.NominatedClusterNames; len(got) != 1 || b.check().State != kueue.CheckStateReady {
				t.Errorf("once the cause is removed: nominated %v, check %s", got, b.check().State)
			}
			if h := b.engine.History("uid"); h.Refusal != nil {
				t.Errorf("remembers %v", h.Refusal)
			}
		})
	}
}

// A decision whose write was a conflict is made again. If it sends the workload nowhere now, the devices that the
// first one reserved are free, and workloads that wait for them are decided before the period is over.
func TestNextDecisionEndsTheReservation(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{PeriodSeconds: 3600})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.client = refuse(b.hub, "check", apierrors.NewConflict(schema.GroupResource{}, "job", nil))
	b.reconcile()
	if reserved, podSets := b.engine.Ledger.Reserved("uid"); len(reserved) != 1 {
		t.Fatalf("reserved on %v", reserved)
	} else {
		b.engine.Waiting.Add(waitqueue.Entry{Workload: types.NamespacedName{Name: "waits"}, Key: gatestate.QueryKey{Gate: "gpu"},
			PodSets: podSets, Rank: ledger.Rank{Since: b.now().Add(time.Hour)}})
	}
	b.client = b.hub
	b.room(nil)
	b.cache = b.newCache()
	b.reconcile()
	if reserved, _ := b.engine.Ledger.Reserved("uid"); len(reserved) != 0 || b.check().State != kueue.CheckStatePending {
		t.Fatalf("reserved on %v, check %s", reserved, b.check().State)
	}
	b.refreshed = nil
	b.clock.add(timing.MinWakeUpGap)
	b.engine.Waiting.StartWakeUps()
	if !slices.Contains(b.refreshed, gatestate.QueryKey{Gate: "gpu"}) {
		t.Errorf("woke %v", b.refreshed)
	}
}

// The clusters that the workload is nominated to keep what they reserve when a wider nomination is refused.
func TestRefusedWideningKeepsTheNomination(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	sent := b.workload().Status.NominatedClusterNames
	b.clock.add(timing.DefaultWidenAfter)
	b.client = refuse(b.hub, "nomination", apierrors.NewForbidden(schema.GroupResource{}, "job", nil))
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key}); err == nil {
		t.Fatal("the write is not refused")
	}
	if reserved, _ := b.engine.Ledger.Reserved("uid"); !slices.Equal(reserved, sent) || b.check().State != kueue.CheckStateReady {
		t.Errorf("reserved on %v, nominated to %v, check %s", reserved, sent, b.check().State)
	}
}
