package placementgate

import (
	"context"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
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
// runs on or is nominated to, or that may hold copies without any workload that says so. Decided clusters stay members in any case, unless another cluster is
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
		if inUse[member], err = r.mayHoldOrphanedCopies(ctx, in, member); err != nil {
			return nil, err
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

// mayHoldOrphanedCopies reports whether a member is disconnected, or was until recently.
// Scenario: the member becomes unreachable, and its workload is requeued and runs elsewhere.
// Kueue deletes the copy once the member is back, but only on members of the configuration. A
// cluster that has left the hub does not come back.
func (r *Reconciler) mayHoldOrphanedCopies(ctx context.Context, in *input, member string) (bool, error) {
	cluster := in.mkClusters[member]
	if cluster == nil {
		return false, nil
	}
	active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
	if active == nil {
		return false, nil // Kueue has never been connected to it
	}
	if active.Status == metav1.ConditionTrue {
		return r.opts.Now().Sub(active.LastTransitionTime.Time) < timing.CopyCleanup, nil
	}
	managed, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: member}, &clusterv1.ManagedCluster{})
	return managed, err
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
