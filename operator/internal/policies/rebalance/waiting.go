package rebalance

import (
	"cmp"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// Waiting is a workload for which a gate holds a cluster.
type Waiting struct {
	Hold ledger.Hold
	// Inputs of the gate's decision about the workload. Nil if Problem is set.
	Inputs *gate.Inputs
	// Problem is why nothing can be decided for it. Empty means none.
	Problem string
}

// Movable is a workload without which the waiting one fits.
type Movable struct {
	*reclaim.Candidate
	// Inputs of the gate's decision about it. Nil if Problem is set.
	Inputs *gate.Inputs
	// Problem is why nothing is known of where it fits. Empty means none.
	Problem string
}

// Check sets the problem of a waiting workload that a move would not help, or for which the gate's
// metrics are not complete. source is the MetricsSource of the policy.
func (w *Waiting) Check(source string, now time.Time) {
	if w.Problem != "" {
		return
	}
	in, cluster := w.Inputs, w.Hold.Cluster
	switch {
	case w.Hold.Shadow:
		w.Problem = "hold.mode of PlacementGate " + w.Hold.Gate + " is Shadow, so that nothing would keep the room"
		return
	case in.Source != source:
		w.Problem = "PlacementGate " + w.Hold.Gate + " queries another MetricsSource"
		return
	case in.OwnFit:
		w.Problem = "PlacementGate " + w.Hold.Gate + " has its own fit query"
		return
	case slices.ContainsFunc(in.Facts.PodSets, func(p shape.PodSet) bool { return len(p.NodeLabels) > 0 }):
		w.Problem = "its pods need nodes with labels, and moves do not test these"
		return
	case len(in.Facts.Unmeasured) > 0:
		w.Problem = "it requests what the gate does not measure: " + in.Facts.Unmeasured[0]
		return
	}
	d := in.Decide(now)
	switch i := slices.IndexFunc(d.Verdicts, func(v gate.Verdict) bool { return v.Cluster == cluster }); {
	case d.Incomplete || in.Fleet.Incomplete:
		w.Problem = "the metrics of its gate are not complete"
	case in.AwaitsCheck != "":
		w.Problem = "its admission check " + in.AwaitsCheck + " is not Ready, without which it does not start"
	case d.State == gate.Ready:
		w.Problem = "it can start"
	case d.Join != "":
		w.Problem = d.Join + " has room for it and joins the MultiKueueConfig"
	case d.Hold == nil || d.Hold.Cluster != cluster || i < 0 || d.Verdicts[i].Rejection != gate.RejectNoRoom:
		w.Problem = "something else than room keeps it from " + cluster
	case d.Verdicts[i].Taints != "" && d.Verdicts[i].DeviceFit.Value > d.Verdicts[i].Fit.Value:
		w.Problem = "its pods do not tolerate taint " + d.Verdicts[i].Taints + " of nodes of " + cluster + ", and moves do not test taints"
	}
}

// hasOnTheWay reports whether the ledger has entries for the same devices on the held cluster, or
// credits of workloads that ended there: metrics do not show yet on which nodes.
func (w *Waiting) hasOnTheWay() bool {
	view, podSets, sampledAt := w.Inputs.View, w.Inputs.Facts.PodSets, time.Time{}
	if c := w.candidate(w.Hold.Cluster); c != nil {
		sampledAt = c.SampledAt
	}
	return slices.ContainsFunc(view.Entries(w.Hold.Cluster, sampledAt), func(e ledger.Entry) bool {
		return e.UID != w.Hold.UID && ledger.ShareDevices(e.PodSets, podSets)
	}) || slices.ContainsFunc(view.Credits(w.Hold.Cluster, sampledAt), func(c ledger.Credit) bool {
		return ledger.ShareDevices(c.PodSets, podSets)
	})
}

// candidate returns a cluster of the gate; nil = it has no such cluster.
func (w *Waiting) candidate(cluster string) *gate.Candidate {
	if i := slices.IndexFunc(w.Inputs.Candidates, func(c gate.Candidate) bool { return c.Name == cluster }); i >= 0 {
		return &w.Inputs.Candidates[i]
	}
	return nil
}

// maxShortlist bounds for how many workloads the gate's inputs are read.
const maxShortlist = 16

// Shortlist returns the workloads that may move and without which the waiting one fits on the held
// cluster, at most 16: the lowest priority first, of these the last started. Those that the API server
// refused to write come last.
func Shortlist(w *Waiting, candidates []*reclaim.Candidate, devices *Devices, bounds Bounds, now time.Time) []*reclaim.Candidate {
	if w.Problem != "" || w.hasOnTheWay() {
		return nil
	}
	var list []*reclaim.Candidate
	for _, c := range candidates {
		if bounds.mayMove(c, now) && c.Owner.Cluster == w.Hold.Cluster && c.UID != w.Hold.UID && c.Priority < w.Hold.Rank.Priority &&
			devices.areAllKnown(c) && w.fitsWithout(c, devices, now) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *reclaim.Candidate) int {
		return cmp.Or(a.RefusedAt.Compare(b.RefusedAt), cmp.Compare(a.Priority, b.Priority), b.RunningSince.Compare(a.RunningSince), cmp.Compare(a.Devices, b.Devices),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), maxShortlist)]
}

