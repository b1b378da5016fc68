package workload

import (
	"math"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// condition as it was answered. lacking: by an answer in part, from which absence
// says nothing.
func (h *held) condition(name string, n gate.Number, lacking bool) gate.Condition {
	c := gate.Condition{Name: name, Answered: h.good, InPart: lacking}
	if n.Known {
		c.Number = n
	}
	return c
}

// ofFleet is the condition of the fleet: it holds where any series says so.
func (h *held) ofFleet(name string) gate.Condition {
	holds := 0.0
	if h.holds() {
		holds = 1
	}
	there := len(h.values)+len(h.bare) > 0
	return h.condition(name, gate.Number{Value: holds, Known: there}, holds == 0 && h.partial)
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
