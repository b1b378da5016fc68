package gate

import (
	"cmp"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

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

// compare orders by the known start, then by waste, then by the missing part.
func (s *expectedStart) compare(other *expectedStart) int {
	return cmp.Or(compareKnownFirst(s.by, other.by), cmp.Compare(s.waste, other.waste), cmp.Compare(s.missing, other.missing), cmp.Compare(s.cluster, other.cluster))
}

// compareKnownFirst orders times. Unknown ones, which are zero, come last.
func compareKnownFirst(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// expectedStart returns nil if the cluster could not take the workload even if it were empty, if
// the worker's queue could not, or if something other than room excludes it.
func (e *evaluation) expectedStart(c *Candidate, v Verdict, view ledger.View) *expectedStart {
	if v.Rejection != RejectNoRoom || c.Outside {
		return nil
	}
	s, isUnknown := &expectedStart{cluster: c.Name, queues: append([]string{c.ClusterQueue(e.queue())}, e.rules.CohortQueues...)}, false
	for i, p := range e.facts.PodSets {
		if !c.couldHoldSet(e.facts.PodSets, i) || !e.mayGetQuota(c, i, view) {
			return nil
		}
		empty := c.Shapes[i].EmptyFit
		room := e.room(c, i, view)
		if room.onNodes < float64(p.Pods) {
			s.queues = nil
		}
		free := room.free
		s.missing = max(s.missing, (float64(p.Pods)-free)/float64(p.Pods))
		s.waste = max(s.waste, empty.Value*float64(p.DevicesPerPod))
		if free >= float64(p.Pods) {
			continue // these pods wait for no running workload
		}
		by := e.startsBy(p, free, empty.Value, view.Running(c.Name))
		isUnknown = isUnknown || by.IsZero()
		if by.After(s.by) {
			s.by = by
		}
	}
	if isUnknown {
		s.by = time.Time{}
	}
	return s
}

// mayGetQuota reports whether the worker's queue can have enough quota for the i-th pod set once
// the workloads of the queue, and of the others in its cohort, that the hub sent to the cluster have
// ended or were preempted. Quota that other workloads hold there does not count: the gate cannot
// keep them from taking it again.
func (e *evaluation) mayGetQuota(c *Candidate, i int, view ledger.View) bool {
	if e.rules.PreemptsUncounted {
		return true
	}
	p := e.facts.PodSets[i]
	held := view.HeldQuota(e.drawsOnCohort(c), c.Name, sampleTimes(c), e.facts.UID, p)
	pods, _ := c.Shapes[i].podsWithQuota(p, ledger.QuotaOf(e.facts.PodSets[:i], p).Minus(held))
	return pods >= float64(p.Pods)
}

// startsBy returns the latest time at which pods of one pod set fit, from the known ends of
// the workloads that run on the cluster. Zero means unknown. A pod at least as large as p
// returns whole slots when it ends. Smaller pods return them only when all of them have ended,
// because their nodes are unknown.
func (e *evaluation) startsBy(p shape.PodSet, free, empty float64, running []*ledger.Running) time.Time {
	ends := slices.Clone(running)
	ends = slices.DeleteFunc(ends, func(r *ledger.Running) bool { return !ledger.ShareDevices(r.PodSets, []shape.PodSet{p}) })
	// A pod that waits for a workload with an unknown end has no known start.
	slices.SortFunc(ends, func(a, b *ledger.Running) int { return compareKnownFirst(a.EndsBy, b.EndsBy) })
	for i, r := range ends {
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
