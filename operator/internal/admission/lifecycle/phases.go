package lifecycle

// Phase is where a workload stands on its way through the gate. phaseOf computes it from
// an observation; nothing stores it.
type Phase string

// Phases in the order in which phaseOf checks them.
const (
	// PhaseDeleted: the Workload does not exist.
	PhaseDeleted Phase = "Deleted"
	// PhaseCacheStale: the cache lacks the controller's own last write.
	PhaseCacheStale Phase = "CacheStale"
	// PhaseEvicting: Kueue has time left to complete an eviction.
	PhaseEvicting Phase = "Evicting"
	// PhaseEvictionStuck: the eviction waits for a cluster that no other component nominates.
	PhaseEvictionStuck Phase = "EvictionStuck"
	// PhaseYielded: the operator deactivated the workload for a moment, so that others get its quota.
	PhaseYielded Phase = "Yielded"
	// PhaseReturning: the pause of a yielded workload is over, or a user activated it.
	PhaseReturning Phase = "Returning"
	// PhaseQuotaLost: the check is Ready for quota that the workload has lost.
	PhaseQuotaLost Phase = "QuotaLost"
	// PhaseUngated: a MultiKueue workload without a check of ours, which we dispatch.
	PhaseUngated Phase = "Ungated"
	// PhaseIdle: Kueue, a worker or another controller acts next.
	PhaseIdle Phase = "Idle"
	// PhaseRecordUnreadable: the annotation plimsoll.dev/dispatch does not parse.
	PhaseRecordUnreadable Phase = "RecordUnreadable"
	// PhaseTooManyChecks: several checks of ours stand on one queue.
	PhaseTooManyChecks Phase = "TooManyChecks"
	// PhasePlacedByKueue: Kueue chose the cluster itself or runs the job already, as for a new slice of an
	// elastic job, or the workload ran before its queue had the check.
	PhasePlacedByKueue Phase = "PlacedByKueue"
	// PhaseAwaitingPrimary: Kueue will place a component on the cluster of the job's primary
	// component, which has none yet.
	PhaseAwaitingPrimary Phase = "AwaitingPrimary"
	// PhaseGateUnknown: the gate does not exist, or its controller has not read it yet.
	PhaseGateUnknown Phase = "GateUnknown"
	// PhaseWaiting: the check is Pending and the gate decides.
	PhaseWaiting Phase = "Waiting"
	// PhaseBuiltinDispatch: the check is Ready and Kueue's own dispatcher nominates.
	PhaseBuiltinDispatch Phase = "BuiltinDispatch"
	// PhaseReady: the check is Ready and another check, or Kueue, acts next.
	PhaseReady Phase = "Ready"
	// PhaseRevoked: another component removed a nomination that the gate had made.
	PhaseRevoked Phase = "Revoked"
	// PhaseNominating: the check is Ready and no cluster is nominated.
	PhaseNominating Phase = "Nominating"
	// PhaseNominated: clusters are nominated and none has admitted the workload yet.
	PhaseNominated Phase = "Nominated"
)

// phaseDoc documents one phase for operator/docs/admission.md.
type phaseDoc struct {
	phase Phase
	// condition under which a workload is in the phase, if no earlier row applies.
	condition string
	// step that the controller carries out.
	step string
	// next phases, apart from those that every phase can lead to: Deleted, CacheStale,
	// Evicting, Idle and the phase itself.
	next []Phase
}

