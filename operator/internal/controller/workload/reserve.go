package workload

import (
	"context"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

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

func entry(f gate.Facts, cluster string, now time.Time) gate.Entry {
	return gate.Entry{UID: f.UID, Workload: f.Key(), Cluster: cluster, PodSets: f.PodSets, Debited: now}
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
	return r.left(s)
}
