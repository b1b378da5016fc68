package gate

// nextEvent is what can change a decision.
type nextEvent struct {
	text string
	// metrics: the gate sees the event when it looks.
	metrics bool
}

// nextLarger is the event that ends the wait of a workload that no cluster could start.
const nextLarger = "a node or a quota that is large enough appears on a cluster"

// nextEvents are the events by the reason of a Pending or Rejected decision.
var nextEvents = map[string]nextEvent{
	ReasonNoDecisions:           {text: "the Placement decides a cluster"},
	ReasonNoRoom:                {text: "metrics show free devices or quota", metrics: true},
	ReasonNever:                 {text: nextLarger, metrics: true},
	ReasonParked:                {text: "Kueue takes the quota; after that, " + nextLarger},
	ReasonJoining:               {text: "a cluster without workloads leaves the MultiKueueConfig"},
	ReasonHeld:                  {text: "the hold ends, or another cluster gets room", metrics: true},
	ReasonDoubted:               {text: "a workload starts on one of these clusters, or the time for a probe comes", metrics: true},
	ReasonQueued:                {text: "the workloads before it are decided, or get their quota, in about a second"},
	ReasonRuledOut:              {text: "a score, a requirement, an object or a connection of a cluster changes", metrics: true},
	ReasonStale:                 {text: "newer samples arrive", metrics: true},
	ReasonNoMetrics:             {text: "the queries return a result", metrics: true},
	ReasonFleetRequirementUnmet: {text: "the requirement is met", metrics: true},
	ReasonOrphanedCopy:          {text: "Kueue is connected to the cluster again, or the wait for it ends"},
	ReasonYield:                 {text: "Kueue takes the quota, and the operator activates the workload after a pause"},
	ReasonGaveUp:                {text: "Kueue deactivates the workload; after that, " + userActivates},
	ReasonAwaitingPrimary:       {text: "a cluster admits component 0 of the job"},
	ReasonAwaitingQuota:         {text: "Kueue reserves quota for the other components, or has not for 5 minutes"},
	ReasonGateNotReady:          {text: "the operator reads the PlacementGate after a change"},
}
