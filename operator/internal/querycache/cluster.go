package querycache

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// answer of one cluster to a gate's questions about one workload.
type ClusterResult struct {
	SampledAt  time.Time
	Shapes     []gate.ShapeMetrics
	Conditions []gate.ConditionResult
}

func clusterResultOf(cluster string, replies []queryResult, sets int) ClusterResult {
	a := ClusterResult{Shapes: make([]gate.ShapeMetrics, sets)}
	unsure, kueue := false, false
	for _, q := range replies {
		n, there := q.result.values[cluster]
		kueue = kueue || q.Name == gate.QueryKueueMetrics && there && !q.result.isMissing(cluster)
		unsure = unsure || q.Name == gate.QueryFit && (q.result.values == nil || !n.Known && q.result.isMissing(cluster))
	}
	for _, q := range replies {
		a.addResult(q, cluster, kueue)
	}
	if !unsure {
		a.SampledAt = oldestSampleTime(cluster, replies)
	}
	return a
}

// sampledAt is the time of the oldest trusted sample behind the answers about the
// cluster's room.
func oldestSampleTime(cluster string, replies []queryResult) time.Time {
	oldest := replies[0].result.sampleTimeOf(cluster)
	for _, q := range replies {
		if q.result.sampleTimes != nil {
			if at := q.result.sampleTimes.sampleTimeOf(cluster); at.Before(oldest) {
				oldest = at
			}
		}
	}
	return oldest
}

// take the answer to one question; kueue: the cluster's Kueue tells its quotas.
func (a *ClusterResult) addResult(q queryResult, cluster string, kueue bool) {
	n, there := q.result.values[cluster]
	switch q.Name {
	case gate.QuerySampleTime, gate.QueryKueueMetrics:
	case gate.QueryFit:
		a.Shapes[q.podSet].Fit = n
	case gate.QueryLargest:
		a.Shapes[q.podSet].Largest = n
	case gate.QueryHeadroom:
		a.Shapes[q.podSet].Headroom = n
	case gate.QueryCapacity:
		a.Shapes[q.podSet].Capacity = n
	case gate.QueryQueued:
		a.Shapes[q.podSet].Queued = n
	case gate.QueryQuota:
		a.Shapes[q.podSet].Quota, a.Shapes[q.podSet].QuotaFailed = n, q.result.values == nil
		a.Shapes[q.podSet].QueueMissing = kueue && !there && q.result.values != nil && !q.result.isMissing(cluster)
	default:
		if !q.isFleetScoped() {
			a.Conditions = append(a.Conditions, q.result.clusterCondition(q.Condition.Name, cluster))
		}
	}
}

// ofFleet: a condition that is asked of the fleet as a whole.
func (q *renderedQuery) isFleetScoped() bool {
	return q.Condition != nil && q.Condition.Scope == v1alpha1.ScopeFleet
}