// fitsWithout reports whether the gate would send the waiting workload to the held cluster if c were
// gone. Both numbers of pods with room must suffice: that of the gate, and that of the policy's queries.
func (w *Waiting) fitsWithout(c *reclaim.Candidate, devices *Devices, now time.Time) bool {
	in := *w.Inputs
	in.Candidates = slices.Clone(in.Candidates)
	i := slices.IndexFunc(in.Candidates, func(candidate gate.Candidate) bool { return candidate.Name == w.Hold.Cluster })
	if i < 0 {
		return false
	}
	in.Candidates[i].Shapes = slices.Clone(in.Candidates[i].Shapes)
	for n := range in.Candidates[i].Shapes {
		if n < len(in.Facts.PodSets) {
			addDevices(&in.Candidates[i].Shapes[n], in.Facts, in.Facts.PodSets[n], c, devices)
		}
	}
	return certainChoice(in.Decide(now)) == w.Hold.Cluster
}

// addDevices adds to the metrics of a cluster what it has more for a pod set if c is gone. Quota returns
// only to c's own ClusterQueue, in the flavor that c had it from.
func addDevices(m *gate.ShapeMetrics, f shape.Facts, p shape.PodSet, c *reclaim.Candidate, devices *Devices) {
	if !m.Fit.Known {
		return
	}
	pods, more := devices.podsWithout(c, p)
	m.RequestFit = gate.Number{} // pods counts CPU and memory on each node
	m.Fit.Value = min(m.Fit.Value+float64(more), float64(pods))
	if m.Quota.Known && f.ClusterQueue == c.Queue && p.Resource == c.Resource && p.Flavor == c.Flavor {
		m.Quota.Value += float64(c.Devices)
	}
}

// certainChoice returns the cluster that a decision chooses, if the workload certainly fits there: nothing
// is preempted, no data is missing, and the whole workload fits. Empty means none. The gate decides
// again when the workload waits, and its random choice may then be another cluster. So each cluster that
// it might choose must be certain: all except those where the workload has to preempt, which come last.
func certainChoice(d gate.Decision) string {
	if d.Incomplete || len(d.Order) == 0 {
		return ""
	}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if isChoice := v.Cluster == d.Order[0] || v.Rejection == gate.RejectNone && !v.LacksQuota; isChoice && !isCertain(v) {
			return ""
		}
	}
	return d.Order[0]
}

// isCertain reports whether complete metrics show that the whole workload fits on a cluster.
func isCertain(v *gate.Verdict) bool {
	return v.Rejection == gate.RejectNone && !v.Preempts && !v.LacksQuota && !v.QuotaUnknown && !v.WithoutMetrics && v.PartialPods == 0 && len(v.Unmeasured) == 0 &&
		len(v.IgnoredRequirements) == 0 && len(v.UnknownPrerequisites) == 0
}

// Destination returns the cluster to which the gate would send a running workload now if it waited and
// could not stay. Empty means none.
func (m *Movable) Destination(now time.Time) string {
	if m.Problem != "" || m.Inputs.Fleet.Incomplete || len(m.Inputs.Facts.Unmeasured) > 0 {
		return ""
	}
	in := *m.Inputs
	in.Candidates = slices.Clone(in.Candidates)
	for i := range in.Candidates {
		if in.Candidates[i].Name == m.Owner.Cluster {
			in.Candidates[i].Exclude(gate.RejectAvoided, "was left for another cluster")
		}
	}
	in.Rules.Rank.Since, in.Rules.Incumbents = now, nil // it ranks behind all that wait
	return certainChoice(in.Decide(now))
}
