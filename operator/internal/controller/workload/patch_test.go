package workload

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// pendingWrite writes a Pending check with a message.
func pendingWrite(message string) lifecycle.Write {
	return lifecycle.Write{Check: &lifecycle.CheckWrite{Names: []string{"plimsoll"}, Decision: gate.Decision{State: gate.Pending, Message: message}}}
}

func TestEveryWriteIsRemembered(t *testing.T) {
	for _, tc := range []struct {
		name   string
		writes func(s *lifecycle.Situation) []lifecycle.Write
	}{
		{"check", func(*lifecycle.Situation) []lifecycle.Write {
			return []lifecycle.Write{pendingWrite("no cluster has room")}
		}},
		{"annotation", func(*lifecycle.Situation) []lifecycle.Write {
			return []lifecycle.Write{{Record: &lifecycle.RecordWrite{}}}
		}},
		{"yield", func(s *lifecycle.Situation) []lifecycle.Write {
			return []lifecycle.Write{lifecycle.WriteYield(s, gate.Decision{State: gate.Retry, Reason: gate.ReasonYield}, dispatch.Record{})}
		}},
		{"nomination", func(*lifecycle.Situation) []lifecycle.Write {
			return lifecycle.Nominate([]string{"cluster1"}, &dispatch.Record{}, "Nominated", "there is room")
		}},
		{"nomination without annotation", func(*lifecycle.Situation) []lifecycle.Write {
			return lifecycle.Nominate([]string{"cluster1"}, nil, "NominatedAll", "no gate")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(fixture.Nominated(fixture.PendingWorkload(fixture.Noon)))
			s := b.look()
			if err := b.apply(s, lifecycle.Step{Writes: tc.writes(s)}); err != nil {
				t.Fatal(err)
			}
			seen := b.workload()
			if b.engine.History(seen.UID).IsBehindOwnWrite(seen, b.now()) {
				t.Error("the written version counts as stale")
			}
			version, err := strconv.Atoi(seen.ResourceVersion)
			if err != nil {
				t.Fatal(err)
			}
			seen.ResourceVersion = strconv.Itoa(version - 1)
			if !b.engine.History(seen.UID).IsBehindOwnWrite(seen, b.now()) {
				t.Error("the version before the write does not count as stale")
			}
		})
	}
}

// Kueue resets the check of an evicted workload, but leaves podSetUpdates.
func TestPendingCheckHasNoPodSetUpdates(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.PendingWorkload(fixture.Noon)
	wl.Status.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", NodeSelector: map[string]string{"cluster": "cluster1"}}}
	b.create(wl)
	if err := b.apply(b.look(), lifecycle.Step{Writes: []lifecycle.Write{pendingWrite("no cluster has room")}}); err != nil {
		t.Fatal(err)
	}
	if got := b.check(); got.PodSetUpdates != nil || got.Message != "no cluster has room" {
		t.Errorf("written: %+v", got)
	}
}

// A check is written at the version that the decision rests on, not over newer changes.
func TestCheckWriteConflictsWithNewerChange(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.PendingWorkload(fixture.Noon))
	s := b.look()
	b.update(func(wl *kueue.Workload) { wl.Status.Admission = nil })
	err := b.apply(s, lifecycle.Step{Writes: []lifecycle.Write{{Check: &lifecycle.CheckWrite{Names: s.Checks.Own, Decision: gate.Decision{State: gate.Ready}}}}})
	if state := b.check().State; !apierrors.IsConflict(err) || state != kueue.CheckStatePending {
		t.Errorf("%v; the check of a workload without quota is %s", err, state)
	}
}

