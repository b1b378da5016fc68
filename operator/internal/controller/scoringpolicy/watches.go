package scoringpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// sourceChanged selects the events of a source after which its policies should run a
// round at once: a new source, a changed spec, and a change of Reachable. A changed spec counts once it
// is observed: the controller of the source registers the new client before it writes the status.
func sourceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.MetricsSource)
		after, ok2 := e.ObjectNew.(*v1alpha1.MetricsSource)
		return ok1 && ok2 && (before.Status.ObservedGeneration != after.Status.ObservedGeneration || isReachable(before) != isReachable(after))
	}}
}

func isReachable(s *v1alpha1.MetricsSource) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReachable)
}

func (r *Reconciler) policiesOfSource(ctx context.Context, source client.Object) []reconcile.Request {
	var requests []reconcile.Request
	r.forEachPolicy(ctx, func(p *v1alpha1.ScoringPolicy) {
		if p.Spec.SourceRef.Name == source.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	})
	return requests
}

// forEachPolicy calls visit for every policy. visit must not change the policy.
func (r *Reconciler) forEachPolicy(ctx context.Context, visit func(*v1alpha1.ScoringPolicy)) {
	var list v1alpha1.ScoringPolicyList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the ScoringPolicies of a changed object; they run at their next period")
		return
	}
	for i := range list.Items {
		visit(&list.Items[i])
	}
}
