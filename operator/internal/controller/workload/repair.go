package workload

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// repair an eviction that can't complete: the remote copy vanished, and Kueue
// waits for a cluster to admit another before it finishes. The result says when to
// look again where there is, or soon may be, something to repair.
func (r *Reconciler) repair(ctx context.Context, s *subject) (reconcile.Result, error) {
	if !r.nominate || s.mk == "" {
		return reconcile.Result{}, nil
	}
	now := r.now()
	stuck, left := gate.Deadlocked(s.wl, s.mk, now)
	if !stuck {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	result := reconcile.Result{RequeueAfter: gate.EvictionGrace}
	if len(s.usable) == 0 || !gate.OthersReady(s.wl, append(slices.Clone(s.own), s.mk)...) {
		return result, nil
	}
	message := "the eviction could not complete without a nomination: the remote copy is gone"
	if !gate.OthersReady(s.wl, s.mk) {
		return result, r.applyChecks(ctx, s, gate.Decision{State: gate.Ready, Reason: "EvictionRepair", Message: message})
	}
	if len(s.wl.Status.NominatedClusterNames) > 0 {
		return r.widenIfDue(ctx, s)
	}
	dispatch, _ := gate.DecodeDispatch(s.wl.Annotations)
	clusters, added := r.reserve(ctx, s, dispatch.Attempt+1, func(order []string) []string { return repairTo(s, dispatch, order) })
	next := dispatch.Begin(clusters, message, now)
	if err := r.write(ctx, s, clusters, &next, "EvictionRepair", message); err != nil {
		r.ledger.Undo(added)
		return reconcile.Result{}, err
	}
	return result, nil
}

// repairTo is where a repair nominates: the nomination outlives the eviction, so
// the best cluster with room, if there is one. Otherwise blind to fit, for quota
// must not hang on room: where it ever was, or everywhere.
func repairTo(s *subject, dispatch gate.Dispatch, order []string) []string {
	if len(order) > 0 {
		return order[:1]
	}
	clusters := slices.DeleteFunc(slices.Clone(dispatch.Ever), func(c string) bool { return !slices.Contains(s.usable, c) })
	if len(clusters) > 0 {
		return clusters
	}
	return gate.Dispatch{}.Wider(gate.PhaseAll, nil, nil, s.usable, v1alpha1.Widen{})
}

// reserve lets choose pick clusters, given those with room, best first, and debits
// the picked that have room and are new: where it has none the workload may never
// come to take anything. Without a gate that can tell, nothing has room.
func (r *Reconciler) reserve(ctx context.Context, s *subject, attempt int, choose func(order []string) []string) ([]string, []gate.Entry) {
	g, ok := r.gateOf(s)
	if !ok || g.Problem != "" || len(s.own) > 1 {
		return choose(nil), nil
	}
	facts := r.facts(ctx, s, &g.Spec)
	answers, fleet := r.ask.answers(ctx, g, facts)
	list := candidates(s, g, answers)
	now := r.now()
	var chosen []string
	added := r.ledger.Reserve(func(view gate.View) (debits []gate.Entry) {
		d := gate.Decide(facts, list, fleet, view, gate.RulesOf(&g.Spec), attempt, now)
		chosen = choose(d.Order)
		for _, c := range chosen {
			if slices.Contains(d.Order, c) {
				debits = append(debits, entry(facts, c, now))
			}
		}
		return debits
	})
	return chosen, added
}
