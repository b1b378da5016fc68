package workload

import (
	"math"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// condition of one cluster. Absence from an answer in part is no answer.
func (h *held) condition(name string, n gate.Number, there bool) gate.Condition {
	c := gate.Condition{Name: name, Answered: h.good}
	if n.Known {
		c.Number = n
	}
	if !there && h.partial {
		c.Answered = time.Time{}
	}
	return c
}

// ofFleet is the condition of the fleet: it holds where any series says so.
func (h *held) ofFleet(name string) gate.Condition {
	holds := 0.0
	if h.holds() {
		holds = 1
	}
	there := holds > 0 || len(h.values)+len(h.bare) > 0
	return h.condition(name, gate.Number{Value: holds, Known: there}, holds > 0)
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
