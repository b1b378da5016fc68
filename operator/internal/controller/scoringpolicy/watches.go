package scoringpolicy

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
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

// scoreHandler schedules a round of each policy whose AddOnPlacementScore was deleted, or that publishes
// under a name that another policy or component has given up. OCM reads 0 for a cluster without the object,
// and the next round can be a day away. What a policy deletes itself is of a cluster that it does not select,
// or has another name.
func (r *Reconciler) scoreHandler() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		cluster := &clusterv1.ManagedCluster{}
		found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: e.Object.GetNamespace()}, cluster)
		if err != nil {
			log.FromContext(ctx).Error(err, "Could not read the cluster of a deleted AddOnPlacementScore; its policies run at their next period")
		}
		if !found {
			return
		}
		r.forEachPolicy(ctx, func(policy *v1alpha1.ScoringPolicy) {
			if publishes(policy, e.Object.GetName()) && selects(policy, cluster) {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(policy)}, settleTime(policy))
			}
		})
	}}
}

// publishes reports whether a policy publishes AddOnPlacementScores of a name.
func publishes(policy *v1alpha1.ScoringPolicy, name string) bool {
	return publishName(policy) == name && policy.Spec.Mode != v1alpha1.ModeShadow && policy.DeletionTimestamp == nil
}

// publishName returns the name of the AddOnPlacementScores of a policy.
func publishName(policy *v1alpha1.ScoringPolicy) string {
	return cmp.Or(policy.Spec.Publish.Name, policy.Name)
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
