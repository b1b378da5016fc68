// Package reclaimpolicy reconciles ReclaimPolicies. Each reconciliation is one round: it lists the
// workloads that agreed to be reclaimed, queries for how long their devices have been idle,
// decides, records the decision in the status, and returns the selected workloads to their queues.
// With rebalance, it also decides by the inputs of the gates which of them would make room for a
// workload that a cluster is held for, and fit elsewhere.
package reclaimpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/rebalance"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	// rereadDelay is the wait after a write that the API server refused because the cache was stale.
	rereadDelay = time.Second
	// maxConcurrentRounds keeps a slow source from delaying the policies of other sources.
	maxConcurrentRounds = 8
)

// Options of the controller.
type Options struct {
	// Sources is the registry of query clients.
	Sources *query.Sources
	// Gates state where workloads fit, for policies with rebalance.
	Gates Gates
	// Nominate: the operator is Kueue's external dispatcher. Without it, the eviction of a running
	// MultiKueue workload may never complete.
	Nominate bool
	// Registerer of the controller's metrics; nil = not registered.
	Registerer prometheus.Registerer
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Reconciler reconciles ReclaimPolicies.
type Reconciler struct {
	client    client.Client
	recorder  events.EventRecorder
	sources   *query.Sources
	gates     Gates
	nominates bool
	metrics   *metrics
	now       func() time.Time
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=reclaimpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=reclaimpolicies/status,verbs=patch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;clusterqueues;cohorts;localqueues;multikueueconfigs;multikueueclusters,verbs=list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager. The hub must have Kueue's CRDs. Without a ReclaimPolicy,
// the controller watches the policies and does nothing else.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-reclaim"), sources: opts.Sources, gates: opts.Gates,
		nominates: opts.Nominate, metrics: newMetrics(opts.Registerer), now: opts.Now}
	return ctrl.NewControllerManagedBy(mgr).
		Named("reclaimpolicy").
		For(&v1alpha1.ReclaimPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentRounds, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "reclaimpolicy", "policy")}).
		Complete(r)
}

// Reconcile runs one round of a policy: gather, measure, decide, record, act.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.ReclaimPolicy{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, policy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found || policy.DeletionTimestamp != nil {
		r.metrics.forget(req.Name)
		return reconcile.Result{}, nil
	}
	now := r.now()
	queues, err := r.gather(ctx, policy)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gather the workloads of ReclaimPolicy %s: %w", policy.Name, err)
	}
	measured, err := r.measure(ctx, policy, queues.candidates, now)
	switch {
	case errors.Is(err, hubstate.ErrSourceNotRegistered):
		return reconcile.Result{RequeueAfter: timing.SourceRetry}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("measure the workloads of ReclaimPolicy %s: %w", policy.Name, err)
	case ctx.Err() != nil:
		// The process stops. Canceled queries must not count as failures of the source.
		return reconcile.Result{}, nil
	}
	out, err := r.decide(ctx, policy, queues, measured, now)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("decide for ReclaimPolicy %s: %w", policy.Name, err)
	}
	err = r.finish(ctx, policy, queues, measured, out, now)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: rereadDelay}, nil // the policy changed since it was read
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("ReclaimPolicy %s: %w", policy.Name, err)
	}
	return reconcile.Result{RequeueAfter: periodOf(policy)}, nil
}

// periodOf returns the time between two rounds.
func periodOf(policy *v1alpha1.ReclaimPolicy) time.Duration {
	return time.Duration(cmp.Or(policy.Spec.PeriodSeconds, 60)) * time.Second
}

// roundLimit returns the time that the queries of a round may take together.
func roundLimit(policy *v1alpha1.ReclaimPolicy) time.Duration {
	return min(periodOf(policy), timing.MaxRound)
}

