package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// gated decides the check of a workload that a gate stands before, and
// nominates when every other check is Ready.
func (r *Reconciler) gated(ctx context.Context, s *subject) (reconcile.Result, error) {
	if result, err := r.repair(ctx, s); result.RequeueAfter > 0 || err != nil {
		return result, err
	}
	check := s.check()
	r.watchRival(s)
	if !gate.MayWrite(s.wl) || s.wl.Status.ClusterName != nil {
		r.waiting.leave(s.key())
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
		r.waiting.leave(s.key())
		if !r.mayNominate(s) {
			return reconcile.Result{}, nil
		}
		if done, err := r.nominateAgain(ctx, s); done || err != nil {
			return reconcile.Result{RequeueAfter: gate.DefaultWidenAfter}, err
		}
		if len(s.wl.Status.NominatedClusterNames) > 0 {
			return r.widenIfDue(ctx, s)
		}
		return r.decide(ctx, s)
	case kueue.CheckStateRetry, kueue.CheckStateRejected: // Kueue's turn
	}
	return reconcile.Result{}, nil
}

// mayNominate says whether it is our turn: every check but ours and MultiKueue's is Ready.
func (r *Reconciler) mayNominate(s *subject) bool {
	return r.nominate && s.mk != "" && gate.WantsNomination(s.wl, s.mk) && gate.OthersReady(s.wl, s.own[0], s.mk)
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
		r.waiting.park(shape{gate: s.gateName}, s.key(), r.waitsSince(s))
		return reconcile.Result{}, r.noGate(ctx, s)
	}
	dispatch, err := gate.DecodeDispatch(s.wl.Annotations)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.now()
	nominate := r.mayNominate(s)
	var facts gate.Facts
	of := shape{gate: g.Name}
	var d gate.Decision
	var added []gate.Entry
	if g.Problem != "" {
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "PlacementGate " + g.Name + ": " + g.Problem}
	} else {
		facts = r.facts(ctx, s, &g.Spec)
		of = r.ask.shape(g, facts)
		answers, fleet := r.ask.answers(ctx, g, facts)
		list := candidates(s, g, answers)
		added = r.ledger.Reserve(func(view gate.View) []gate.Entry {
			d = gate.Decide(facts, list, fleet, view, gate.RulesOf(&g.Spec), dispatch.Attempt+1, now)
			if d.State != gate.Ready || !nominate && s.mk != "" {
				return nil
			}
			return []gate.Entry{entry(facts, d.Order[0], now)}
		})
	}
	if d.State == gate.Pending {
		d, dispatch, err = r.unplaceable(ctx, s, g, d, dispatch, now)
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	if d.State == gate.Ready && s.pins(g) {
		s.updates = s.pinned(g.Spec.PodSetUpdates, d.Order[0])
	}
	r.metrics.decided(g.Name, d)
	if err := r.writeCheck(ctx, s, d, dispatch); err != nil {
		r.ledger.Undo(added)
		return reconcile.Result{}, err
	}
	if d.State != gate.Ready {
		r.waiting.park(of, s.key(), r.waitsSince(s))
		return reconcile.Result{}, nil
	}
	r.waiting.leave(s.key())
	if !nominate {
		return reconcile.Result{}, nil
	}
	// What is nominated already stays: it might have admitted the workload.
	clusters := slices.Clone(s.wl.Status.NominatedClusterNames)
	if !slices.Contains(clusters, d.Order[0]) {
		clusters = append(clusters, d.Order[0])
	}
	next := dispatch.Begin(clusters, d.Message, r.now())
	if err := r.write(ctx, s, next.Nominated, &next, "Nominated", d.Message); err != nil {
		r.ledger.Undo(added)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: gate.Seconds(widen(g).AfterSeconds, gate.DefaultWidenAfter)}, nil
}

func entry(f gate.Facts, cluster string, now time.Time) gate.Entry {
	return gate.Entry{UID: f.UID, Workload: f.Key(), Cluster: cluster, PodSets: f.PodSets, Debited: now}
}

// noGate says so on the workload; a gate that was merely not read yet is no news.
func (r *Reconciler) noGate(ctx context.Context, s *subject) error {
	message := "PlacementGate " + s.gateName + " does not exist"
	if _, exists := r.specOf(ctx, s.gateName); exists || s.check().Message == message {
		return nil
	}
	return r.undecided(ctx, s, message)
}

