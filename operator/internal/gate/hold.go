package gate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
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
	// MoveAfter is the time after which a hold whose workload has no known start moves to another
	// cluster. 0: it never moves.
	MoveAfter time.Duration
}

func holdRulesOf(spec *v1alpha1.PlacementGateSpec) HoldRules {
	return HoldRules{
		Mode:      cmp.Or(spec.Hold.Mode, v1alpha1.HoldEnforce),
		After:     timing.Seconds(spec.Hold.AfterSeconds, timing.DefaultHoldAfter),
		Aging:     timing.Seconds(spec.Hold.AgingSeconds, timing.DefaultAging),
		MoveAfter: time.Duration(ptr.Deref(spec.Hold.MoveAfterSeconds, 0)) * time.Second,
	}
}

// bindingHold returns the hold that keeps the workload from the cluster, or nil. A hold binds
// workloads that rank behind its own and might use the same devices, unless they were sent to
// the cluster already or certainly end before the held workload can start. If the held workload
// waits for quota only, the hold binds no workloads of other quota.
func (e *evaluation) bindingHold(cluster string, view ledger.View) *ledger.Hold {
	holds := view.Holds()
	for i := range holds {
		h := &holds[i]
		if h.Cluster == cluster && e.isBoundBy(h) {
			return h
		}
	}
	return nil
}

func (e *evaluation) isBoundBy(h *ledger.Hold) bool {
	switch {
	case h.Shadow, h.UID == e.facts.UID, !ledger.ShareDevices(h.PodSets, e.facts.PodSets), slices.Contains(e.rules.Incumbents, h.Cluster):
		return false
	case len(h.Queues) > 0 && !slices.Contains(h.Queues, e.facts.ClusterQueue):
		return false
	case e.rules.Rank.Before(h.Rank, e.rules.Hold.Aging, e.now):
		return false
	}
	endsBefore := !h.StartsBy.IsZero() && e.rules.RunsFor > 0 && !e.now.Add(timing.StartupAllowance+e.rules.RunsFor).After(h.StartsBy)
	return !endsBefore
}

// hold returns the hold for a workload that fits nowhere, or nil:
//  1. The workload has waited for the time After, and metrics are complete.
//  2. No workload of the gate that ranks before has a hold for the same devices.
//  3. A cluster with fresh samples has too little room, but enough if it were empty.
//
// A cluster that is held for the workload stays held as long as it qualifies, or, if the start of
// the workload is unknown, for the time MoveAfter: then the next cluster by name is held. Otherwise
// the gate holds the cluster where the workload is expected to fit soonest.
func (e *evaluation) hold(d Decision, candidates []Candidate, view ledger.View) *ledger.Hold {
	rules := e.rules.Hold
	if d.State != Pending || d.Reason != ReasonNoRoom && d.Reason != ReasonJoining || d.Incomplete || rules.Mode == v1alpha1.HoldOff || e.now.Sub(e.rules.Rank.Since) < rules.After {
		return nil
	}
	h := ledger.Hold{Gate: rules.Gate, UID: e.facts.UID, Workload: e.facts.Key(), PodSets: e.facts.PodSets, Rank: e.rules.Rank,
		Since: e.now, Shadow: rules.Mode == v1alpha1.HoldShadow}
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
		if rules.MoveAfter > 0 && start.by.IsZero() && e.now.Sub(h.Since) >= rules.MoveAfter {
			start = nextByName(starts, h.Cluster)
		}
	}
	if start.cluster != h.Cluster {
		h.Cluster, h.Since = start.cluster, e.now
	}
	h.StartsBy, h.Queues = start.by, start.queues
	return &h
}

