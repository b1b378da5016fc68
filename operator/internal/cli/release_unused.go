package cli

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// releaseUnused removes a gate's MultiKueueClusters that nothing uses. One that its
// gate takes up again at that moment is made anew before its configuration names it.
func releaseUnused(ctx context.Context, a *app, name string, dryRun bool) error {
	c, _, err := a.connect()
	if err != nil {
		return err
	}
	clusters := &kueue.MultiKueueClusterList{}
	if err := c.List(ctx, clusters, client.MatchingLabels{v1alpha1.ManagedByLabel: name}); err != nil {
		return reading("MultiKueueClusters", err)
	}
	used, err := usedClusters(ctx, c)
	if err != nil {
		return err
	}
	var doomed []client.Object
	for i := range clusters.Items {
		if !used[clusters.Items[i].Name] {
			doomed = append(doomed, &clusters.Items[i])
		}
	}
	return a.remove(ctx, c, doomed, dryRun)
}

// usedClusters are named by a configuration, or an unfinished workload is on them or
// nominated to them.
func usedClusters(ctx context.Context, c client.Client) (map[string]bool, error) {
	configs, workloads := &kueue.MultiKueueConfigList{}, &kueue.WorkloadList{}
	if err := c.List(ctx, workloads); err != nil {
		return nil, reading("workloads", err)
	}
	if err := c.List(ctx, configs); err != nil {
		return nil, reading("MultiKueueConfigs", err)
	}
	used := map[string]bool{}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if kueuestate.IsFinished(wl) {
			continue
		}
		for _, cluster := range wl.Status.NominatedClusterNames {
			used[cluster] = true
		}
		if on := wl.Status.ClusterName; on != nil {
			used[*on] = true
		}
	}
	for _, config := range configs.Items {
		for _, cluster := range config.Spec.Clusters {
			used[cluster] = true
		}
	}
	return used, nil
}