// nominateAgain what somebody took off the list: a cluster that was revoked after
// it admitted runs its copy, and Kueue can't record that until it is nominated.
func (r *Reconciler) nominateAgain(ctx context.Context, s *subject) (bool, error) {
	dispatch, err := gate.DecodeDispatch(s.wl.Annotations)
	if err != nil {
		return false, err
	}
	now, nominated := r.now(), s.wl.Status.NominatedClusterNames
	revoked := dispatch.Revoked(nominated, s.check().LastTransitionTime.Time, now)
	clusters := gate.Dispatch{Ever: revoked}.Wider(gate.PhaseHeal, nominated, nil, s.usable, v1alpha1.Widen{})
	if len(clusters) == len(nominated) {
		return false, nil
	}
	message := "somebody revoked the nomination of " + strings.Join(revoked, ", ")
	r.board.SetRival(s.gateName, fmt.Sprintf("%s: %s", s.key(), message), now)
	next := dispatch.Widen(clusters, message, now)
	return true, r.write(ctx, s, clusters, &next, "NominatedAgain", message)
}

// widenIfDue looks after a nomination that no cluster has admitted yet. Without a
// gate the defaults hold, and where the workload fits is not known.
func (r *Reconciler) widenIfDue(ctx context.Context, s *subject) (reconcile.Result, error) {
	g, ok := r.gateOf(s)
	if _, exists := r.specOf(ctx, s.gateName); exists && !ok {
		return reconcile.Result{RequeueAfter: gate.DefaultWidenAfter}, nil
	}
	dispatch, err := gate.DecodeDispatch(s.wl.Annotations)
	if err != nil {
		return reconcile.Result{RequeueAfter: gate.DefaultWidenAfter}, nil
	}
	nominated := s.wl.Status.NominatedClusterNames
	if len(foreign(s.wl, dispatch)) > 0 {
		return reconcile.Result{}, nil
	}
	now := r.now()
	phase, after := dispatch.Phase(widen(g), now)
	if phase == gate.PhaseWait {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	if ok && r.tracks.late(s.wl.UID, dispatch.Attempt) {
		r.metrics.mispredicted(g.Name)
	}
	wider, added := r.reserve(ctx, s, dispatch.Attempt, func(order []string) []string {
		return dispatch.Wider(phase, nominated, order, s.usable, widen(g))
	})
	if len(wider) == len(nominated) {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	message := fmt.Sprintf("%s has not admitted it %s after its nomination (is the queue there, and has it quota?): now also %s",
		strings.Join(nominated, ", "), now.Sub(dispatch.NominatedAt).Round(time.Second), strings.Join(wider[len(nominated):], ", "))
	next := dispatch.Widen(wider, message, now)
	if err := r.write(ctx, s, wider, &next, string(phase), message); err != nil {
		r.ledger.Undo(added)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// foreign clusters: those that a workload was nominated to, or is on, without our doing.
func foreign(wl *kueue.Workload, dispatch gate.Dispatch) []string {
	clusters := slices.Clone(wl.Status.NominatedClusterNames)
	if wl.Status.ClusterName != nil {
		clusters = append(clusters, *wl.Status.ClusterName)
	}
	return slices.DeleteFunc(clusters, func(c string) bool { return slices.Contains(dispatch.Nominated, c) })
}

// watchRival tells the gate when somebody else nominates, as Kueue does unless it
// is told to leave that to us. What was nominated before the gate had its say, as
// when its check is new on the queue, says nothing.
func (r *Reconciler) watchRival(s *subject) {
	if !r.nominate || s.mk == "" || s.check().State != kueue.CheckStateReady || gate.Pinned(s.wl) {
		return
	}
	dispatch, err := gate.DecodeDispatch(s.wl.Annotations)
	if err != nil {
		return
	}
	if clusters := foreign(s.wl, dispatch); len(clusters) > 0 {
		r.board.SetRival(s.gateName, fmt.Sprintf("%s was nominated to %s, which was not our doing", s.key(), strings.Join(clusters, ", ")), r.now())
	}
}

// tooMany of our checks stand on one queue: none of them decides.
func (r *Reconciler) tooMany(ctx context.Context, s *subject) error {
	message := gate.TooMany(s.own)
	said := true
	for _, name := range s.own {
		c := gate.FindCheck(s.wl, name)
		if c.State != kueue.CheckStatePending {
			return nil
		}
		said = said && c.Message == message
	}
	if said {
		return nil
	}
	return r.undecided(ctx, s, message)
}

// undecided says why no gate decides, which is no time without a place.
func (r *Reconciler) undecided(ctx context.Context, s *subject, message string) error {
	dispatch, err := gate.DecodeDispatch(s.wl.Annotations)
	if err != nil {
		return err
	}
	if _, err := r.count(ctx, s, dispatch, false); err != nil {
		return err
	}
	return r.applyChecks(ctx, s, gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message})
}
