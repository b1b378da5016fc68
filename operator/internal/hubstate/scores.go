package hubstate

import (
	"context"
	"fmt"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PlacementScores lists the AddOnPlacementScores of every cluster, by cluster name.
// Restrict the list with the usual options, such as client.InNamespace(cluster).
func PlacementScores(ctx context.Context, reader client.Reader, opts ...client.ListOption) (map[string][]clusterv1alpha1.AddOnPlacementScore, error) {
	list := &clusterv1alpha1.AddOnPlacementScoreList{}
	if err := reader.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list AddOnPlacementScores: %w", err)
	}
	scores := map[string][]clusterv1alpha1.AddOnPlacementScore{}
	for i := range list.Items {
		cluster := list.Items[i].Namespace
		scores[cluster] = append(scores[cluster], list.Items[i])
	}
	return scores, nil
}

// PlacementScore reads one AddOnPlacementScore of a cluster. It is nil if the cluster
// has none of that name.
func PlacementScore(ctx context.Context, reader client.Reader, cluster, name string) (*clusterv1alpha1.AddOnPlacementScore, error) {
	object := &clusterv1alpha1.AddOnPlacementScore{}
	found, err := Find(ctx, reader, client.ObjectKey{Namespace: cluster, Name: name}, object)
	if !found {
		return nil, err
	}
	return object, nil
}
