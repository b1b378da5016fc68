package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Reconcile takes one workload one step further: observe, account, phaseOf, measure,
// reserve (which calls next), apply. Nothing is remembered, debited or written before the
// check for a stale cache has passed.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	defer r.endTurnOnPanic(req.NamespacedName)
	if err := r.rebuildOnce(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("rebuild the ledger: %w", err)
	}
	o, err := r.observe(ctx, req.NamespacedName)
	if err == nil {
		err = r.readUnknownWrite(ctx, o)
	}
	if err != nil {
		r.waiting.EndTurn(req.NamespacedName)
		return reconcile.Result{}, err
	}
	if phaseOf(o) == PhaseCacheStale {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	defer r.wakeAfterHold(o.Key, r.ledger.HeldFor(o.Key.String()))
	r.account(o)
	if err := r.measure(ctx, o); err != nil {
		r.waiting.EndTurn(req.NamespacedName)
		return reconcile.Result{}, err
	}
	s := r.reserve(o)
	err = r.apply(ctx, o, s)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, nil
}

// endTurnOnPanic ends the workload's turn, so that a panic, which controller-runtime logs and
// retries, does not stop the other workloads of the gate.
func (r *Reconciler) endTurnOnPanic(workload types.NamespacedName) {
	if cause := recover(); cause != nil {
		r.waiting.EndTurn(workload)
		panic(cause)
	}
}

// wakeAfterHold requests a round for the workloads that a hold kept waiting, if the cluster is no
// longer held for the workload.
func (r *Reconciler) wakeAfterHold(workload types.NamespacedName, held string) {
	if held != "" && r.ledger.HeldFor(workload.String()) != held {
		r.waiting.MarkDirty(r.registry.GatesOf(held)...)
	}
}

// reserve computes the next step and debits the ledger with what the step sends. It
// computes the step again if another workload debited the ledger in between, so that a
// burst does not send every workload to one cluster.
func (r *Reconciler) reserve(o *Situation) step {
	for {
		s := next(o)
		if s.reservation == nil || r.ledger.Commit(o.Room.View, string(o.Workload.UID), s.reservation.kept, s.reservation.entries, s.reservation.hold) {
			return s
		}
		o.Room.View = r.viewFor(o)
	}
}

// phaseOf names the state that an observation shows.
func phaseOf(o *Situation) Phase {
	switch {
	case o.Workload == nil:
		return PhaseDeleted
	case o.History.isBehindOwnWrite(o.Workload, o.Now):
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
	case len(o.outdatedChecks()) > 0:
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
	state := o.check().State
	switch {
	case state == kueue.CheckStatePending && !o.Gate.Known:
		return PhaseGateUnknown
	case state == kueue.CheckStatePending:
		return PhaseWaiting
	case state != kueue.CheckStateReady:
		return PhaseIdle
	case !o.MultiKueue.Nominates:
		return PhaseBuiltinDispatch
	case !o.mayNominate():
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
func next(o *Situation) step {
	s := step{}
	switch phaseOf(o) {
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
		s = step{}
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
	s.conflict = o.conflict(s.conflict)
	return s
}
