package workload

import (
	"context"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// gated decides the check of a workload that a gate stands before, and
// nominates when every other check is Ready.
func (r *Reconciler) gated(ctx context.Context, s *subject) (reconcile.Result, error) {
	if r.tracks.behind(s.wl, r.now()) {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	if result, err := r.repair(ctx, s); result.RequeueAfter > 0 || err != nil {
		return result, err
	}
	check := s.check()
	r.watchRival(s)
	if !kueuestate.AcceptsCheckUpdate(s.wl) || s.wl.Status.ClusterName != nil {
		r.waiting.Remove(s.key())
		return reconcile.Result{}, nil
	}
	if err := r.mend(ctx, s); err != nil {
		return reconcile.Result{}, err
	}
	if len(s.own) > 1 {
		return reconcile.Result{}, r.tooMany(ctx, s)
	}
	switch check.State {
	case kueue.CheckStatePending:
		return r.decide(ctx, s)
	case kueue.CheckStateReady:
		r.waiting.Remove(s.key())
		if r.mayNominate(s) {
			return r.nominated(ctx, s)
		}
		return reconcile.Result{RequeueAfter: r.watchStock(s)}, nil
	case kueue.CheckStateRetry, kueue.CheckStateRejected: // Kueue's turn
	}
	return reconcile.Result{}, nil
}

// waitsSince is since when the gate keeps a workload waiting that holds quota. Kueue
// adds the check long before that, and may add it to a workload that holds quota.
func (r *Reconciler) waitsSince(s *subject) time.Time {
	since, held := reservedAt(s.wl)
	check := s.check()
	if !held || check.State != kueue.CheckStatePending {
		return r.now()
	}
	if check.LastTransitionTime.After(since) {
		return check.LastTransitionTime.Time
	}
	return since
}

// decide now, write the check and, when it is our turn, nominate. The ledger is
// read and debited in one step, so that a burst does not all go one way.
func (r *Reconciler) decide(ctx context.Context, s *subject) (reconcile.Result, error) {
	g, ok := r.gateOf(s)
	if !ok {
		r.waiting.Add(querycache.Key{Gate: s.gateName}, s.key(), r.waitsSince(s))
		return reconcile.Result{}, r.noGate(ctx, s)
	}
	record, err := dispatch.Decode(s.wl.Annotations)
	if err != nil {
		return reconcile.Result{}, err
	}
	now, nominate := r.now(), r.mayNominate(s)
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "PlacementGate " + g.Name + ": " + g.Problem}
	of := querycache.Key{Gate: g.Name}
	var clusters []string
	var putOff time.Duration
	if g.Problem == "" {
		facts := r.facts(ctx, s, &g.Spec)
		of = r.ask.KeyOf(g, facts)
		clusters = r.reserve(ctx, s, g, facts, record.Attempt+1, func(decided gate.Decision) []string {
			if d = decided; d.State == gate.Ready && nominate {
				d, putOff = r.putOff(s, d, timing.Seconds(widen(g).AfterSeconds, timing.DefaultWidenAfter))
			}
			switch {
			case d.State == gate.Ready && nominate:
				return r.sendTo(s, d)
			case d.State == gate.Ready && r.readySends(s):
				return d.Order[:1]
			}
			return nil
		})
	}
	if d.State == gate.Pending {
		d, record, err = r.unplaceable(ctx, s, g, d, record, now)
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	if d.State == gate.Ready && s.pins(g) {
		s.updates = s.pinned(g.Spec.PodSetUpdates, d.Order[0])
	}
	r.metrics.decided(g.Name, d)
	if err := r.writeCheck(ctx, s, d, record); err != nil {
		return reconcile.Result{}, err
	}
	if d.State != gate.Ready {
		r.waiting.Add(of, s.key(), r.waitsSince(s))
		return reconcile.Result{RequeueAfter: putOff}, nil
	}
	r.waiting.Remove(s.key())
	if !nominate {
		return reconcile.Result{}, nil
	}
	message := d.Message
	if left := clusters[max(len(s.wl.Status.NominatedClusterNames), slices.Index(clusters, d.Order[0])+1):]; len(left) > 0 {
		message += "; a copy of its last attempt may be left on " + strings.Join(left, ", ")
	}
	next := record.Begin(clusters, message, r.now())
	if err := r.write(ctx, s, next.Nominated, &next, "Nominated", message); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: timing.Seconds(widen(g).AfterSeconds, timing.DefaultWidenAfter)}, nil
}

// sendTo the choice, besides what is nominated already, which might have admitted the
// workload; after it where a copy of the last attempt may be left, if only room speaks
// against it: the copy itself may take that.
func (r *Reconciler) sendTo(s *subject, d gate.Decision) []string {
	clusters := slices.Clone(s.wl.Status.NominatedClusterNames)
	if !slices.Contains(clusters, d.Order[0]) {
		clusters = append(clusters, d.Order[0])
	}
	for _, c := range r.left(s) {
		may := slices.ContainsFunc(d.Verdicts, func(v gate.Verdict) bool {
			return v.Cluster == c && (v.Rejection == gate.RejectNone || v.Rejection == gate.RejectNoRoom || v.Rejection == gate.RejectNoModel)
		})
		if may && !slices.Contains(clusters, c) && len(clusters) < dispatch.MaxNominated {
			clusters = append(clusters, c)
		}
	}
	return clusters
}