// The API server refuses a patch of a removed entry as invalid. Without a change of the
// workload, an invalid patch stays an error.
func TestInvalidCheckWrite(t *testing.T) {
	refused := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{}, "", "", 0, false)
	for _, tc := range []struct {
		name       string
		change     func(*bench)
		isConflict bool
	}{
		{"the entry was removed", func(b *bench) { b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil }) }, true},
		{"the workload was deleted", func(b *bench) { b.delete() }, true},
		{"nothing changed", func(*bench) {}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(fixture.PendingWorkload(fixture.Noon))
			s := b.look()
			tc.change(b)
			b.client = interceptor.NewClient(b.hub, interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					return refused
				}})
			err := b.apply(s, lifecycle.Step{Writes: []lifecycle.Write{pendingWrite("no room")}})
			if apierrors.IsConflict(err) != tc.isConflict || apierrors.IsInvalid(err) == tc.isConflict {
				t.Errorf("got %v", err)
			}
		})
	}
}

// controller-runtime warns about a result beside an error, and retries by the error alone.
func TestFailedWriteIsRetriedByItsError(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
	b.create(wl)
	b.clock.add(fixture.StuckAfter) // the eviction is repaired, and the next look is planned
	b.client = interceptor.NewClient(b.hub, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return apierrors.NewInternalError(errors.New("the webhook does not respond"))
		}})
	result, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key})
	if err == nil || !result.IsZero() {
		t.Errorf("got %+v and error %v", result, err)
	}
}

// The API server may store a write and fail to say so. Until the cache shows the write, the workload keeps what
// it has reserved: a decision on the older version would not know of it.
func TestWriteThatFailedMayBeStored(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 1})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	stale := newStaleClient(b.hub, b.workload())
	b.client = interceptor.NewClient(stale.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, _ client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := b.hub.SubResource(name).Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			return apierrors.NewTimeoutError("the response is lost", 1)
		}})
	reserved := func() []string { clusters, _ := b.engine.Ledger.Reserved(string(b.workload().UID)); return clusters }
	b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key})
	if b.check().State != kueue.CheckStateReady || len(reserved()) != 1 {
		t.Fatalf("after the first write: check %s, reserved %v", b.check().State, reserved())
	}
	b.room(map[string]float64{"cluster1": 0})
	b.clock.add(time.Minute) // another round of queries
	b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key})
	if len(reserved()) != 1 {
		t.Error("A decision on the older version took the reservation back")
	}
}

func TestCheckPatch(t *testing.T) {
	now := metav1.NewTime(fixture.Noon)
	updates := []kueue.PodSetUpdate{{Name: "main"}}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "multikueue"}, {Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "second", State: kueue.CheckStateReady, PodSetUpdates: updates}}
	version := patchOperation{"replace", "/metadata/resourceVersion", "7"}
	for _, tc := range []struct {
		name  string
		write lifecycle.CheckWrite
		want  []patchOperation
	}{
		{"new message", lifecycle.CheckWrite{Names: []string{"plimsoll"}, Decision: gate.Decision{State: gate.Pending, Message: "no room"}},
			[]patchOperation{version, {"add", "/status/admissionChecks/1/message", "no room"}}},
		{"new state", lifecycle.CheckWrite{Names: []string{"plimsoll"}, Decision: gate.Decision{State: gate.Ready, Message: "room"}, PodSetUpdates: updates},
			[]patchOperation{version, {"add", "/status/admissionChecks/1/state", gate.Ready}, {"add", "/status/admissionChecks/1/lastTransitionTime", now},
				{"add", "/status/admissionChecks/1/message", "room"}, {"add", "/status/admissionChecks/1/podSetUpdates", updates}}},
		{"two entries, one with podSetUpdates", lifecycle.CheckWrite{Names: []string{"plimsoll", "second"}, Decision: gate.Decision{State: gate.Pending, Message: "two"}},
			[]patchOperation{version, {"add", "/status/admissionChecks/1/message", "two"}, {"add", "/status/admissionChecks/2/state", gate.Pending},
				{"add", "/status/admissionChecks/2/lastTransitionTime", now}, {"add", "/status/admissionChecks/2/message", "two"}, {Op: "remove", Path: "/status/admissionChecks/2/podSetUpdates"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, checkPatch(wl, tc.write, now)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
