package scoringpolicy

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// maxSettleTime is the longest wait between a change of a policy's clusters and the round
// that takes it into account. Changes within this time cause one round together.
const maxSettleTime = 5 * time.Second

// settleTime returns the wait after a change of the clusters of a policy.
func settleTime(policy *v1alpha1.ScoringPolicy) time.Duration {
	return min(maxSettleTime, periodOf(policy)/4)
}

// clusterHandler schedules a round of each policy whose clusters an event changes.
// Clusters that exist when the operator starts are part of the first rounds.
func (r *Reconciler) clusterHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList {
				r.enqueueAffected(ctx, q, nil, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.enqueueAffected(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.enqueueAffected(ctx, q, e.Object, nil)
		},
	}
}

func (r *Reconciler) enqueueAffected(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], before, after client.Object) {
	old, _ := before.(*clusterv1.ManagedCluster)
	updated, _ := after.(*clusterv1.ManagedCluster)
	r.forEachPolicy(ctx, func(policy *v1alpha1.ScoringPolicy) {
		// The information of a source that does not exist is empty: clusters then match
		// by name.
		_, info, _ := r.sources.For(policy.Spec.SourceRef.Name)
		if changesClusters(policy, info, old, updated) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(policy)}, settleTime(policy))
		}
	})
}

// changesClusters reports whether a change of a ManagedCluster changes the clusters of a
// policy: the cluster joins or leaves, is replaced by another one of the same name, or other
// series belong to it. before is nil for a
// new cluster, and after for a deleted one.
func changesClusters(policy *v1alpha1.ScoringPolicy, info query.SourceInfo, before, after *clusterv1.ManagedCluster) bool {
	wasSelected, is := selects(policy, before), selects(policy, after)
	if wasSelected && is {
		return before.UID != after.UID || clustermap.SeriesValue(before, info) != clustermap.SeriesValue(after, info)
	}
	return wasSelected != is
}

// selects reports whether the cluster belongs to the policy. cluster may be nil. An
// invalid selector selects nothing.
func selects(policy *v1alpha1.ScoringPolicy, cluster *clusterv1.ManagedCluster) bool {
	if cluster == nil || !hubstate.IsMember(cluster) {
		return false
	}
	if policy.Spec.ClusterSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.ClusterSelector)
	return err == nil && selector.Matches(labels.Set(cluster.Labels))
}
