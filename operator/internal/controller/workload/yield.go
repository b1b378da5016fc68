package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// unplaceable applies the gate's onUnplaceable.
func (r *Reconciler) unplaceable(ctx context.Context, s *subject, g registry.Gate, d gate.Decision, record dispatch.Record, now time.Time) (gate.Decision, dispatch.Record, error) {
	rule, held := g.Spec.WhenUnplaceable, r.waitsSince(s)
	record, err := r.count(ctx, s, record, d.NoRoomAnywhere && rule.GiveUpAfterSeconds != nil)
	if err != nil {
		return d, record, err
	}
	next := gate.Unplaceable(d, rule, record, held, now)
	if next.State != gate.Retry {
		return next, record, nil
	}
	others, err := r.othersPending(ctx, s.wl)
	if err != nil || !others {
		return d, record, err
	}
	return next, record, nil
}

// count the time towards giving up, or stop that. It must outlive a restart: it is
// written when it starts and when it stops.
func (r *Reconciler) count(ctx context.Context, s *subject, record dispatch.Record, on bool) (dispatch.Record, error) {
	next := record.CountUnplaced(on, r.waitsSince(s), r.now())
	if next.UnplacedSince.Equal(record.UnplacedSince) {
		return record, nil
	}
	_, err := r.annotate(ctx, s.wl, next)
	return next, err
}

// yield gives the workload's quota to others: it sleeps for a moment, deactivated,
// for one that is merely evicted would be back before Kueue looks at the others.
// When to wake it stands in the same write, so that no restart forgets it.
func (r *Reconciler) yield(ctx context.Context, s *subject, d gate.Decision, record dispatch.Record) error {
	if err := r.setActive(ctx, s.wl, false, record.Yielded(r.waitsSince(s), r.now())); err != nil {
		return err
	}
	r.tracks.setReason(s.wl.UID, d.Reason)
	r.event(s.wl, false, d.Reason, d.Message)
	return nil
}

// wake a workload that yielded, and say how long it still sleeps. One that
// somebody else deactivated is left alone, also after somebody else woke it.
func (r *Reconciler) wake(ctx context.Context, wl *kueue.Workload) (time.Duration, error) {
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil || record.SleepsUntil.IsZero() || !wl.DeletionTimestamp.IsZero() {
		return 0, nil // an annotation that cannot be read is mended when a decision needs it
	}
	if wl.Spec.Active == nil || *wl.Spec.Active {
		_, err := r.annotate(ctx, wl, record.Woken())
		return 0, err
	}
	if left := record.SleepsUntil.Sub(r.now()); left > 0 {
		return left, nil
	}
	return 0, r.setActive(ctx, wl, true, record.Woken())
}

func (r *Reconciler) setActive(ctx context.Context, wl *kueue.Workload, active bool, d dispatch.Record) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": wl.ResourceVersion,
			"annotations":     map[string]string{v1alpha1.DispatchAnnotation: d.Encode()},
		},
		"spec": map[string]any{"active": active},
	})
	if err != nil {
		return err
	}
	u := bare(wl, "")
	if err := r.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), checkOwner); err != nil {
		return fmt.Errorf("set spec.active to %t: %w", active, err)
	}
	wl.Annotations, wl.Spec.Active = u.GetAnnotations(), &active
	r.wrote(wl, u)
	return nil
}
