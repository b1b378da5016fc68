package lifecycle

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Phase is where a workload stands on its way through the gate. The table phases says when a workload is in it, and
// what the operator does then. Nothing stores it.
type Phase string

// Phases in the order of the table.
const (
	// PhaseDeleted: the Workload does not exist.
	PhaseDeleted Phase = "Deleted"
	// PhaseCacheStale: the cache lacks the controller's own last write.
	PhaseCacheStale Phase = "CacheStale"
	// PhaseWriteRefused: the API server refused a write a moment ago, and would refuse it again.
	PhaseWriteRefused Phase = "WriteRefused"
	// PhaseEvicting: Kueue has time left to complete an eviction.
	PhaseEvicting Phase = "Evicting"
	// PhaseEvictionStuck: the eviction waits for a cluster that no other component nominates.
	PhaseEvictionStuck Phase = "EvictionStuck"
	// PhaseYielded: the operator deactivated the workload for a moment, so that others get its quota.
	PhaseYielded Phase = "Yielded"
	// PhaseHeldBack: the workload gets quota when the gate has room for it.
	PhaseHeldBack Phase = "HeldBack"
	// PhaseParked: the pause after a workload returned its quota is over, and no cluster could start it.
	PhaseParked Phase = "Parked"
	// PhaseAwaitingRoom: the pause of a yielded workload is over, and it would preempt others without having room.
	PhaseAwaitingRoom Phase = "AwaitingRoom"
	// PhaseReturning: the pause of a yielded workload is over, or a user activated it.
	PhaseReturning Phase = "Returning"
	// PhaseQuotaLost: the check is Ready for quota that the workload has lost.
	PhaseQuotaLost Phase = "QuotaLost"
	// PhaseReleased: the gate decides first, and Kueue may preempt others for the workload.
	PhaseReleased Phase = "Released"
	// PhaseUngated: a MultiKueue workload without a check of ours, which we dispatch.
	PhaseUngated Phase = "Ungated"
	// PhasePassing: the gate is in mode Shadow, and the workload has yet to pass, to all connected clusters.
	PhasePassing Phase = "Passing"
	// PhaseComparing: the workload has passed a gate in mode Shadow, which decides what it would have done.
	PhaseComparing Phase = "Comparing"
	// PhasePassed: the workload has passed a gate in mode Shadow.
	PhasePassed Phase = "Passed"
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

// phaseRow says what the operator does with a workload in one phase.
type phaseRow struct {
	phase Phase
	// when a workload is in the phase, if no earlier row applies; condition is the same in words.
	when      func(*Situation) bool
	condition string
	// step that the controller carries out; work is the same in words.
	step func(*Situation) Step
	work string
	// decides: the step rests on a decision of the gate.
	decides bool
	// awaitsDecision: the workload has a place in the gate's order, also after a restart.
	awaitsDecision bool
	// watchesDispatcher: nominations that the gate did not make, or none by Kueue, are evidence of a wrong dispatcher.
	watchesDispatcher bool
	// next phases, apart from those that every phase can lead to: Deleted, CacheStale,
	// WriteRefused, Evicting, Idle and the phase itself.
	next []Phase
}

// phases are all phases. The first row whose condition holds is that of the workload, and Idle if none does.
// operator/docs/admission.md shows them.
var phases []phaseRow

// The rows are in init because steps ask for the phase.
func init() { //nolint:funlen // one table
	phases = []phaseRow{
		{
			phase:     PhaseDeleted,
			when:      func(s *Situation) bool { return s.Workload == nil },
			condition: "the Workload does not exist",
			step:      func(*Situation) Step { return Step{} },
			work:      "releases its devices and forgets it",
		},
		{
			phase:     PhaseCacheStale,
			when:      func(s *Situation) bool { return s.History.IsBehindOwnWrite(s.Workload, s.Now) },
			condition: "the cache lacks the operator's own last write",
			step:      func(*Situation) Step { return Step{RequeueAfter: timing.RereadDelay} },
			work:      "none; looks again after 200 ms",
		},
		{
			phase:     PhaseWriteRefused,
			when:      enforced(isRefused),
			condition: "in mode Enforce, less than a minute ago, the API server refused a write as invalid or forbidden",
			step:      stepAfterRefusal,
			work:      "sets the check Pending, with the reason, unless the workload is on its way; looks again a minute after the refusal",
		},
		{
			phase:     PhaseEvicting,
			when:      isEvicting,
			condition: "evicted with quota, and MultiKueue's check is Pending; the eviction may still complete by itself",
			step:      stepAwaitEviction,
			work:      "none; looks again when it should have completed",
			next:      []Phase{PhaseEvictionStuck, PhaseYielded},
		},
		{
			phase:     PhaseEvictionStuck,
			when:      isEvictionStuck,
			condition: "evicted with quota, and MultiKueue's check is Pending, for longer than an eviction takes",
			step:      stepRepairEviction,
			work:      "sets the check Ready, then nominates; widens as for Nominated",
			decides:   true,
			next:      []Phase{PhaseYielded, PhaseReturning},
		},
		{
			phase:     PhaseYielded,
			when:      isPausing,
			condition: "the operator deactivated the workload to return it to its queue, and Kueue has not taken its quota yet, the pause lasts, or component 0 of its job is parked",
			step:      stepSleep,
			work:      "none; looks again at the end of the pause, and when component 0 returns",
			next:      []Phase{PhaseHeldBack, PhaseParked, PhaseAwaitingRoom, PhaseReturning},
		},
		{
			phase:     PhaseHeldBack,
			when:      enforced(awaitsReleaseByGate),
			condition: "in mode Enforce, inactive, no quota, [the gate decides first](order.md#the-gate-decides-first), and the queue of the workload preempts",
			step:      stepRelease,
			work:      "the gate decides: if a cluster has room, reserves its devices and activates the workload; else writes the message of the check",
			decides:   true,
			next:      []Phase{PhaseReleased, PhaseReturning, PhaseWaiting},
		},
		{
			phase:     PhaseParked,
			when:      enforced(isParked),
			condition: "in mode Enforce, the pause is over, and the workload returned its quota because no cluster could start it",
			step:      stepParked,
			work:      "the gate decides for the first of those with the same request: if a cluster could start it, activates the workload and removes the pause from the record",
			decides:   true,
			next:      []Phase{PhaseReturning, PhaseWaiting},
		},
		{
			phase:     PhaseAwaitingRoom,
			when:      enforced(awaitsRoom),
			condition: "in mode Enforce, the pause after a yield is over, the queue of the workload preempts, and the yield was less than 30 min ago",
			step:      stepAwaitRoom,
			work:      "the gate decides: if a cluster has room, activates the workload and removes the pause from the record",
			decides:   true,
			next:      []Phase{PhaseReturning, PhaseWaiting},
		},
		{
			phase:     PhaseReturning,
			when:      func(s *Situation) bool { return s.Record.hasYielded(s.Workload) },
			condition: "the pause after that is over, or a user activated the workload",
			step:      stepReturn,
			work:      "activates it and removes the pause from the record",
			next:      []Phase{PhaseWaiting},
		},
		{
			phase:     PhaseQuotaLost,
			when:      func(s *Situation) bool { return len(s.OutdatedChecks()) > 0 },
			condition: "the check is Ready for quota that the workload has lost without an eviction, and nothing decides again before it starts",
			step:      stepResetChecks,
			work:      "sets the check Pending",
			next:      []Phase{PhaseWaiting, PhaseTooManyChecks, PhaseAwaitingPrimary, PhaseGateUnknown, PhaseRecordUnreadable},
		},
		{
			phase:     PhaseReleased,
			when:      enforced(mayPreemptInVain),
			condition: "in mode Enforce, active, no quota, [the gate decides first](order.md#the-gate-decides-first), and the queue of the workload preempts",
			step:      stepHoldBack,
			work:      "none for a minute after the release; then deactivates the workload if no cluster has room",
			decides:   true,
			next:      []Phase{PhaseYielded, PhaseWaiting},
		},
		{
			phase:             PhaseUngated,
			when:              isUngated,
			condition:         "no check of a gate, but one of MultiKueue, Kueue has given it all checks of its queue, and the operator nominates",
			step:              stepNominateAll,
			work:              "nominates every connected cluster",
			watchesDispatcher: true,
		},
		{
			phase:             PhasePassing,
			when:              isPassing,
			condition:         "mode Shadow; the check is Pending, or the operator nominates and a connected cluster is not nominated",
			step:              stepPass,
			work:              "sets the check Ready; nominates every connected cluster if it is the operator's turn",
			watchesDispatcher: true,
			next:              []Phase{PhaseComparing, PhasePassed},
		},
		{
			phase:     PhaseComparing,
			when:      isCompared,
			condition: "mode Shadow; the workload has passed, and no decision has sent it anywhere yet",
			step:      stepCompare,
			work:      "decides as if the workload still waited, and records the decision",
			decides:   true, watchesDispatcher: true,
			next: []Phase{PhasePassed, PhasePassing, PhaseQuotaLost},
		},
		{
			phase:             PhasePassed,
			when:              hasPassed,
			condition:         "mode Shadow; the workload has passed",
			step:              stepFollow,
			work:              "records the outcome once its pods are ready; reports them as Idle does",
			watchesDispatcher: true,
			next:              []Phase{PhasePassing, PhaseQuotaLost},
		},
		{
			phase:             PhaseIdle,
			when:              isIdle,
			condition:         "no quota, evicted, deactivated, finished, on a cluster, or the check is Retry or Rejected",
			step:              stepIdle,
			work:              "leaves the wait queue; records a cluster that admitted the workload and did not start it; reports an admitted workload whose pods are not ready after 10 min",
			watchesDispatcher: true,
			next:              []Phase{PhaseQuotaLost, PhaseWaiting, PhaseTooManyChecks, PhasePlacedByKueue, PhaseAwaitingPrimary, PhaseGateUnknown, PhaseRecordUnreadable, PhaseUngated, PhasePassing},
		},
		{
			phase:             PhaseRecordUnreadable,
			when:              func(s *Situation) bool { return s.Record.Err != nil && s.Workload.Status.ClusterName == nil },
			condition:         "the annotation plimsoll.dev/dispatch does not parse",
			step:              stepResetRecord,
			work:              "replaces the annotation",
			watchesDispatcher: true,
			next:              []Phase{PhaseWaiting, PhaseNominated},
		},
		{
			phase:             PhaseTooManyChecks,
			when:              func(s *Situation) bool { return len(s.Checks.Own) > 1 },
			condition:         "several checks of gates on one queue",
			step:              stepReportTooManyChecks,
			work:              "writes the reason to the Pending ones",
			watchesDispatcher: true,
			next:              []Phase{PhaseWaiting},
		},
		{
			phase:             PhasePlacedByKueue,
			when:              func(s *Situation) bool { return runsAlready(s) && len(s.Checks.Pending(s.Workload)) > 0 },
			condition:         "the check is Pending, and Kueue chose the cluster, runs the job of the slice that the workload replaces, or started the workload before its queue had the check",
			step:              stepFollowKueue,
			work:              "sets the check Ready",
			watchesDispatcher: true,
		},
		{
			phase:             PhaseAwaitingPrimary,
			when:              awaitsPrimary,
			condition:         "the check is Pending, and the workload is a component of a job whose primary component has no cluster",
			step:              stepAwaitPrimary,
			work:              "writes the reason to the check; yields, parks or rejects it by whenUnplaceable if the primary component has lost its quota",
			watchesDispatcher: true,
			next:              []Phase{PhaseWaiting, PhaseGateUnknown, PhaseYielded},
		},
		{
			phase:          PhaseGateUnknown,
			when:           func(s *Situation) bool { return !s.Gate.Known && (isPending(s) || isNominating(s)) },
			condition:      "a decision is due, but the gate does not exist or was not read yet",
			step:           stepReportGateUnknown,
			work:           "sets the check Pending, with the reason, if the gate does not exist",
			awaitsDecision: true, watchesDispatcher: true,
			next: []Phase{PhaseWaiting, PhaseNominating},
		},
		{
			phase:     PhaseWaiting,
			when:      isPending,
			condition: "the check is Pending and the gate is known",
			step:      stepDecide,
			work:      "the gate decides; writes the check; nominates if it is the operator's turn; yields, parks or rejects by whenUnplaceable",
			decides:   true, awaitsDecision: true, watchesDispatcher: true,
			next: []Phase{PhaseReady, PhaseBuiltinDispatch, PhaseNominated, PhaseYielded, PhaseGateUnknown, PhaseTooManyChecks},
		},
		{
			phase:             PhaseBuiltinDispatch,
			when:              func(s *Situation) bool { return isReady(s) && s.Dispatch() == BuiltinDispatch },
			condition:         "the check is Ready and the operator does not nominate",
			step:              func(*Situation) Step { return Step{} },
			work:              "reports on gate and workload if no cluster is nominated within 30 s",
			watchesDispatcher: true,
			next:              []Phase{PhaseQuotaLost},
		},
		{
			phase:             PhaseReady,
			when:              func(s *Situation) bool { return isReady(s) && !s.MayNominate() },
			condition:         "the check is Ready; another check is not, or MultiKueue wants no nomination",
			step:              func(*Situation) Step { return Step{} },
			work:              "leaves the wait queue",
			watchesDispatcher: true,
			next:              []Phase{PhaseNominating, PhaseQuotaLost},
		},
		{
			phase:             PhaseRevoked,
			when:              func(s *Situation) bool { return isReady(s) && isRevoked(s) },
			condition:         "another component removed a nomination of the gate",
			step:              stepRenominate,
			work:              "nominates the cluster again and reports the conflict",
			watchesDispatcher: true,
			next:              []Phase{PhaseNominated},
		},
		{
			phase:     PhaseNominated,
			when:      func(s *Situation) bool { return isReady(s) && len(s.Workload.Status.NominatedClusterNames) > 0 },
			condition: "clusters are nominated, and none has admitted the workload",
			step:      stepWiden,
			work:      "widens the nomination when it is late, and returns the workload to its queue in the end. Returns it at once in two cases: the nomination was a [repair](kueue.md#healing) that is complete; or the workload lost the quota of the nomination, and the gate would not nominate one of these clusters now. Records nominations of other components",
			decides:   true, watchesDispatcher: true,
			next: []Phase{PhaseRevoked, PhaseNominating, PhaseYielded},
		},
		{
			phase:     PhaseNominating,
			when:      isNominating,
			condition: "the check is Ready, every other check too, and no cluster is nominated",
			step:      stepDecide,
			work:      "the gate decides; nominates, or sets the check Pending",
			decides:   true, awaitsDecision: true, watchesDispatcher: true,
			next: []Phase{PhaseNominated, PhaseWaiting, PhaseGateUnknown},
		},
	}
}

func rowOf(p Phase) phaseRow {
	return phases[slices.IndexFunc(phases, func(row phaseRow) bool { return row.phase == p })]
}

// MayNeedStep reports whether a workload is in a phase that may have a step: it holds quota, has a record of the gate,
// or a Ready check, which may be outdated. Most workloads of a hub wait for quota, and Kueue updates each of them
// whenever it looks at the queue.
func MayNeedStep(wl *kueue.Workload) bool {
	return kueuestate.HoldsQuota(wl) || wl.Annotations[v1alpha1.DispatchAnnotation] != "" ||
		!kueuestate.IsFinished(wl) && slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateReady })
}

// PhaseOf names the phase of a workload.
func PhaseOf(s *Situation) Phase {
	for _, row := range phases {
		if row.when(s) {
			return row.phase
		}
	}
	return PhaseIdle
}

// Next computes the step that the workload's phase calls for.
func Next(s *Situation) Step {
	row := rowOf(PhaseOf(s))
	next := row.step(s)
	if row.watchesDispatcher {
		next = watchDispatcher(s, next)
	}
	return next
}

// AwaitsDecision reports whether the gate decides the workload next.
func (s *Situation) AwaitsDecision() bool { return s.Gate.Exists && rowOf(PhaseOf(s)).awaitsDecision }

// Decides reports whether the step of the workload's phase rests on a decision of the gate.
func (s *Situation) Decides() bool {
	return rowOf(PhaseOf(s)).decides && s.Gate.Known && s.Gate.Problem == "" && len(s.Checks.Own) == 1
}
