package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Reconcile takes one workload one step further: observe, account, PhaseOf, measure,
// reserve (which calls next), apply. Nothing is remembered, debited or written before the
// check for a stale cache has passed.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	defer r.endTurnOnPanic(req.NamespacedName)
	if err := r.rebuildOnce(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("rebuild the ledger: %w", err)
	}
	s, err := r.observe(ctx, req.NamespacedName)
	if err == nil {
		s, err = r.readUnknownWrite(ctx, s)
	}
	if err != nil {
		r.waiting.EndTurn(req.NamespacedName)
		return reconcile.Result{}, err
	}
	if lifecycle.PhaseOf(s) == lifecycle.PhaseCacheStale {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	defer r.wakeAfterHold(s.Key, r.ledger.HeldFor(s.Key.String()))
	s, err = r.measure(ctx, r.account(s))
	if err != nil {
		r.waiting.EndTurn(req.NamespacedName)
		return reconcile.Result{}, err
	}
	next := r.reserve(s)
	err = r.apply(ctx, s, next)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next.RequeueAfter}, nil
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
func (r *Reconciler) reserve(s *lifecycle.Situation) lifecycle.Step {
	for {
		next := lifecycle.Next(s)
		if next.Reservation == nil || r.ledger.Commit(s.Room.View, string(s.Workload.UID), next.Reservation.Kept, next.Reservation.Entries, next.Reservation.Hold) {
			return next
		}
		s = s.WithView(r.viewFor(s))
	}
}
