package scoringpolicy

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// sourceChanged selects the events of a source after which its policies should run a
// round at once: a new source, a changed spec, and a change of Reachable.
func sourceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.MetricsSource)
		after, ok2 := e.ObjectNew.(*v1alpha1.MetricsSource)
		return ok1 && ok2 && (before.Generation != after.Generation || isReachable(before) != isReachable(after))
	}}
}

func isReachable(s *v1alpha1.MetricsSource) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReachable)
}

// clusterChanged selects the events of a cluster that change the selection or the
// mapping to series. Heartbeats of clusters are frequent, and change neither.
func clusterChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*clusterv1.ManagedCluster)
		after, ok2 := e.ObjectNew.(*clusterv1.ManagedCluster)
		return ok1 && ok2 && (before.Spec.HubAcceptsClient != after.Spec.HubAcceptsClient ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!maps.Equal(before.Labels, after.Labels) ||
			!slices.Equal(before.Status.ClusterClaims, after.Status.ClusterClaims))
	}}
}

func (r *Reconciler) policiesOfSource(ctx context.Context, source client.Object) []reconcile.Request {
	return r.requests(ctx, func(p *v1alpha1.ScoringPolicy) bool { return p.Spec.SourceRef.Name == source.GetName() })
}

func (r *Reconciler) policiesOfCluster(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx, func(*v1alpha1.ScoringPolicy) bool { return true })
}

// requests returns a request for every policy that matches.
func (r *Reconciler) requests(ctx context.Context, matches func(*v1alpha1.ScoringPolicy) bool) []reconcile.Request {
	var list v1alpha1.ScoringPolicyList
	if err := r.client.List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the ScoringPolicies of a changed object; they run at their next period")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if matches(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
