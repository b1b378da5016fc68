package placementgate

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// clusterUseIndex is a field index of Workloads. Its values are the pairs of an admission
// check and a cluster that clusterUse formats.
const clusterUseIndex = "plimsoll.clusterUse"

func clusterUse(check, cluster string) string { return check + "/" + cluster }

// clusterUses returns the values of clusterUseIndex for an unfinished workload: each of its
// checks with the cluster that runs the workload and with each nominated cluster.
func clusterUses(obj client.Object) []string {
	wl, ok := obj.(*kueue.Workload)
	if !ok || kueuestate.IsFinished(wl) {
		return nil
	}
	clusters := slices.Clone(wl.Status.NominatedClusterNames)
	if wl.Status.ClusterName != nil {
		clusters = append(clusters, *wl.Status.ClusterName)
	}
	var values []string
	for _, check := range wl.Status.AdmissionChecks {
		for _, cluster := range clusters {
			values = append(values, clusterUse(string(check.Name), cluster))
		}
	}
	return values
}

// gatherClustersInUse returns the members of the configuration that an unfinished workload
// runs on or is nominated to. Decided clusters stay members in any case, unless another cluster is
// requested.
func (r *Reconciler) gatherClustersInUse(ctx context.Context, in *input) (map[string]bool, error) {
	inUse := map[string]bool{}
	if in.config == nil {
		return inUse, nil
	}
	checks, err := r.checksOfConfig(ctx, in.config.Name)
	if err != nil {
		return nil, err
	}
	for _, member := range in.config.Spec.Clusters {
		if len(in.requested) == 0 && slices.ContainsFunc(in.clusters, func(c registry.Cluster) bool { return c.Name == member }) {
			continue
		}
		for _, check := range checks {
			users := &kueue.WorkloadList{}
			if err := r.client.List(ctx, users, client.MatchingFields{clusterUseIndex: clusterUse(check, member)}, client.Limit(1)); err != nil {
				return nil, fmt.Errorf("list Workloads on cluster %s with AdmissionCheck %s: %w", member, check, err)
			}
			inUse[member] = inUse[member] || len(users.Items) > 0
		}
	}
	return inUse, nil
}

// checksOfConfig returns the names of the admission checks that use a MultiKueueConfig.
func (r *Reconciler) checksOfConfig(ctx context.Context, name string) ([]string, error) {
	list := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list AdmissionChecks: %w", err)
	}
	var checks []string
	for i := range list.Items {
		if config, ok := kueuestate.MultiKueueConfigOf(&list.Items[i]); ok && config == name {
			checks = append(checks, list.Items[i].Name)
		}
	}
	return checks, nil
}
