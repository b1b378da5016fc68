package lifecycle

import (
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// aspect is a special case of where a workload may go. The values are immutable functions of the situation.
type aspect struct {
	name string
	// limit is what the aspect reads of the workload, apart from its rank and the gate's queries: two workloads
	// with the same limits are decided alike, so that they wait in one line, of which the first is decided.
	limit func(*Situation) string
	// exclude marks a cluster that the workload can't go to; nil = the aspect excludes none. An earlier aspect
	// may have marked it.
	exclude func(*Situation, *gate.Candidate)
	// revise replaces a Pending decision; nil = the aspect leaves it.
	revise func(*Situation, gate.Decision) gate.Decision
}

// aspects in the order in which they apply.
var aspects = []aspect{
	{name: "workers", limit: limitOfWorkers, exclude: excludeByWorkers},
	{name: "pins", limit: limitOfPins, exclude: excludeByPins},
	{name: "component", limit: limitOfComponent, exclude: excludeByComponent},
	{name: "avoidance", limit: limitOfAvoidance, exclude: excludeByAvoidance},
	{name: "slice", limit: limitOfSlice, revise: followReplacedSlice},
	{name: "preemption", limit: limitOfPreemption},
	{name: "run time", limit: limitOfRunTime},
	{name: "other checks", limit: limitOfHold},
}

// limits of all aspects, which identify the workload's line in the wait queue.
func limits(s *Situation) string {
	var text strings.Builder
	for _, a := range aspects {
		if limit := a.limit(s); limit != "" {
			text.WriteString(a.name + " " + limit + "\n")
		}
	}
	return text.String()
}

// usable are the gate's clusters, of which the aspects rule some out.
func usable(s *Situation, candidates []gate.Candidate) []gate.Candidate {
	list := s.Gate.undecidedCandidates(s.Job.Cluster)
	for _, c := range candidates {
		for _, a := range aspects {
			if a.exclude != nil {
				a.exclude(s, &c)
			}
		}
		list = append(list, c)
	}
	return list
}

// revise lets the aspects replace a Pending decision.
func revise(s *Situation, d gate.Decision) gate.Decision {
	for _, a := range aspects {
		if a.revise != nil && d.State == gate.Pending {
			d = a.revise(s, d)
		}
	}
	return d
}
