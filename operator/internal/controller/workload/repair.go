package workload

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// repair an eviction that can't complete: the remote copy vanished, and Kueue
// waits for a cluster to admit another before it finishes. The result says when to
// look again where there is, or soon may be, something to repair.
func (r *Reconciler) repair(ctx context.Context, s *subject) (reconcile.Result, error) {
	if !r.nominate || s.mk == "" {
		return reconcile.Result{}, nil
	}
	now := r.now()
	stuck, left := kueuestate.IsEvictionStuck(s.wl, s.mk, now)
	if !stuck {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	result := reconcile.Result{RequeueAfter: timing.EvictionGrace}
	if len(s.usable) == 0 || !kueuestate.OtherChecksReady(s.wl, append(slices.Clone(s.own), s.mk)...) {
		return result, nil
	}
	message := "the eviction could not complete without a nomination: the remote copy is gone"
	if !kueuestate.OtherChecksReady(s.wl, s.mk) {
		return result, r.writeChecks(ctx, s, gate.Decision{State: gate.Ready, Reason: "EvictionRepair", Message: message})
	}
	if len(s.wl.Status.NominatedClusterNames) > 0 {
		return r.widenIfDue(ctx, s)
	}
	record, _ := dispatch.Decode(s.wl.Annotations)
	g, _ := r.gateOf(s)
	clusters := r.reserve(ctx, s, g, r.facts(ctx, s, &g.Spec), record.Attempt+1, func(d gate.Decision) []string { return repairTo(s, record, d.Order) })
	next := record.Begin(clusters, message, now)
	return result, r.write(ctx, s, clusters, &next, "EvictionRepair", message)
}

// repairTo is where a repair nominates: the nomination outlives the eviction, so
// the best cluster with room, if there is one. Otherwise blind to fit, for quota
// must not hang on room: where it ever was, or everywhere.
func repairTo(s *subject, record dispatch.Record, order []string) []string {
	if len(order) > 0 {
		return order[:1]
	}
	clusters := slices.DeleteFunc(slices.Clone(record.EverNominated), func(c string) bool { return !slices.Contains(s.usable, c) })
	if len(clusters) > 0 {
		return clusters
	}
	return dispatch.Record{}.WidenedList(dispatch.StageAll, nil, nil, s.usable, v1alpha1.Widen{})
}
