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
	defer r.wakeAfterHold(o.key, r.ledger.HeldFor(o.key.String()))
	r.account(o)
	o.phase = phaseOf(o)
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
func (r *Reconciler) reserve(o *observation) step {
	for {
		s := next(o)
		if s.reservation == nil || r.ledger.Commit(o.view, string(o.wl.UID), s.reservation.kept, s.reservation.entries, s.reservation.hold) {
			return s
		}
		o.view = r.viewFor(o)
	}
}

// phaseOf names the state that an observation shows.
func phaseOf(o *observation) Phase {
	switch {
	case o.wl == nil:
		return PhaseDeleted
	case o.history.isBehindOwnWrite(o.wl, o.now):
		return PhaseCacheStale
	}
	if o.nominates && o.multiKueue != "" {
		switch isStuck, remaining := kueuestate.IsEvictionStuck(o.wl, o.multiKueue, o.evictionLag, o.now); {
		case isStuck:
			return PhaseEvictionStuck
		case remaining > 0:
			return PhaseEvicting
		}
	}
	switch {
	case o.hasYielded() && !o.isActive() && (kueuestate.HoldsQuota(o.wl) || o.now.Before(o.returnsAt())):
		return PhaseYielded
	case o.hasYielded():
		return PhaseReturning
	}
	return gatePhaseOf(o)
}

// gatePhaseOf names the state of a workload that neither pauses nor is being evicted.
func gatePhaseOf(o *observation) Phase {
	switch {
	case len(o.outdatedChecks()) > 0:
		return PhaseQuotaLost
	case len(o.checks) == 0 && o.multiKueue != "" && o.nominates && !o.lacksChecks:
		return PhaseUngated
	case len(o.checks) == 0 || !kueuestate.AcceptsCheckUpdate(o.wl):
		return PhaseIdle
	case o.recordErr != nil && o.wl.Status.ClusterName == nil:
		return PhaseRecordUnreadable
	case o.wl.Status.ClusterName != nil && len(o.pendingChecks()) == 0:
		return PhaseIdle
	case len(o.checks) > 1:
		return PhaseTooManyChecks
	case o.runsAlready() && len(o.pendingChecks()) > 0:
		return PhasePlacedByKueue
	case o.awaitsPrimary():
		return PhaseAwaitingPrimary
	}
	return checkPhaseOf(o)
}

// checkPhaseOf names the state of a workload whose check the gate may write.
func checkPhaseOf(o *observation) Phase {
	state := o.check().State
	switch {
	case state == kueue.CheckStatePending && !o.gateKnown:
		return PhaseGateUnknown
	case state == kueue.CheckStatePending:
		return PhaseWaiting
	case state != kueue.CheckStateReady:
		return PhaseIdle
	case !o.nominates:
		return PhaseBuiltinDispatch
	case !o.mayNominate():
		return PhaseReady
	case len(o.renominationList()) > len(o.wl.Status.NominatedClusterNames):
		return PhaseRevoked
	case len(o.wl.Status.NominatedClusterNames) > 0:
		return PhaseNominated
	case !o.gateKnown:
		return PhaseGateUnknown
	}
	return PhaseNominating
}

// next computes the step that a phase calls for. It is pure.
func next(o *observation) step {
	s := step{}
	switch o.phase {
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
