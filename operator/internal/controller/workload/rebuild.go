package workload

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// rebuildOnce debits what was nominated before this process started.
func (r *Reconciler) rebuildOnce(ctx context.Context) error {
	r.rebuild.Lock()
	defer r.rebuild.Unlock()
	if r.rebuilt {
		return nil
	}
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		r.rebuildFrom(ctx, &list.Items[i])
	}
	r.rebuilt = true
	return nil
}

func (r *Reconciler) rebuildFrom(ctx context.Context, wl *kueue.Workload) {
	if !kueuestate.HoldsQuota(wl) {
		return
	}
	s, err := r.gather(ctx, wl)
	record, bad := dispatch.Decode(wl.Annotations)
	if err != nil || bad != nil || len(s.own) == 0 {
		return
	}
	// The models' keys stand in the gate, which the board may not hold yet.
	g := registry.Gate{}
	if known, ok := r.gateOf(s); ok {
		g = known
	} else if spec, ok := r.specOf(ctx, s.gateName); ok {
		g.Spec = spec
	}
	reserved, _ := reservedAt(wl)
	r.tracks.meet(s.key(), wl.UID)
	r.tracks.holds(wl.UID, reserved, r.now())
	facts, since := r.facts(ctx, s, &g.Spec), record.NominatedAt
	if phase, _ := record.Stage(g.Spec.Widen, r.now()); phase != dispatch.StageWait || !record.WidenedAt.IsZero() {
		r.tracks.late(wl.UID, record.Attempt) // counted by the process before
	}
	if cluster := s.placed(); cluster != "" {
		e := Entry(facts, cluster, admittedAt(wl, s.mk, since))
		r.tracks.run(wl.UID, e)
		r.holds(e, wl)
		return
	}
	sent := wl.Status.NominatedClusterNames
	if chosen := r.sent(s); chosen != "" {
		sent, since = []string{chosen}, s.check().LastTransitionTime.Time
	}
	if since.Before(reserved) || r.now().Sub(since) > r.ledger.TTL {
		return
	}
	for _, c := range sent {
		r.ledger.Debit(Entry(facts, c, since))
	}
}
