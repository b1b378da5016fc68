package gate

import (
	"cmp"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// HoldRules state when a gate holds a cluster for a workload that waits.
type HoldRules struct {
	// Gate is the gate's name.
	Gate string
	Mode v1alpha1.HoldMode
	// After is the waiting time from which a workload may have a cluster held.
	After time.Duration
	// Aging is the waiting time from which a workload ranks before all that began to wait
	// later, whatever their priority.
	Aging time.Duration
}

func holdRulesOf(spec *v1alpha1.PlacementGateSpec) HoldRules {
	return HoldRules{
		Mode:  cmp.Or(spec.Hold.Mode, v1alpha1.HoldEnforce),
		After: timing.Seconds(spec.Hold.AfterSeconds, timing.DefaultHoldAfter),
		Aging: timing.Seconds(spec.Hold.AgingSeconds, timing.DefaultAging),
	}
}

// bindingHold returns the hold that keeps the workload from the cluster, or nil. A hold binds
// workloads that rank behind its own and might use the same devices, unless they were sent to
// the cluster already or certainly end before the held workload can start. If the held workload
// waits for quota only, the hold binds no workloads of other quota.
func (e *evaluation) bindingHold(c *Candidate, view ledger.View) *ledger.Hold {
	holds := view.Holds()
	for i := range holds {
		h := &holds[i]
		if h.Cluster == c.Name && e.isBoundBy(h, c) {
			return h
		}
	}
	return nil
}

func (e *evaluation) isBoundBy(h *ledger.Hold, c *Candidate) bool {
	switch {
	case h.Shadow, h.UID == e.facts.UID, !ledger.ShareDevices(h.PodSets, e.facts.PodSets), slices.Contains(e.rules.Incumbents, h.Cluster):
		return false
	case len(h.Queues) > 0 && !slices.Contains(h.Queues, c.ClusterQueue(e.queue())) && !slices.Contains(h.Queues, e.facts.ClusterQueue):
		return false
	case e.rules.Rank.Before(h.Rank, e.rules.Hold.Aging, e.now):
		return false
	}
	// An unknown start is zero, and so before every end.
	return e.rules.RunsFor == 0 || e.now.Add(timing.StartupAllowance+e.rules.RunsFor).After(h.StartsBy)
}

// hold returns the hold for a workload that fits nowhere, or nil:
//  1. The workload has waited for the time After, and metrics are complete.
//  2. No workload of the gate that ranks before has a hold for the same devices.
//  3. A cluster with fresh samples has too little room, but enough if it were empty.
//
// A cluster that is held for the workload stays held as long as it qualifies. Otherwise the gate holds
// the cluster where the workload is expected to fit soonest.
func (e *evaluation) hold(d Decision, candidates []Candidate, view ledger.View) *ledger.Hold {
	rules := e.rules.Hold
	if d.Reason != ReasonNoRoom && d.Reason != ReasonJoining || d.Incomplete || rules.Mode == v1alpha1.HoldOff || e.now.Sub(e.rules.Rank.Since) < rules.After {
		return nil
	}
	h := ledger.Hold{Gate: rules.Gate, UID: e.facts.UID, Workload: e.facts.Key(), PodSets: e.facts.PodSets, Rank: e.rules.Rank,
		Shadow: rules.Mode == v1alpha1.HoldShadow}
	for _, other := range view.Holds() {
		switch {
		case other.UID == h.UID:
			h.Cluster, h.Since = other.Cluster, other.Since
		case other.Gate == h.Gate && ledger.ShareDevices(other.PodSets, h.PodSets) && other.Rank.Before(h.Rank, rules.Aging, e.now):
			return nil
		}
	}
	var starts []*expectedStart
	for i := range candidates {
		if start := e.expectedStart(&candidates[i], d.Verdicts[i], view); start != nil {
			starts = append(starts, start)
		}
	}
	if len(starts) == 0 {
		return nil
	}
	start := slices.MinFunc(starts, (*expectedStart).compare)
	if held := slices.IndexFunc(starts, func(s *expectedStart) bool { return s.cluster == h.Cluster }); held >= 0 {
		start = starts[held]
	}
	if start.cluster != h.Cluster {
		h.Cluster, h.Since = start.cluster, e.now
	}
	h.StartsBy, h.Queues = start.by, start.queues
	return &h
}
