package workload

import (
	"context"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// reserve lets choose pick clusters by the gate's decision, and debits the picked
// that have room: where it has none the workload may never come to take anything.
// Without a gate that can tell, the decision is empty.
func (r *Reconciler) reserve(ctx context.Context, s *subject, g registry.Gate, facts shape.Facts, attempt int, choose func(gate.Decision) []string) []string {
	if g.Name == "" || g.Problem != "" || len(s.own) > 1 {
		return choose(gate.Decision{})
	}
	answers, fleet := r.ask.Results(ctx, g, facts)
	list := candidates(s, g, answers)
	now, rules := r.now(), gate.RulesOf(&g.Spec)
	rules.Incumbents = r.sentTo(s)
	var chosen []string
	sent, _ := dispatch.Decode(s.wl.Annotations)
	reserved, _ := reservedAt(s.wl)
	nominated := s.wl.Status.NominatedClusterNames
	r.ledger.Reserve(facts.UID, nominated, func(view ledger.View) []ledger.Entry {
		d := gate.Decide(facts, list, fleet, view, rules, attempt+kueuestate.CountEvictions(s.wl), now)
		chosen = choose(d)
		return debits(facts, chosen, d.Order, over(nominated, sent, reserved, now.Add(-r.ledger.TTL)), now)
	})
	return chosen
}

// debits of the clusters that were chosen and have room, but for those that had
// their time.
func debits(f shape.Facts, chosen, order, over []string, now time.Time) (entries []ledger.Entry) {
	for _, c := range chosen {
		if slices.Contains(order, c) && !slices.Contains(over, c) {
			entries = append(entries, Entry(f, c, now))
		}
	}
	return entries
}

// over are the clusters that did not take up a nomination of before then, if it is
// the present attempt's: nothing is held there any longer.
func over(nominated []string, sent dispatch.Record, reserved, then time.Time) []string {
	if !sent.IsCurrent(reserved) || sent.NominatedAt.After(then) {
		return nil
	}
	return nominated
}

func Entry(f shape.Facts, cluster string, now time.Time) ledger.Entry {
	return ledger.Entry{UID: f.UID, Workload: f.Key(), Cluster: cluster, PodSets: f.PodSets, DebitedAt: now}
}

// readySends says whether a check that gets Ready is our last word: nobody decides
// again where the workload goes. What Kueue pins goes where nobody tells.
func (r *Reconciler) readySends(s *subject) bool {
	return s.mk == "" || !r.nominate && !kueuestate.IsPinnedByKueue(s.wl)
}

// sent is where a check that got Ready sends the workload or, where Kueue's own
// dispatcher nominates, the best guess at that; empty = nowhere yet.
func (r *Reconciler) sent(s *subject) string {
	if !r.readySends(s) {
		return ""
	}
	return kueuestate.SentCluster(s.wl, s.own, "")
}

// sentTo are the clusters that the workload is nominated to or, where we stopped
// between the annotation and the nomination, was about to be; else those where a copy
// of its last attempt may be left.
func (r *Reconciler) sentTo(s *subject) []string {
	if sent := r.sent(s); sent != "" {
		return []string{sent}
	}
	d, err := dispatch.Decode(s.wl.Annotations)
	reserved, _ := reservedAt(s.wl)
	switch {
	case len(s.wl.Status.NominatedClusterNames) > 0 || err != nil || kueuestate.IsEvicted(s.wl):
		return s.wl.Status.NominatedClusterNames
	case d.IsCurrent(reserved):
		return d.Nominated
	}
	return r.left(s)
}