// decide decides which workloads return to their queues. What others wait for is read again after the
// queries of moves, which a slow source delays: it may have changed.
func (r *Reconciler) decide(ctx context.Context, policy *v1alpha1.ReclaimPolicy, queues *queues, measured *measurement, now time.Time) (outcome, error) {
	if err := r.readDemand(ctx, policy, queues, now); err != nil {
		return outcome{}, err
	}
	possible, err := r.readMoves(ctx, policy, queues, measured, now)
	if err != nil {
		return outcome{}, err
	}
	if possible != nil {
		if err := r.readDemand(ctx, policy, queues, now); err != nil {
			return outcome{}, err
		}
	}
	out := outcome{idle: reclaim.Decide(reclaim.BoundsOf(&policy.Spec), queues.candidates, policy.Status.History, now)}
	out.moves, err = r.decideMoves(ctx, policy, possible, out.idle)
	return out, err
}

// outcome is what a round decides.
type outcome struct {
	idle  []reclaim.Decision
	moves []rebalance.Decision
}

// finish records the round in the status, and then returns the selected workloads to their
// queues. The record comes first: a crash in between counts a workload that was not reclaimed,
// and never reclaims one that is not counted. The write fails if the policy was changed or deleted
// during the round.
func (r *Reconciler) finish(ctx context.Context, policy *v1alpha1.ReclaimPolicy, queues *queues, measured *measurement, out outcome, now time.Time) error {
	before, mode := policy.DeepCopy(), reclaim.BoundsOf(&policy.Spec).Mode
	moveMode, moves := rebalance.ModeOf(&policy.Spec)
	policy.Status.LastRoundTime = new(metav1.NewTime(now).Rfc3339Copy())
	policy.Status.History = reclaim.Record(policy.Status.History, out.idle, mode, now)
	policy.Status.History = rebalance.Record(policy.Status.History, out.moves, moveMode, now)
	policy.Status.Refused = queues.refused
	fillStatus(&policy.Status, queues, out)
	if err := r.writeStatus(ctx, before, policy, queues, measured); err != nil {
		return err
	}
	r.metrics.setIdleDevices(policy.Name, policy.Status.IdleDevices)
	if moves {
		r.metrics.initMoves(policy.Name)
	}
	var failed []failedReturn
	for i := range out.idle {
		d := &out.idle[i]
		if d.State != v1alpha1.IdleSelected {
			continue
		}
		if err := r.carryOut(ctx, policy, queues, mode, idleReturn(d), now); err != nil {
			d.State, d.Reason = v1alpha1.IdleLimited, err.reason
			failed = append(failed, failedReturn{d.Candidate, err.isRefused})
		}
	}
	for i := range out.moves {
		d := &out.moves[i]
		if d.State != v1alpha1.MoveSelected {
			continue
		}
		if err := r.carryOut(ctx, policy, queues, moveMode, moveReturn(d), now); err != nil {
			d.State, d.Reason = v1alpha1.MoveLimited, err.reason
			failed = append(failed, failedReturn{d.Candidate, err.isRefused})
		}
	}
	return r.removeFailed(ctx, policy, queues, out, failed, now)
}

// failedReturn is a workload that was certainly not written, and whether the API server refused it.
type failedReturn struct {
	*reclaim.Candidate
	isRefused bool
}

// removeFailed removes the records of workloads that were not written, and updates their states. They
// no longer count for maxPerHour. A workload that may have been written keeps its record. Refused writes
// are recorded, so that the next rounds take other workloads.
func (r *Reconciler) removeFailed(ctx context.Context, policy *v1alpha1.ReclaimPolicy, queues *queues, out outcome, failed []failedReturn, now time.Time) error {
	if len(failed) == 0 {
		return nil
	}
	before := policy.DeepCopy()
	var uids []string
	for _, f := range failed {
		uids = append(uids, f.UID)
		if f.isRefused {
			policy.Status.Refused = reclaim.AppendRefused(policy.Status.Refused, f.Candidate, now)
		}
	}
	policy.Status.History = reclaim.Remove(policy.Status.History, uids, now)
	fillStatus(&policy.Status, queues, out)
	return r.client.Status().Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
