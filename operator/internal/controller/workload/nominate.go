package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// mayNominate says whether it is our turn: every check but ours and MultiKueue's is Ready.
func (r *Reconciler) mayNominate(s *subject) bool {
	return r.nominate && s.mk != "" && gate.WantsNomination(s.wl, s.mk) && gate.OthersReady(s.wl, s.own[0], s.mk)
}

// readySends says whether a check that gets Ready is our last word: nobody decides
// again where the workload goes. What Kueue pins goes where nobody tells.
func (r *Reconciler) readySends(s *subject) bool {
	return s.mk == "" || !r.nominate && !gate.Pinned(s.wl)
}

// sent is where a check that got Ready sends the workload or, where Kueue's own
// dispatcher nominates, the best guess at that; empty = nowhere yet.
func (r *Reconciler) sent(s *subject) string {
	if !r.readySends(s) {
		return ""
	}
	return gate.Sent(s.wl, s.own, "")
}

// nominated looks after the nominations of a workload whose turn has come.
func (r *Reconciler) nominated(ctx context.Context, s *subject) (reconcile.Result, error) {
	if done, err := r.nominateAgain(ctx, s); done || err != nil {
		return reconcile.Result{RequeueAfter: gate.DefaultWidenAfter}, err
	}
	if len(s.wl.Status.NominatedClusterNames) == 0 {
		return r.decide(ctx, s)
	}
	return r.widenIfDue(ctx, s)
}

// nominateAgain what somebody took off the list: a cluster that was revoked after
// it admitted runs its copy, and Kueue can't record that until it is nominated.
func (r *Reconciler) nominateAgain(ctx context.Context, s *subject) (bool, error) {
	dispatch, err := gate.DecodeDispatch(s.wl.Annotations)
	if err != nil {
		return false, err
	}
	now, nominated := r.now(), s.wl.Status.NominatedClusterNames
	revoked := dispatch.Revoked(nominated, r.tracks.see(s.wl.UID, nominated))
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
	dispatch, _ := gate.DecodeDispatch(s.wl.Annotations) // one that can't be read is begun anew
	now, nominated := r.now(), s.wl.Status.NominatedClusterNames
	reserved, _ := reservedAt(s.wl)
	if !dispatch.Current(reserved) || len(dispatch.Foreign(nominated)) > 0 {
		next := dispatch.Adopt(nominated, reserved, now)
		r.reserve(ctx, s, g, r.facts(ctx, s, &g.Spec), next.Attempt, func(gate.Decision) []string { return nominated })
		_, err := r.annotate(ctx, s.wl, next)
		return reconcile.Result{RequeueAfter: gate.Seconds(widen(g).AfterSeconds, gate.DefaultWidenAfter)}, err
	}
	phase, after := dispatch.Phase(widen(g), now)
	if phase == gate.PhaseWait {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	if ok && r.tracks.late(s.wl.UID, dispatch.Attempt) {
		r.metrics.mispredicted(g.Name)
	}
	wider := r.reserve(ctx, s, g, r.facts(ctx, s, &g.Spec), dispatch.Attempt, func(d gate.Decision) []string {
		return dispatch.Wider(phase, nominated, d.Order, s.usable, widen(g))
	})
	if len(wider) == len(nominated) {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	message := fmt.Sprintf("%s has not admitted it %s after its nomination (is the queue there, and has it quota?): now also %s",
		strings.Join(nominated, ", "), now.Sub(dispatch.NominatedAt).Round(time.Second), strings.Join(wider[len(nominated):], ", "))
	next := dispatch.Widen(wider, message, now)
	return reconcile.Result{RequeueAfter: after}, r.write(ctx, s, wider, &next, string(phase), message)
}

// reserve lets choose pick clusters by the gate's decision, and debits the picked
// that have room: where it has none the workload may never come to take anything.
// Without a gate that can tell, the decision is empty.
func (r *Reconciler) reserve(ctx context.Context, s *subject, g gate.Gate, facts gate.Facts, attempt int, choose func(gate.Decision) []string) []string {
	if g.Name == "" || g.Problem != "" || len(s.own) > 1 {
		return choose(gate.Decision{})
	}
	answers, fleet := r.ask.answers(ctx, g, facts)
	list := candidates(s, g, answers)
	now, rules := r.now(), gate.RulesOf(&g.Spec)
	rules.Keep = r.sentTo(s)
	var chosen []string
	sent, _ := gate.DecodeDispatch(s.wl.Annotations)
	reserved, _ := reservedAt(s.wl)
	nominated := s.wl.Status.NominatedClusterNames
	r.ledger.Reserve(facts.UID, nominated, func(view gate.View) []gate.Entry {
		d := gate.Decide(facts, list, fleet, view, rules, attempt+gate.Evictions(s.wl), now)
		chosen = choose(d)
		return debits(facts, chosen, d.Order, over(nominated, sent, reserved, now.Add(-r.ledger.TTL)), now)
	})
	return chosen
}

// debits of the clusters that were chosen and have room, but for those that had
// their time.
func debits(f gate.Facts, chosen, order, over []string, now time.Time) (entries []gate.Entry) {
	for _, c := range chosen {
		if slices.Contains(order, c) && !slices.Contains(over, c) {
			entries = append(entries, entry(f, c, now))
		}
	}
	return entries
}

// over are the clusters that did not take up a nomination of before then, if it is
// the present attempt's: nothing is held there any longer.
func over(nominated []string, sent gate.Dispatch, reserved, then time.Time) []string {
	if !sent.Current(reserved) || sent.NominatedAt.After(then) {
		return nil
	}
	return nominated
}

// sentTo are the clusters that the workload is nominated to or, where we stopped
// between the annotation and the nomination, was about to be; else those where a copy
// of its last attempt may be left.
func (r *Reconciler) sentTo(s *subject) []string {
	if sent := r.sent(s); sent != "" {
		return []string{sent}
	}
	d, err := gate.DecodeDispatch(s.wl.Annotations)
	reserved, _ := reservedAt(s.wl)
	switch {
	case len(s.wl.Status.NominatedClusterNames) > 0 || err != nil || gate.IsEvicted(s.wl):
		return s.wl.Status.NominatedClusterNames
	case d.Current(reserved):
		return d.Nominated
	}
	return r.tracks.left(s.wl.UID, reserved)
}

func entry(f gate.Facts, cluster string, now time.Time) gate.Entry {
	return gate.Entry{UID: f.UID, Workload: f.Key(), Cluster: cluster, PodSets: f.PodSets, Debited: now}
}
