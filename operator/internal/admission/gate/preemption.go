package gate

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// roomByPreemption adds to r the room that the i-th pod set gains if it preempts others. If the
// worker's queue has too little quota even then, Kueue there never admits the workload, whatever
// nodes are free: the room is no more than the pods with quota.
func (e *evaluation) roomByPreemption(r podRoom, c *Candidate, i int, view ledger.View) podRoom {
	p := e.facts.PodSets[i]
	r.shortage = e.quotaShortage(c, i, view)
	lower, borrowers := e.lowerPriorities(c, view), e.borrowers(c, i, view)
	r.lower = min(e.podsInPlaceOf(p, lower), r.shortage)
	r.borrowed = min(e.podsInPlaceOf(p, borrowers), r.shortage-r.lower)
	if empty := c.Shapes[i].EmptyFit; empty.Known { // victims on several nodes make no large node
		most := math.Floor(empty.Value) - float64(ledger.SlotsTaken(e.facts.PodSets[:i], p, 0))
		r.lower = min(r.lower, max(0, most-r.free))
		r.borrowed = min(r.borrowed, max(0, most-r.free-r.lower))
	}
	r.onNodes += r.lower + r.borrowed
	// Reservations that samples do not show yet use quota, also those of the cohort's other queues.
	taken := ledger.QuotaOf(e.facts.PodSets[:i], p).Plus(e.promisedQuota(e.drawsOnCohort(c), c, p, view))
	allowed, resource := c.Shapes[i].podsWithQuota(p, taken.Minus(quotaOfRunning(lower, p)).Minus(quotaOfRunning(borrowers, p)))
	if allowed >= float64(p.Pods) || e.rules.PreemptsUncounted {
		return r
	}
	if allowed = max(allowed, 0); allowed < r.onNodes {
		r.free, r.quota, r.quotaResource = allowed-r.lower-r.borrowed, Known(allowed), resource
	}
	r.pods = partialPods(p, allowed)
	return r
}

// quotaShortage returns for how many pods of the i-th pod set the worker's queue has no quota. Kueue
// on the worker preempts for these only: if the queue has quota, it admits the workload beside the
// running ones, whether a node has free devices or not. Without a known quota it is 0.
func (e *evaluation) quotaShortage(c *Candidate, i int, view ledger.View) float64 {
	p, quota := e.facts.PodSets[i], c.Shapes[i].Quota
	if !quota.Known {
		return 0
	}
	taken := ledger.SharedDevices(e.facts.PodSets[:i], p) + e.promisedQuota(e.drawsOnQueue(c), c, p, view).Devices
	available := math.Floor(max(quota.Value-float64(taken), 0) / float64(p.DevicesPerPod))
	return max(float64(p.Pods)-available, 0)
}

// lowerPriorities returns the running workloads of the same ClusterQueue with a lower priority.
func (e *evaluation) lowerPriorities(c *Candidate, view ledger.View) []*ledger.Running {
	if !e.rules.PreemptsLowerPriority {
		return nil
	}
	drawsOnQueue := e.drawsOnQueue(c)
	return slices.Collect(e.victims(c.Name, view, func(r *ledger.Running) bool {
		return drawsOnQueue(r.Queue) && r.Priority < e.rules.Rank.Priority
	}))
}

// borrowers returns the running workloads of other ClusterQueues in the cohort that hold borrowed
// quota which the i-th pod set may take back. Kueue on the worker does so if the whole workload fits
// into the nominal quota of its own queue.
func (e *evaluation) borrowers(c *Candidate, i int, view ledger.View) []*ledger.Running {
	p, metrics := e.facts.PodSets[i], c.Shapes[i]
	// Workloads of the own queue that were sent and are not measured yet use the nominal quota, too.
	needed := float64(ledger.SharedDevices(e.facts.PodSets, p) + e.promisedQuota(e.drawsOnQueue(c), c, p, view).Devices)
	if !metrics.NominalQuota.Known || metrics.NominalQuota.Value < needed {
		return nil
	}
	var victims []*ledger.Running
	for _, queue := range slices.Sorted(maps.Keys(metrics.Borrowed)) {
		victims = append(victims, e.reclaimable(c, queue, p, metrics.Borrowed[queue], view)...)
	}
	return victims
}

// reclaimable returns the workloads of another queue of the worker that Kueue on the worker preempts at most:
// the lowest priorities first, of these the last admitted first, as long as the queue borrows. The
// last one may free more devices than the queue borrows.
func (e *evaluation) reclaimable(c *Candidate, queue string, p shape.PodSet, borrowed Number, view ledger.View) []*ledger.Running {
	if !borrowed.Known {
		return nil
	}
	drawsOnQueue := e.drawsOnQueue(c)
	victims := slices.SortedFunc(e.victims(c.Name, view, func(r *ledger.Running) bool {
		isPermitted := e.rules.Reclaim.AnyPriority || r.Priority < e.rules.Rank.Priority
		return isPermitted && c.ClusterQueue(r.Queue) == queue && !drawsOnQueue(r.Queue) && slices.Contains(e.rules.Reclaim.Queues, r.Queue.Cluster)
	}), func(a, b *ledger.Running) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), b.Since.Compare(a.Since), cmp.Compare(a.UID, b.UID))
	})
	var freed int64
	for i, r := range victims {
		if float64(freed) >= borrowed.Value {
			return victims[:i]
		}
		freed += ledger.SharedDevices(r.PodSets, p)
	}
	return victims
}

// victims returns the running workloads of a cluster that isVictim selects.
func (e *evaluation) victims(cluster string, view ledger.View, isVictim func(*ledger.Running) bool) iter.Seq[*ledger.Running] {
	return func(yield func(*ledger.Running) bool) {
		for _, r := range view.Running(cluster) {
			if r.UID != e.facts.UID && isVictim(r) && !yield(r) {
				return
			}
		}
	}
}

// podsInPlaceOf returns how many pods could start on devices of the victims. Kueue on the worker
// preempts by quota, not by node, so devices of several small pods count as if they were on one
// node. With WholeNodes they do not count.
func (e *evaluation) podsInPlaceOf(p shape.PodSet, victims []*ledger.Running) float64 {
	var pods, small int64
	for _, r := range victims {
		for _, held := range r.PodSets {
			switch {
			case !ledger.MayShareDevices(held, p):
			case p.Share != nil:
				pods += ledger.SharesReturned(held, p)
			case held.DevicesPerPod >= p.DevicesPerPod:
				pods += held.Pods * (held.DevicesPerPod / p.DevicesPerPod)
			default:
				small += held.Devices()
			}
		}
	}
	if e.rules.WholeNodes {
		small = 0
	}
	return float64(pods + small/p.DevicesPerPod)
}
