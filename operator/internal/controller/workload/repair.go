package workload

import (
	"context"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// repair an eviction that can't complete: the remote copy vanished, and Kueue
// waits for a nomination before it finishes. It returns how long to wait before
// it may be one.
func (r *Reconciler) repair(ctx context.Context, s *subject) (time.Duration, error) {
	if !r.nominate || s.mk == "" {
		return 0, nil
	}
	now := r.now()
	stuck, left := gate.Deadlocked(s.wl, s.mk, now)
	if !stuck {
		return left, nil
	}
	dispatch, _ := gate.DecodeDispatch(s.wl.Annotations)
	clusters := r.repairTo(ctx, s, dispatch, now)
	if len(clusters) == 0 {
		return gate.EvictionGrace, nil
	}
	message := "the eviction could not complete without a nomination: the remote copy is gone"
	for _, name := range s.own {
		if gate.FindCheck(s.wl, name).State != kueue.CheckStateReady {
			return time.Second, r.applyChecks(ctx, s, gate.Decision{State: gate.Ready, Reason: "EvictionRepair", Message: message})
		}
	}
	next := dispatch.Begin(clusters, message, now)
	return gate.EvictionGrace, r.write(ctx, s, clusters, &next, "EvictionRepair", message)
}

// repairTo is where a repair nominates: the nomination outlives the eviction, so
// the best cluster with room, if there is one. Otherwise blind to fit, for quota
// must not hang on room: where it ever was, or everywhere.
func (r *Reconciler) repairTo(ctx context.Context, s *subject, dispatch gate.Dispatch, now time.Time) []string {
	if g, ok := r.gateOf(s); ok && len(s.own) == 1 && g.Problem == "" {
		facts := r.facts(ctx, s, &g.Spec)
		answers, fleet := r.ask.answers(ctx, g, facts)
		list := candidates(s, g, answers)
		var order []string
		r.ledger.Reserve(func(view gate.View) []gate.Entry {
			order = gate.Decide(facts, list, fleet, view, gate.RulesOf(&g.Spec), dispatch.Attempt+1, now).Order
			if len(order) == 0 {
				return nil
			}
			return []gate.Entry{entry(facts, order[0], now)}
		})
		if len(order) > 0 {
			return order[:1]
		}
	}
	clusters := slices.DeleteFunc(slices.Clone(dispatch.Ever), func(c string) bool { return !slices.Contains(s.usable, c) })
	if len(clusters) > 0 {
		return clusters
	}
	return gate.Wider(gate.PhaseAll, nil, nil, nil, s.usable, nil)
}