// documentedPhases are all phases in the order in which phaseOf checks them. A test compares
// them with phaseOf, next and the section States of operator/docs/admission.md.
var documentedPhases = []phaseDoc{
	{PhaseDeleted, "the Workload does not exist", "releases its devices and forgets it", nil},
	{PhaseCacheStale, "the cache lacks the operator's own last write", "none; looks again after 200 ms", nil},
	{PhaseEvicting, "evicted with quota, and MultiKueue's check is Pending; the eviction may still complete by itself", "none; looks again when it should have completed", []Phase{PhaseEvictionStuck, PhaseYielded}},
	{PhaseEvictionStuck, "evicted with quota, and MultiKueue's check is Pending, for longer than an eviction takes", "sets the check Ready, then nominates; widens as for Nominated", []Phase{PhaseYielded, PhaseReturning}},
	{PhaseYielded, "the operator deactivated the workload to return it to its queue, and Kueue has not taken its quota yet, or the pause lasts", "none; looks again at the end of the pause", []Phase{PhaseReturning}},
	{PhaseReturning, "the pause after that is over, or a user activated the workload", "activates it and removes the pause from the record", []Phase{PhaseWaiting}},
	{PhaseQuotaLost, "the check is Ready for quota that the workload has lost without an eviction, and nothing decides again before it starts", "sets the check Pending", []Phase{PhaseWaiting, PhaseTooManyChecks, PhaseAwaitingPrimary, PhaseGateUnknown, PhaseRecordUnreadable}},
	{PhaseUngated, "no check of a gate, but one of MultiKueue, Kueue has given it all checks of its queue, and the operator nominates", "nominates every connected cluster", nil},
	{PhaseIdle, "no quota, evicted, deactivated, finished, on a cluster, or the check is Retry or Rejected", "leaves the wait queue; reports an admitted workload whose pods are not ready after 10 min", []Phase{PhaseQuotaLost, PhaseWaiting, PhaseTooManyChecks, PhasePlacedByKueue, PhaseAwaitingPrimary, PhaseGateUnknown, PhaseRecordUnreadable, PhaseUngated}},
	{PhaseRecordUnreadable, "the annotation plimsoll.dev/dispatch does not parse", "replaces the annotation", []Phase{PhaseWaiting, PhaseNominated}},
	{PhaseTooManyChecks, "several checks of gates on one queue", "writes the reason to the Pending ones", []Phase{PhaseWaiting}},
	{PhasePlacedByKueue, "the check is Pending, and Kueue chose the cluster, runs the job of the slice that the workload replaces, or started the workload before its queue had the check", "sets the check Ready", nil},
	{PhaseAwaitingPrimary, "the check is Pending, and the workload is a component of a job whose primary component has no cluster", "writes the reason to the check; yields or rejects it by whenUnplaceable if the primary component has lost its quota", []Phase{PhaseWaiting, PhaseGateUnknown, PhaseYielded}},
	{PhaseGateUnknown, "a decision is due, but the gate does not exist or was not read yet", "sets the check Pending, with the reason, if the gate does not exist", []Phase{PhaseWaiting, PhaseNominating}},
	{PhaseWaiting, "the check is Pending and the gate is known", "the gate decides; writes the check; nominates if it is the operator's turn; yields or rejects by whenUnplaceable", []Phase{PhaseReady, PhaseBuiltinDispatch, PhaseNominated, PhaseYielded, PhaseGateUnknown, PhaseTooManyChecks}},
	{PhaseBuiltinDispatch, "the check is Ready and the operator does not nominate", "reports on gate and workload if no cluster is nominated within 30 s", []Phase{PhaseQuotaLost}},
	{PhaseReady, "the check is Ready; another check is not, or MultiKueue wants no nomination", "leaves the wait queue", []Phase{PhaseNominating, PhaseQuotaLost}},
	{PhaseRevoked, "another component removed a nomination of the gate", "nominates the cluster again and reports the conflict", []Phase{PhaseNominated}},
	{PhaseNominated, "clusters are nominated, and none has admitted the workload", "widens the nomination when it is late, and returns the workload to its queue in the end. Returns it at once in two cases: the nomination was a [repair](kueue.md#healing) that is complete; or the workload lost the quota of the nomination, and the gate would not nominate one of these clusters now. Records nominations of other components", []Phase{PhaseRevoked, PhaseNominating, PhaseYielded}},
	{PhaseNominating, "the check is Ready, every other check too, and no cluster is nominated", "the gate decides; nominates, or sets the check Pending", []Phase{PhaseNominated, PhaseWaiting, PhaseGateUnknown}},
}
