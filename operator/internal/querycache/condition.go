package querycache

import (
	"maps"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func (h *cachedResult) conditionResult(name string, n gate.Number) gate.ConditionResult {
	c := gate.ConditionResult{Name: name, EvaluatedAt: h.succeededAt}
	if n.Known {
		c.Number = n
	}
	return c
}

// ofCluster is the condition of one cluster. Absence from an answer in part is no
// answer, since when it lacks the cluster.
func (h *cachedResult) clusterCondition(name, cluster string) gate.ConditionResult {
	n, there := h.values[cluster]
	c := h.conditionResult(name, n)
	if !there && h.isMissing(cluster) {
		c.Partial, c.EvaluatedAt = true, h.incompleteSince[""]
		if h.failedClusters != nil {
			c.EvaluatedAt = h.incompleteSince[cluster]
		}
	}
	return c
}

// ofFleet is the condition of the fleet: it holds where any series says so. Where none
// does an answer in part is no answer, unless one says no, since when another lacked.
func (h *cachedResult) fleetCondition(name string) gate.ConditionResult {
	holds := 0.0
	if h.hasNonZero() {
		holds = 1
	}
	there := len(h.values)+len(h.unlabeled) > 0
	c := h.conditionResult(name, gate.Number{Value: holds, Known: there})
	c.Partial = holds == 0 && h.partial
	if c.Partial && !there {
		c.EvaluatedAt = slices.MaxFunc(slices.Collect(maps.Values(h.incompleteSince)), time.Time.Compare)
	}
	return c
}

// holds: some series is a number and not 0.
func (h *cachedResult) hasNonZero() bool {
	for _, v := range h.unlabeled {
		if v != 0 && !math.IsNaN(v) {
			return true
		}
	}
	for _, n := range h.values {
		if n.Known && n.Value != 0 {
			return true
		}
	}
	return false
}
