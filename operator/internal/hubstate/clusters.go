package hubstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ManagedClusters lists the members of the hub's fleet by name: the ManagedClusters
// that the hub has accepted and that are not being deleted.
func ManagedClusters(ctx context.Context, reader client.Reader) ([]clusterv1.ManagedCluster, error) {
	list := &clusterv1.ManagedClusterList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ManagedClusters: %w", err)
	}
	members := make([]clusterv1.ManagedCluster, 0, len(list.Items))
	for i := range list.Items {
		if c := &list.Items[i]; IsMember(c) {
			members = append(members, *c)
		}
	}
	slices.SortFunc(members, func(a, b clusterv1.ManagedCluster) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}

// IsMember reports whether the hub has accepted the cluster and it is not being deleted.
func IsMember(c *clusterv1.ManagedCluster) bool {
	return c.Spec.HubAcceptsClient && c.DeletionTimestamp.IsZero()
}

// SelectNames returns the names of the clusters whose labels match, in the order of
// clusters. A nil selector matches every cluster. An invalid selector is an error.
func SelectNames(clusters []clusterv1.ManagedCluster, selector *metav1.LabelSelector) ([]string, error) {
	matcher := labels.Everything()
	if selector != nil {
		var err error
		if matcher, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, err
		}
	}
	var names []string
	for i := range clusters {
		if matcher.Matches(labels.Set(clusters[i].Labels)) {
			names = append(names, clusters[i].Name)
		}
	}
	return names, nil
}

// DecidedClusters returns the union of a Placement's decisions: in the order of its
// PlacementDecisions by name, each cluster once. A Placement that does not exist has
// no decisions.
func DecidedClusters(ctx context.Context, reader client.Reader, placement client.ObjectKey) ([]string, error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	err := reader.List(ctx, list, client.InNamespace(placement.Namespace), client.MatchingLabels{clusterv1beta1.PlacementLabel: placement.Name})
	if err != nil {
		return nil, fmt.Errorf("list PlacementDecisions of Placement %s: %w", placement, err)
	}
	slices.SortFunc(list.Items, func(a, b clusterv1beta1.PlacementDecision) int { return cmp.Compare(a.Name, b.Name) })
	var names []string
	seen := map[string]bool{"": true}
	for i := range list.Items {
		for _, decision := range list.Items[i].Status.Decisions {
			if !seen[decision.ClusterName] {
				seen[decision.ClusterName] = true
				names = append(names, decision.ClusterName)
			}
		}
	}
	return names, nil
}
