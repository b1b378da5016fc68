package querycache

import (
	"context"
	"fmt"
	"maps"

	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// aliases turn the value of a series' cluster label into the ManagedCluster's
// name; nil = it is the name. What several clusters are called is nobody's.
func (a *Cache) clusterAliases(ctx context.Context, info query.SourceInfo) (map[string]string, error) {
	match := v1alpha1.ClusterMatch(info.Match)
	if match != v1alpha1.MatchLabel && match != v1alpha1.MatchClusterClaim {
		return nil, nil
	}
	clusters := &clusterv1.ManagedClusterList{}
	if err := a.client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ManagedClusters: %w", err)
	}
	names, shared := map[string]string{}, map[string]bool{}
	for i := range clusters.Items {
		key := clustermap.SeriesValue(&clusters.Items[i], info)
		if key == "" {
			continue
		}
		_, shared[key] = names[key]
		names[key] = clusters.Items[i].Name
	}
	maps.DeleteFunc(names, func(key, _ string) bool { return shared[key] })
	return names, nil
}
