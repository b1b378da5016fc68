package gate

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// State of an admission check, as Kueue defines it.
type State string

// States that a gate sets.
const (
	Pending  State = "Pending"
	Ready    State = "Ready"
	Retry    State = "Retry"
	Rejected State = "Rejected"
)

// Reasons of a decision.
const (
	// ReasonPlaceable is set if a cluster can take the workload.
	ReasonPlaceable = "Placeable"
	// ReasonNoDecisions is set if the Placement has decided no cluster.
	ReasonNoDecisions = "NoDecisions"
	// ReasonNoRoom is set if a measured cluster has no room, or no such devices.
	ReasonNoRoom = "NoRoom"
	// ReasonJoining is set if only clusters have room that the MultiKueueConfig does not contain.
	ReasonJoining = "Joining"
	// ReasonHeld is set if the clusters with room are held for workloads that rank before.
	ReasonHeld = "Held"
	// ReasonDoubted is set if the clusters with room do not start what they admit.
	ReasonDoubted = "Doubted"
	// ReasonQueued is set if a cluster has room, but workloads that rank before are decided
	// first, or other components of the job get their quota first.
	ReasonQueued = "Queued"
	// ReasonRuledOut is set if scores, requirements or connections exclude every cluster.
	ReasonRuledOut = "RuledOut"
	// ReasonStale is set if samples are too old or missing.
	ReasonStale = "StaleSamples"
	// ReasonNoMetrics is set if a query for the decision has no valid result, or fit has no series for the
	// devices of a cluster.
	ReasonNoMetrics = "NoMetrics"
	// ReasonFleetRequirementUnmet is set if a requirement of scope Fleet is not met.
	ReasonFleetRequirementUnmet = "FleetRequirementUnmet"
	// ReasonOrphanedCopy is set if an unreachable cluster may hold a copy of the workload's
	// last attempt.
	ReasonOrphanedCopy = "OrphanedCopy"
	// ReasonYield is set if the workload returns its quota for other workloads.
	ReasonYield = "Yield"
	// ReasonGaveUp is set if no cluster had room for giveUpAfterSeconds.
	ReasonGaveUp = "GaveUp"
	// ReasonAwaitingPrimary is set for a component whose job's primary component has no cluster
	// yet.
	ReasonAwaitingPrimary = "AwaitingPrimary"
	// ReasonAwaitingQuota is set for a component for which a cluster has room, while Kueue has not reserved
	// quota for others of its job.
	ReasonAwaitingQuota = "AwaitingQuota"
	// ReasonGateNotReady is set if the gate does not exist or cannot decide.
	ReasonGateNotReady = "GateNotReady"
	// ReasonNever is set if no cluster could start the workload, even if it were empty.
	ReasonNever = "Never"
	// ReasonParked is set if the workload returns its quota until a cluster could start it.
	ReasonParked = "Parked"
)

// Decision for one workload.
type Decision struct {
	State   State  `json:"state"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Incomplete is true if a query failed, so that complete metrics might lead to another
	// decision.
	Incomplete bool `json:"incomplete,omitempty"`
	// NoRoomAnywhere is true if complete metrics prove that no candidate has room.
	NoRoomAnywhere bool `json:"noRoomAnywhere,omitempty"`
	// Prospect says whether a cluster could start the workload if it were empty.
	Prospect Prospect `json:"prospect,omitempty"`
	// Order of nomination: the chosen cluster, then all others that can take the workload.
	Order []string `json:"order,omitempty"`
	// Join is the cluster that the MultiKueueConfig should contain, because none of its members can
	// take the workload. Empty means none.
	Join string `json:"join,omitempty"`
	// Hold is the cluster that the gate holds for the workload; nil = none.
	Hold *ledger.Hold `json:"hold,omitempty"`
	// Verdicts on the candidates, in their order.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// Decide decides which clusters can take the workload now, and in which order. The result
// is Ready with an order, or Pending with the reason that helps most.
//
// attempt and the workload's UID seed the random choice among equal clusters. The same
// arguments always give the same decision.
func Decide(f shape.Facts, candidates []Candidate, fleet Fleet, view ledger.View, rules Rules, attempt int, now time.Time) Decision {
	e := newEvaluation(f, candidates, fleet, rules, now)
	return e.decide(candidates, fleet, view, attempt)
}

func (e *evaluation) decide(candidates []Candidate, fleet Fleet, view ledger.View, attempt int) Decision {
	d := Decision{State: Pending, Verdicts: make([]Verdict, len(candidates)), Incomplete: fleet.Problem != ""}
	for i := range candidates {
		d.Verdicts[i] = e.verdict(&candidates[i], view)
	}
	e.rejectLastResorts(candidates, d.Verdicts, view)
	requirements := groupByState(fleet.Requirements, e.rules, e.now)
	switch {
	case len(candidates) == 0:
		d.Reason = ReasonNoDecisions
	case len(requirements[requirementUnmet]) > 0:
		d.Reason = ReasonFleetRequirementUnmet
	case len(requirements[requirementFailing]) > 0:
		d.Reason = ReasonNoMetrics
	default:
		d.Order = rank(e.facts.UID, d.Verdicts, e.rules, attempt)
		if len(d.Order) > 0 {
			d.State, d.Reason = Ready, ReasonPlaceable
		} else {
			d.Reason, d.NoRoomAnywhere = pendingReason(d.Verdicts, fleet), noRoomAnywhere(d.Verdicts, fleet)
			d.Join = e.bestOutside(d.Verdicts, attempt)
		}
	}
	d.Prospect = e.prospect(candidates, fleet)
	if d.State == Pending && d.Prospect == ProspectNever {
		d.Reason, d.Message = ReasonNever, Truncate(e.neverMessage(candidates, d.Verdicts))
		return d
	}
	d.Hold = e.hold(d, candidates, view)
	d.Message = decisionMessage(e.facts, d, fleet, requirements, e.rules)
	return d
}

// bestOutside returns the cluster that would be chosen if the MultiKueueConfig contained all
// clusters. Empty means that none has room.
func (e *evaluation) bestOutside(verdicts []Verdict, attempt int) string {
	verdicts = slices.Clone(verdicts)
	for i := range verdicts {
		if verdicts[i].Rejection == RejectOutside {
			verdicts[i].Rejection = RejectNone
		}
	}
	if best := rank(e.facts.UID, verdicts, e.rules, attempt); len(best) > 0 {
		return best[0]
	}
	return ""
}
