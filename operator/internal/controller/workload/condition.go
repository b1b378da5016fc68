package workload

import (
	"maps"
	"math"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func (h *held) condition(name string, n gate.Number) gate.Condition {
	c := gate.Condition{Name: name, Answered: h.good}
	if n.Known {
		c.Number = n
	}
	return c
}

// ofCluster is the condition of one cluster. Absence from an answer in part is no
// answer, since when it lacks the cluster.
func (h *held) ofCluster(name, cluster string) gate.Condition {
	n, there := h.values[cluster]
	c := h.condition(name, n)
	if !there && h.lacks(cluster) {
		c.InPart, c.Answered = true, h.short[""]
		if h.lacking != nil {
			c.Answered = h.short[cluster]
		}
	}
	return c
}

// ofFleet is the condition of the fleet: it holds where any series says so. Where none
// does an answer in part is no answer, unless one says no, since when another lacked.
func (h *held) ofFleet(name string) gate.Condition {
	holds := 0.0
	if h.holds() {
		holds = 1
	}
	there := len(h.values)+len(h.bare) > 0
	c := h.condition(name, gate.Number{Value: holds, Known: there})
	c.InPart = holds == 0 && h.partial
	if c.InPart && !there {
		c.Answered = slices.MaxFunc(slices.Collect(maps.Values(h.short)), time.Time.Compare)
	}
	return c
}

// holds: some series is a number and not 0.
func (h *held) holds() bool {
	for _, v := range h.bare {
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
