package workload

import (
	"context"
	"fmt"

	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// aliases turn the value of a series' cluster label into the ManagedCluster's
// name; nil = it is the name.
func (a *asker) aliases(ctx context.Context, info query.SourceInfo) (map[string]string, error) {
	match := v1alpha1.ClusterMatch(info.Match)
	if match != v1alpha1.MatchLabel && match != v1alpha1.MatchClusterClaim {
		return nil, nil
	}
	clusters := &clusterv1.ManagedClusterList{}
	if err := a.client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ManagedClusters: %w", err)
	}
	names := map[string]string{}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		if match == v1alpha1.MatchLabel {
			if value := c.Labels[info.Key]; value != "" {
				names[value] = c.Name
			}
			continue
		}
		for _, claim := range c.Status.ClusterClaims {
			if claim.Name == info.Key {
				names[claim.Value] = c.Name
			}
		}
	}
	return names, nil
}
