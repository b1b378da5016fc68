package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// reconcilePolicy writes the condition Ready of a policy, and removes the trials of Workloads that
// do not exist any more.
func (r *Reconciler) reconcilePolicy(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.TrialPolicy{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, policy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found || policy.DeletionTimestamp != nil {
		r.metrics.forget(req.Name)
		return reconcile.Result{}, nil
	}
	r.metrics.add(policy.Name)
	ended, err := r.endedTrials(ctx, policy)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the Workloads of TrialPolicy %s: %w", policy.Name, err)
	}
	ready, err := r.decideReady(ctx, policy)
	if errors.Is(err, hubstate.ErrSourceNotRegistered) {
		return reconcile.Result{RequeueAfter: timing.SourceRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	changed := policy.DeepCopy()
	isChanged := condition.Set(&changed.Status.Conditions, v1alpha1.ConditionReady, ready, policy.Generation) || changed.Status.ObservedGeneration != policy.Generation
	changed.Status.ObservedGeneration = policy.Generation
	trial.End(&changed.Status, func(t v1alpha1.RunningTrial) bool { return slices.Contains(ended, t.WorkloadUID) })
	if isChanged || len(ended) > 0 {
		err = r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(policy, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: rereadDelay}, nil // the policy changed since it was read
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("TrialPolicy %s: %w", policy.Name, err)
	case !ready.IsTrue():
		return reconcile.Result{RequeueAfter: retryInterval}, nil // the source may be registered later
	}
	return reconcile.Result{}, nil
}

// endedTrials returns the UIDs of the Workloads in the status that no check keeps waiting any more. The
// operator may not have seen their end.
func (r *Reconciler) endedTrials(ctx context.Context, policy *v1alpha1.TrialPolicy) ([]string, error) {
	var ended []string
	for _, running := range policy.Status.Trials {
		t := &trialRun{wl: &kueue.Workload{}}
		found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Namespace: running.Namespace, Name: running.Workload}, t.wl)
		if err != nil {
			return nil, err
		}
		if found && string(t.wl.UID) == running.WorkloadUID && kueuestate.AcceptsCheckUpdate(t.wl) {
			if err := r.findCheck(ctx, t); err != nil {
				return nil, err
			}
		}
		if t.entry == nil {
			ended = append(ended, running.WorkloadUID)
		}
	}
	return ended, nil
}

// policiesOfSource returns the policies that query a MetricsSource.
func (r *Reconciler) policiesOfSource(ctx context.Context, source client.Object) []reconcile.Request {
	list := &v1alpha1.TrialPolicyList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "The TrialPolicies of a MetricsSource could not be listed", "source", source.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.SourceRef.Name == source.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

func (r *Reconciler) decideReady(ctx context.Context, policy *v1alpha1.TrialPolicy) (condition.Decision, error) {
	reason, problem, err := r.policyProblem(ctx, policy)
	if err == nil && problem == "" {
		// The event of a deletion may arrive before the source is unregistered.
		var found bool
		if found, err = hubstate.Find(ctx, r.client, client.ObjectKey{Name: policy.Spec.SourceRef.Name}, &v1alpha1.MetricsSource{}); err == nil && !found {
			reason, problem = v1alpha1.ReasonSourceNotFound, fmt.Sprintf("MetricsSource %q: %s", policy.Spec.SourceRef.Name, query.ErrNoSource)
		}
	}
	if problem != "" {
		return condition.False(reason, "every job passes without a trial: "+problem), err
	}
	return condition.True("Ready", "opted-in jobs are tried"), err
}

// policyProblem states why a policy can't try any job; empty = it can. An error is a failure of the
// hub, or hubstate.ErrSourceNotRegistered.
func (r *Reconciler) policyProblem(ctx context.Context, policy *v1alpha1.TrialPolicy) (reason, problem string, err error) {
	if !r.enabled {
		return v1alpha1.ReasonTrialsDisabled, "the operator runs without --trials", nil
	}
	_, info, unusable, err := hubstate.Source(ctx, r.client, r.sources, policy.Spec.SourceRef.Name)
	switch {
	case err != nil:
		return "", "", err
	case unusable != nil:
		return v1alpha1.ReasonSourceNotFound, unusable.Error(), nil
	}
	if policy.Spec.ThroughputQuery != "" {
		expr, _ := promql.ExpandClusterLabel(policy.Spec.ThroughputQuery, info.ClusterLabel)
		if _, problems := promql.ParseTemplate(expr, profile.Variables); len(problems) > 0 {
			return v1alpha1.ReasonParseError, "throughputQuery: " + promql.Strings(problems), nil
		}
	}
	return "", "", nil
}
