package gate

import (
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// lowerPriorities returns how many pods could start on devices that running workloads of the same
// ClusterQueue with a lower priority hold.
func (e *evaluation) lowerPriorities(cluster string, p shape.PodSet, view ledger.View) float64 {
	if !e.rules.PreemptsLowerPriority {
		return 0
	}
	return e.podsInPlaceOf(cluster, p, view, func(r *ledger.Running) bool {
		return r.ClusterQueue == e.facts.ClusterQueue && r.Priority < e.rules.Rank.Priority
	})
}

// borrowers returns how many pods of the i-th pod set could start on devices that running
// workloads of other ClusterQueues in the cohort hold with borrowed quota. Kueue on the worker
// takes that quota back if the whole workload fits into the nominal quota of its own queue.
func (e *evaluation) borrowers(c *Candidate, i int, view ledger.View) float64 {
	p, metrics := e.facts.PodSets[i], c.Shapes[i]
	// The devices of workloads that were sent and are not measured yet use the nominal quota, too.
	needed := float64(p.Devices() + ledger.SharedDevices(e.facts.PodSets[:i], p) + view.Devices(c.Name, c.SampledAt, e.facts.UID, p))
	if len(e.rules.Reclaim.Queues) == 0 || !metrics.NominalQuota.Known || !metrics.Borrowed.Known || metrics.NominalQuota.Value < needed {
		return 0
	}
	pods := e.podsInPlaceOf(c.Name, p, view, func(r *ledger.Running) bool {
		isLower := e.rules.Reclaim.AnyPriority || r.Priority < e.rules.Rank.Priority
		return isLower && slices.Contains(e.rules.Reclaim.Queues, r.ClusterQueue)
	})
	return min(pods, math.Floor(metrics.Borrowed.Value/float64(p.DevicesPerPod)))
}

// podsInPlaceOf returns how many pods could start on devices of the running workloads that
// isVictim selects. Kueue on the worker preempts by quota, not by node, so devices of several
// small pods count as if they were on one node.
func (e *evaluation) podsInPlaceOf(cluster string, p shape.PodSet, view ledger.View, isVictim func(*ledger.Running) bool) float64 {
	var pods, small int64
	running := view.Running(cluster)
	for i := range running {
		r := &running[i]
		if r.UID == e.facts.UID || !isVictim(r) {
			continue
		}
		for _, held := range r.PodSets {
			switch {
			case !ledger.MayShareDevices(held, p):
			case held.DevicesPerPod >= p.DevicesPerPod:
				pods += held.Pods * (held.DevicesPerPod / p.DevicesPerPod)
			default:
				small += held.Devices()
			}
		}
	}
	return float64(pods + small/p.DevicesPerPod)
}
