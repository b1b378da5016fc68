package placementgate

import (
	"context"
	"fmt"

	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// gatePredicate reports whether a changed object affects a gate.
type gatePredicate func(*v1alpha1.PlacementGateSpec, client.Object) bool

// enqueueGates returns a handler that enqueues every gate that a changed object affects.
func (r *Reconciler) enqueueGates(affects gatePredicate) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return r.affectedGates(ctx, obj, affects)
	})
}

func (r *Reconciler) affectedGates(ctx context.Context, obj client.Object, affects gatePredicate) []reconcile.Request {
	gates := &v1alpha1.PlacementGateList{}
	if err := r.client.List(ctx, gates); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the PlacementGates of a changed object; they reconcile at their next period",
			"type", fmt.Sprintf("%T", obj), "object", client.ObjectKeyFromObject(obj))
		return nil
	}
	var requests []reconcile.Request
	for i := range gates.Items {
		if affects(&gates.Items[i].Spec, obj) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&gates.Items[i])})
		}
	}
	return requests
}

func usesPlacement(spec *v1alpha1.PlacementGateSpec, placement client.Object) bool {
	return placement.GetNamespace() == spec.PlacementRef.Namespace && placement.GetName() == spec.PlacementRef.Name
}

func usesPlacementDecision(spec *v1alpha1.PlacementGateSpec, decision client.Object) bool {
	return decision.GetNamespace() == spec.PlacementRef.Namespace &&
		decision.GetLabels()[clusterv1beta1.PlacementLabel] == spec.PlacementRef.Name
}

func usesPlacementScore(spec *v1alpha1.PlacementGateSpec, score client.Object) bool {
	for _, p := range spec.Scores {
		if p.ResourceName == score.GetName() {
			return true
		}
	}
	return false
}

func usesSource(spec *v1alpha1.PlacementGateSpec, source client.Object) bool {
	return source.GetName() == spec.SourceRef.Name
}

func namesConfig(spec *v1alpha1.PlacementGateSpec, config client.Object) bool {
	return spec.MultiKueue != nil && spec.MultiKueue.ConfigName == config.GetName()
}

// maintainsClusters reports whether the gate writes MultiKueueClusters. A change of any of
// them may affect the gate: a cluster that is not the gate's own may block a name.
func maintainsClusters(spec *v1alpha1.PlacementGateSpec, _ client.Object) bool {
	return spec.MultiKueue != nil
}
