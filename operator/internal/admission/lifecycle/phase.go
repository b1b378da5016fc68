package lifecycle

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// awaitsDecision reports whether the gate decides the workload next.
func (o *Situation) AwaitsDecision() bool {
	phase := PhaseOf(o)
	return o.Gate.Exists && slices.Contains([]Phase{PhaseWaiting, PhaseNominating, PhaseGateUnknown}, phase)
}

// phaseOf names the state that an observation shows.
func PhaseOf(o *Situation) Phase {
	switch {
	case o.Workload == nil:
		return PhaseDeleted
	case o.History.IsBehindOwnWrite(o.Workload, o.Now):
		return PhaseCacheStale
	}
	if o.MultiKueue.Nominates && o.Checks.MultiKueue != "" {
		switch isStuck, remaining := kueuestate.IsEvictionStuck(o.Workload, o.Checks.MultiKueue, o.MultiKueue.EvictionLag, o.Now); {
		case isStuck:
			return PhaseEvictionStuck
		case remaining > 0:
			return PhaseEvicting
		}
	}
	switch {
	case o.hasYielded() && !o.isActive() && (kueuestate.HoldsQuota(o.Workload) || o.Now.Before(o.returnsAt())):
		return PhaseYielded
	case o.hasYielded():
		return PhaseReturning
	}
	return gatePhaseOf(o)
}

// gatePhaseOf names the state of a workload that neither pauses nor is being evicted.
func gatePhaseOf(o *Situation) Phase {
	switch {
	case len(o.OutdatedChecks()) > 0:
		return PhaseQuotaLost
	case len(o.Checks.Own) == 0 && o.Checks.MultiKueue != "" && o.MultiKueue.Nominates && !o.Queue.LacksChecks:
		return PhaseUngated
	case len(o.Checks.Own) == 0 || !kueuestate.AcceptsCheckUpdate(o.Workload):
		return PhaseIdle
	case o.Record.Err != nil && o.Workload.Status.ClusterName == nil:
		return PhaseRecordUnreadable
	case o.Workload.Status.ClusterName != nil && len(o.pendingChecks()) == 0:
		return PhaseIdle
	case len(o.Checks.Own) > 1:
		return PhaseTooManyChecks
	case o.runsAlready() && len(o.pendingChecks()) > 0:
		return PhasePlacedByKueue
	case o.awaitsPrimary():
		return PhaseAwaitingPrimary
	}
	return checkPhaseOf(o)
}

// checkPhaseOf names the state of a workload whose check the gate may write.
func checkPhaseOf(o *Situation) Phase {
	state := o.Check().State
	switch {
	case state == kueue.CheckStatePending && !o.Gate.Known:
		return PhaseGateUnknown
	case state == kueue.CheckStatePending:
		return PhaseWaiting
	case state != kueue.CheckStateReady:
		return PhaseIdle
	case !o.MultiKueue.Nominates:
		return PhaseBuiltinDispatch
	case !o.MayNominate():
		return PhaseReady
	case len(o.renominationList()) > len(o.Workload.Status.NominatedClusterNames):
		return PhaseRevoked
	case len(o.Workload.Status.NominatedClusterNames) > 0:
		return PhaseNominated
	case !o.Gate.Known:
		return PhaseGateUnknown
	}
	return PhaseNominating
}

// next computes the step that a phase calls for. It is pure.
func Next(o *Situation) Step {
	s := Step{}
	switch PhaseOf(o) {
	case PhaseDeleted, PhaseCacheStale:
		return s
	// Nominations of these phases say nothing about another dispatcher.
	case PhaseYielded:
		return o.stepSleep()
	case PhaseReturning:
		return o.stepReturn()
	case PhaseEvicting:
		return o.stepAwaitEviction()
	case PhaseEvictionStuck:
		return o.stepRepairEviction()
	case PhaseQuotaLost:
		return o.stepResetChecks()
	case PhaseUngated:
		s = o.stepNominateAll()
	case PhaseIdle:
		s = o.stepIdle()
	case PhaseReady:
		s = Step{}
	case PhaseRecordUnreadable:
		s = o.stepResetRecord()
	case PhaseTooManyChecks:
		s = o.stepReportTooManyChecks()
	case PhasePlacedByKueue:
		s = o.stepFollowKueue()
	case PhaseAwaitingPrimary:
		s = o.stepAwaitPrimary()
	case PhaseGateUnknown:
		s = o.stepReportGateUnknown()
	case PhaseWaiting, PhaseNominating:
		s = o.stepDecide()
	case PhaseBuiltinDispatch:
		s = o.stepWatchBuiltinDispatcher()
	case PhaseRevoked:
		s = o.stepRenominate()
	case PhaseNominated:
		s = o.stepWiden()
	}
	s.Conflict = o.conflict(s.Conflict)
	return s
}

// nextDecision returns the decision that the next reconciliation writes; nil = it decides nothing.
func (o *Situation) NextDecision() *gate.Decision {
	if PhaseOf(o) == PhaseWaiting || PhaseOf(o) == PhaseNominating {
		return o.stepDecide().Decision
	}
	if PhaseOf(o) == PhaseAwaitingPrimary {
		d := o.decisionWithoutPrimary()
		return &d
	}
	return nil
}
