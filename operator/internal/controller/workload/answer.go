package workload

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// answer of one cluster to a gate's questions about one workload.
type answer struct {
	sampled    time.Time
	shapes     []gate.ShapeAnswer
	conditions []gate.Condition
}

func answerOf(cluster string, replies []reply, sets int) answer {
	a := answer{shapes: make([]gate.ShapeAnswer, sets)}
	unsure, kueue := false, false
	for _, q := range replies {
		n, there := q.held.values[cluster]
		kueue = kueue || q.Name == gate.AskKueue && there && !q.held.lacks(cluster)
		unsure = unsure || q.Name == gate.AskFit && (q.held.values == nil || !n.Known && q.held.lacks(cluster))
	}
	for _, q := range replies {
		a.take(q, cluster, kueue)
	}
	if !unsure {
		a.sampled = sampledAt(cluster, replies)
	}
	return a
}

// sampledAt is the time of the oldest trusted sample behind the answers about the
// cluster's room.
func sampledAt(cluster string, replies []reply) time.Time {
	oldest := replies[0].held.sampled(cluster)
	for _, q := range replies {
		if q.held.with != nil {
			if at := q.held.with.sampled(cluster); at.Before(oldest) {
				oldest = at
			}
		}
	}
	return oldest
}

// take the answer to one question; kueue: the cluster's Kueue tells its quotas.
func (a *answer) take(q reply, cluster string, kueue bool) {
	n, there := q.held.values[cluster]
	switch q.Name {
	case gate.AskSampleTime, gate.AskKueue:
	case gate.AskFit:
		a.shapes[q.set].Fit = n
	case gate.AskLargest:
		a.shapes[q.set].Largest = n
	case gate.AskHeadroom:
		a.shapes[q.set].Headroom = n
	case gate.AskCapacity:
		a.shapes[q.set].Capacity = n
	case gate.AskQueued:
		a.shapes[q.set].Queued = n
	case gate.AskQuota:
		a.shapes[q.set].Quota, a.shapes[q.set].QuotaUnanswered = n, q.held.values == nil
		a.shapes[q.set].NoQuota = kueue && !there && q.held.values != nil && !q.held.lacks(cluster)
	default:
		if !q.ofFleet() {
			a.conditions = append(a.conditions, q.held.ofCluster(q.Condition.Name, cluster))
		}
	}
}

// ofFleet: a condition that is asked of the fleet as a whole.
func (q *asked) ofFleet() bool {
	return q.Condition != nil && q.Condition.Scope == v1alpha1.ScopeFleet
}
