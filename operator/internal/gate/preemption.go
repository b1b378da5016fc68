package gate

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// quotaShortage returns for how many pods of the i-th pod set the worker's queue has no quota. Kueue
// on the worker preempts for these only: if the queue has quota, it admits the workload beside the
// running ones, whether a node has free devices or not. Without a known quota it is 0.
func (e *evaluation) quotaShortage(c *Candidate, i int, view ledger.View) float64 {
	p, quota := e.facts.PodSets[i], c.Shapes[i].Quota
	if !quota.Known {
		return 0
	}
	taken := ledger.SharedDevices(e.facts.PodSets[:i], p) + view.Devices(c.Name, c.SampledAt, e.facts.UID, p)
	available := math.Floor(max(quota.Value-float64(taken), 0) / float64(p.DevicesPerPod))
	return max(float64(p.Pods)-available, 0)
}

// lowerPriorities returns how many pods could start on devices that running workloads of the same
// ClusterQueue with a lower priority hold.
func (e *evaluation) lowerPriorities(cluster string, p shape.PodSet, view ledger.View) float64 {
	if !e.rules.PreemptsLowerPriority {
		return 0
	}
	return podsInPlaceOf(p, e.victims(cluster, view, func(r *ledger.Running) bool {
		return r.ClusterQueue == e.facts.ClusterQueue && r.Priority < e.rules.Rank.Priority
	}))
}

// borrowers returns how many pods of the i-th pod set could start on devices that running
// workloads of other ClusterQueues in the cohort hold with borrowed quota. Kueue on the worker
// takes that quota back if the whole workload fits into the nominal quota of its own queue.
func (e *evaluation) borrowers(c *Candidate, i int, view ledger.View) float64 {
	p, metrics := e.facts.PodSets[i], c.Shapes[i]
	// The devices of workloads that were sent and are not measured yet use the nominal quota, too.
	needed := float64(ledger.SharedDevices(e.facts.PodSets, p) + view.Devices(c.Name, c.SampledAt, e.facts.UID, p))
	if !metrics.NominalQuota.Known || metrics.NominalQuota.Value < needed {
		return 0
	}
	var victims []*ledger.Running
	for _, queue := range e.rules.Reclaim.Queues {
		victims = append(victims, e.reclaimable(c.Name, queue, p, metrics.Borrowed[queue], view)...)
	}
	return podsInPlaceOf(p, slices.Values(victims))
}

// reclaimable returns the workloads of another queue that Kueue on the worker preempts at most:
// the lowest priorities first, of these the last admitted first, as long as the queue borrows. The
// last one may free more devices than the queue borrows.
func (e *evaluation) reclaimable(cluster, queue string, p shape.PodSet, borrowed Number, view ledger.View) []*ledger.Running {
	if !borrowed.Known {
		return nil
	}
	victims := slices.SortedFunc(e.victims(cluster, view, func(r *ledger.Running) bool {
		isPermitted := e.rules.Reclaim.AnyPriority || r.Priority < e.rules.Rank.Priority
		return isPermitted && r.ClusterQueue == queue && ledger.SharedDevices(r.PodSets, p) > 0
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
		running := view.Running(cluster)
		for i := range running {
			if r := &running[i]; r.UID != e.facts.UID && isVictim(r) && !yield(r) {
				return
			}
		}
	}
}

// podsInPlaceOf returns how many pods could start on devices of the victims. Kueue on the worker
// preempts by quota, not by node, so devices of several small pods count as if they were on one
// node.
func podsInPlaceOf(p shape.PodSet, victims iter.Seq[*ledger.Running]) float64 {
	var pods, small int64
	for r := range victims {
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
	return float64(pods + small/p.DevicesPerPod)
}
