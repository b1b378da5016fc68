// Package capacitypolicy reconciles CapacityPolicies. Each reconciliation is one round: it
// measures the devices of the clusters, computes the quotas, records them in the status, from
// which the next round continues, writes the Cohort, and reports.
package capacitypolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/capacity"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// rereadDelay is the wait after a write that the API server refused because the cache was stale.
const rereadDelay = time.Second

// writeRetry is the longest wait for the next round after a failed write of the Cohort.
const writeRetry = 30 * time.Second

// maxConcurrentRounds keeps a slow source from delaying the policies of other sources.
const maxConcurrentRounds = 8

// Options of the controller.
type Options struct {
	// Sources is the registry of query clients.
	Sources *query.Sources
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Reconciler reconciles CapacityPolicies.
type Reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	sources  *query.Sources
	now      func() time.Time
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=capacitypolicies,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=capacitypolicies/status,verbs=patch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues,verbs=list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=cohorts,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager. The hub must have Kueue's CRDs.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-capacity"), sources: opts.Sources, now: opts.Now}
	return ctrl.NewControllerManagedBy(mgr).
		Named("capacitypolicy").
		For(&v1alpha1.CapacityPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentRounds, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "capacitypolicy", "policy")}).
		Complete(r)
}

// Reconcile runs one round of a policy: measure, compute, record, write the Cohort, report. A
// deleted policy leaves its Cohort, because the quota of every queue depends on it.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.CapacityPolicy{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, policy)
	if err != nil || !found || policy.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	now := r.now()
	measured, err := r.measure(ctx, policy, now)
	switch {
	case errors.Is(err, hubstate.ErrSourceNotRegistered):
		return reconcile.Result{RequeueAfter: timing.SourceRetry}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("measure the clusters of CapacityPolicy %s: %w", policy.Name, err)
	case ctx.Err() != nil:
		// The process stops. Canceled queries must not count as failures of the source.
		return reconcile.Result{}, nil
	}
	cohort, err := r.readCohort(ctx, policy)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Cohort %s of CapacityPolicy %s: %w", policy.Spec.CohortName, policy.Name, err)
	}
	if isCurrent, err := r.isCurrent(ctx, policy); err != nil || !isCurrent {
		return reconcile.Result{}, err // the change of the policy starts another round
	}
	before := policy.DeepCopy()
	policy.Status.Quotas = computeQuotas(policy, measured, cohort, now)
	if !isEarly(policy, now) {
		policy.Status.LastRoundTime = new(metav1.NewTime(now).Rfc3339Copy())
	}
	recorded, err := r.recordQuotas(ctx, before, policy, cohort)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: rereadDelay}, nil // the policy changed since it was read
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("record the quotas of CapacityPolicy %s: %w", policy.Name, err))
	}
	applied, applyErr := r.applyCohort(ctx, policy, cohort)
	if apierrors.IsConflict(applyErr) || apierrors.IsAlreadyExists(applyErr) {
		return reconcile.Result{RequeueAfter: rereadDelay}, nil // the Cohort changed since it was read
	}
	if err := r.writeStatus(ctx, recorded, policy, measured, applied); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of CapacityPolicy %s: %w", policy.Name, err)
	}
	wait := untilNextRound(policy, measured, now, r.now())
	if applyErr != nil {
		// The work queue itself would repeat the whole round after milliseconds.
		log.FromContext(ctx).Error(applyErr, "The Cohort could not be written", "cohort", policy.Spec.CohortName)
		wait = min(wait, writeRetry)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// isCurrent reports whether the policy still exists as it was when the round began. A round
// can last for minutes, and must not create the Cohort of a policy that was deleted meanwhile.
func (r *Reconciler) isCurrent(ctx context.Context, policy *v1alpha1.CapacityPolicy) (bool, error) {
	now := &v1alpha1.CapacityPolicy{}
	found, err := hubstate.Find(ctx, r.client, client.ObjectKeyFromObject(policy), now)
	return found && now.UID == policy.UID && now.Generation == policy.Generation && now.DeletionTimestamp == nil, err
}

// computeQuotas returns the state of each quota of the spec after this round.
func computeQuotas(policy *v1alpha1.CapacityPolicy, measured *measurement, cohort *cohortState, now time.Time) []v1alpha1.QuotaStatus {
	spec := &policy.Spec
	rules := capacity.Rules{
		KeepLast: keepLastOf(spec), LowerAfter: lowerAfterOf(spec),
		RaiseAfter: cmp.Or(spec.Advanced.RaiseAfterRounds, 2), BelowReserved: spec.Advanced.LowerBelowReserved,
	}
	period := seconds(spec.PeriodSeconds, 60)
	rules.SinceLast, rules.IsEarly = sinceLastRound(policy, now), isEarly(policy, now)
	// After a long gap, as while no operator ran, nothing is known of the time in between.
	isGap := policy.Status.LastRoundTime == nil || rules.SinceLast > 3*period
	last := map[quotaKey]v1alpha1.QuotaStatus{}
	for _, q := range policy.Status.Quotas {
		if isGap {
			q = capacity.RestartClocks(q, now)
		}
		last[quotaKey{q.Flavor, q.Resource}] = q
	}
	var quotas []v1alpha1.QuotaStatus
	for i := range spec.Quotas {
		q := &spec.Quotas[i]
		key := quotaKey{q.Flavor, q.Resource}
		quotas = append(quotas, capacity.Next(q, rules, last[key], measured.readings[i], cohort.use(key), now))
	}
	return quotas
}

// quotaKey identifies a quota within a Cohort.
type quotaKey struct{ flavor, resource string }

func seconds(n int32, otherwise int32) time.Duration {
	return time.Duration(cmp.Or(n, otherwise)) * time.Second
}

// pointedSeconds is seconds for a field in which 0 is a value.
func pointedSeconds(n *int32, otherwise int32) time.Duration {
	if n == nil {
		n = &otherwise
	}
	return time.Duration(*n) * time.Second
}