// nextByName returns the start on the first cluster after the named one in the order of names, which
// begins again at its end. starts must not be empty.
func nextByName(starts []*expectedStart, cluster string) *expectedStart {
	return slices.MinFunc(starts, func(a, b *expectedStart) int {
		aWraps, bWraps := a.cluster <= cluster, b.cluster <= cluster
		if aWraps != bWraps {
			if aWraps {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.cluster, b.cluster)
	})
}

// expectedStart is how soon a cluster could have room for a workload that it would be held for.
type expectedStart struct {
	cluster string
	// by is the latest start, if the durations of the workloads there are known; zero = unknown.
	by time.Time
	// missing is the part of the pods without room, and waste the devices that stand idle if
	// the cluster is emptied.
	missing, waste float64
	// queues share the quota that the workload waits for, if the cluster has free devices for it.
	// nil means that devices are missing.
	queues []string
}

// compare orders by the known start, then by the missing part, then by waste.
func (s *expectedStart) compare(other *expectedStart) int {
	switch {
	case s.by.IsZero() != other.by.IsZero():
		if s.by.IsZero() {
			return 1
		}
		return -1
	case !s.by.Equal(other.by):
		return s.by.Compare(other.by)
	}
	return cmp.Or(cmp.Compare(s.waste, other.waste), cmp.Compare(s.missing, other.missing), cmp.Compare(s.cluster, other.cluster))
}

// expectedStart returns nil if the cluster could not take the workload even if it were empty, if
// the worker's queue could not, or if something other than room excludes it.
func (e *evaluation) expectedStart(c *Candidate, v Verdict, view ledger.View) *expectedStart {
	if v.Rejection != RejectNoRoom || v.WithoutMetrics || c.Outside {
		return nil
	}
	s := &expectedStart{cluster: c.Name, queues: e.quotaSharers()}
	for i, p := range e.facts.PodSets {
		empty := c.Shapes[i].EmptyFit
		taken := float64(ledger.SlotsTaken(e.facts.PodSets[:i], p, 0))
		if !empty.Known || math.Floor(empty.Value)-taken < float64(p.Pods) {
			return nil
		}
		if !e.mayGetQuota(c, i, view) {
			return nil
		}
		room := e.room(c, i, view)
		if room.onNodes < float64(p.Pods) {
			s.queues = nil
		}
		free := room.free
		s.missing = max(s.missing, (float64(p.Pods)-free)/float64(p.Pods))
		s.waste = max(s.waste, empty.Value*float64(p.DevicesPerPod))
		by := e.startsBy(p, free, empty.Value, view.Running(c.Name))
		if i > 0 && (by.IsZero() || s.by.IsZero()) {
			s.by = time.Time{}
		} else if by.After(s.by) {
			s.by = by
		}
	}
	return s
}

// mayGetQuota reports whether the worker's queue can have enough quota for the i-th pod set once
// the workloads of the queue, and of the others in its cohort, that the hub sent to the cluster have
// ended or were preempted. Quota that other workloads hold there does not count: the gate cannot
// keep them from taking it again.
func (e *evaluation) mayGetQuota(c *Candidate, i int, view ledger.View) bool {
	p, quota := e.facts.PodSets[i], c.Shapes[i].Quota
	if e.rules.PreemptsUncounted || !quota.Known {
		return true
	}
	held, sharers := quota.Value-float64(ledger.SharedDevices(e.facts.PodSets[:i], p)), e.quotaSharers()
	for _, r := range view.Running(c.Name) {
		if slices.Contains(sharers, r.ClusterQueue) {
			held += float64(ledger.SharedDevices(r.PodSets, p))
		}
	}
	return held >= float64(p.Devices())
}

// startsBy returns the latest time at which pods of one pod set fit, from the known ends of
// the workloads that run on the cluster. Zero means unknown. A pod at least as large as p
// returns whole slots when it ends. Smaller pods return them only when all of them have ended,
// because their nodes are unknown.
func (e *evaluation) startsBy(p shape.PodSet, free, empty float64, running []ledger.Running) time.Time {
	ends := slices.Clone(running)
	ends = slices.DeleteFunc(ends, func(r ledger.Running) bool { return !ledger.ShareDevices(r.PodSets, []shape.PodSet{p}) })
	slices.SortFunc(ends, func(a, b ledger.Running) int {
		if a.EndsBy.IsZero() != b.EndsBy.IsZero() { // unknown ends last
			return -a.EndsBy.Compare(b.EndsBy)
		}
		return a.EndsBy.Compare(b.EndsBy)
	})
	for i, r := range ends {
		if r.EndsBy.IsZero() {
			return time.Time{}
		}
		for _, held := range r.PodSets {
			switch {
			case !ledger.MayShareDevices(held, p):
			case p.Share != nil:
				free += float64(ledger.SharesReturned(held, p))
			default:
				free += float64(held.Pods * (held.DevicesPerPod / p.DevicesPerPod))
			}
		}
		if i == len(ends)-1 {
			free = empty
		}
		if free >= float64(p.Pods) {
			return r.EndsBy
		}
	}
	return time.Time{}
}
