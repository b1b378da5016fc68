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

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// clusterUseIndex is a field index of Workloads. Its values are the pairs of an admission
// check and a cluster that clusterUse formats.
const clusterUseIndex = "plimsoll.clusterUse"

func clusterUse(check, cluster string) string { return check + "/" + cluster }

// anyCluster stands in clusterUse for a cluster that neither the workload nor its record names.
const anyCluster = ""

// clusterUses returns the function of clusterUseIndex. Its values for an unfinished workload are each of
// its checks with the cluster that runs the workload and with each nominated cluster. During an
// eviction, they are also each of its checks with the clusters that may still have its copy.
// nominates is false with Kueue's built-in dispatcher.
func clusterUses(nominates bool) client.IndexerFunc {
	return func(obj client.Object) []string {
		wl, ok := obj.(*kueue.Workload)
		if !ok || kueuestate.IsFinished(wl) {
			return nil
		}
		clusters := clustersOf(wl)
		for _, cluster := range clustersDuringEviction(wl, nominates) {
			if !slices.Contains(clusters, cluster) {
				clusters = append(clusters, cluster)
			}
		}
		var values []string
		for _, check := range wl.Status.AdmissionChecks {
			for _, cluster := range clusters {
				values = append(values, clusterUse(string(check.Name), cluster))
			}
		}
		return values
	}
}

// clustersDuringEviction returns the clusters of the attempt that an eviction is about to end, or
// anyCluster if the record may lack one of them:
//   - Kueue's built-in dispatcher nominates, which writes no record.
//   - Kueue itself chose the cluster, as for components of a job, so that the record does not exist or is
//     older than the quota.
//   - The record is that of a repair. It names the clusters of the repair, not those of the lost copy.
//   - The record does not parse or has more clusters than the operator nominates: a user wrote it.
func clustersDuringEviction(wl *kueue.Workload, nominates bool) []string {
	if !kueuestate.IsBeingEvicted(wl) {
		return nil
	}
	record, err := dispatch.Decode(wl.Annotations)
	quota := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	isComplete := nominates && err == nil && quota != nil && record.IsCurrent(quota.LastTransitionTime.Time) && !record.Repair
	if n := len(record.Nominated); !isComplete || n == 0 || n > dispatch.MaxNominated {
		return []string{anyCluster}
	}
	return record.Nominated
}

// clustersOf returns the nominated clusters of a workload and the one that runs it.
func clustersOf(wl *kueue.Workload) []string {
	clusters := slices.Clone(wl.Status.NominatedClusterNames)
	if wl.Status.ClusterName != nil {
		clusters = append(clusters, *wl.Status.ClusterName)
	}
	return clusters
}

// gatherClustersInUse returns the members of the configuration that an unfinished workload
// runs on, is nominated to or is being evicted from, or that may hold copies without any workload that
// says so. Decided clusters stay members in any case, unless another cluster is requested. If the
// configuration was deleted, every cluster with workloads was a member.
func (r *Reconciler) gatherClustersInUse(ctx context.Context, in *input) (map[string]bool, error) {
	inUse := map[string]bool{}
	checks, err := r.checksOfConfig(ctx, in.gate.Spec.MultiKueue.ConfigName)
	if err != nil {
		return nil, err
	}
	if in.config == nil {
		return r.clustersWithWorkloads(ctx, in, checks)
	}
	for _, member := range in.config.Spec.Clusters {
		if len(in.requested) == 0 && slices.ContainsFunc(in.clusters, func(c gatestate.Cluster) bool { return c.Name == member }) {
			continue
		}
		if inUse[member], err = r.hasWorkloads(ctx, member, checks); err != nil {
			return nil, err
		}
		if inUse[member] {
			continue
		}
		if inUse[member], err = r.mayHoldOrphanedCopies(ctx, in.mkClusters[member], checks); err != nil {
			return nil, err
		}
	}
	return inUse, nil
}

// clustersWithWorkloads returns the clusters that unfinished workloads with one of the checks run on or
// are nominated to, whether they have a MultiKueueCluster or not. Of a workload that is being evicted,
// they are those of its last attempt to which this gate has connected Kueue: users may write the
// record, and no cluster becomes a member because of it.
func (r *Reconciler) clustersWithWorkloads(ctx context.Context, in *input, checks []string) (map[string]bool, error) {
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Workloads of a deleted MultiKueueConfig: %w", err)
	}
	inUse := map[string]bool{}
	for i := range list.Items {
		if wl := &list.Items[i]; !kueuestate.IsFinished(wl) && hasCheck(wl, checks) {
			for _, cluster := range append(clustersOf(wl), evictedFrom(wl, in)...) {
				inUse[cluster] = true
			}
		}
	}
	return inUse, nil
}

// evictedFrom returns the clusters of the attempt that an eviction is about to end. Without a readable
// record, it returns none.
func evictedFrom(wl *kueue.Workload, in *input) []string {
	if !kueuestate.IsBeingEvicted(wl) {
		return nil
	}
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(record.Nominated, func(name string) bool {
		cluster := in.mkClusters[name]
		return cluster == nil || ownerOf(cluster) != in.gate.Name
	})
}

func hasCheck(wl *kueue.Workload, checks []string) bool {
	return slices.ContainsFunc(checks, func(name string) bool { return kueuestate.FindCheck(wl, name) != nil })
}

// hasWorkloads reports whether an unfinished workload with one of the checks runs on a cluster, is
// nominated to it, or is being evicted from it or from a cluster that is not known any more.
func (r *Reconciler) hasWorkloads(ctx context.Context, cluster string, checks []string) (bool, error) {
	for _, check := range checks {
		for _, use := range []string{clusterUse(check, cluster), clusterUse(check, anyCluster)} {
			users := &kueue.WorkloadList{}
			if err := r.client.List(ctx, users, client.MatchingFields{clusterUseIndex: use}, client.Limit(1)); err != nil {
				return false, fmt.Errorf("list Workloads on cluster %s with AdmissionCheck %s: %w", cluster, check, err)
			}
			if len(users.Items) > 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// mayHoldOrphanedCopies reports whether a member is disconnected, or was until recently.
// Scenario: the member becomes unreachable, and its workload is requeued and runs elsewhere.
// Kueue deletes the copy once the member is back, but only on members of the configuration. A
// cluster that has left the hub does not come back, and one that was never connected holds nothing.
func (r *Reconciler) mayHoldOrphanedCopies(ctx context.Context, cluster *kueue.MultiKueueCluster, checks []string) (bool, error) {
	if cluster == nil {
		return false, nil
	}
	active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
	if active == nil {
		return false, nil // Kueue has not tried to connect to it
	}
	if active.Status == metav1.ConditionTrue {
		return r.opts.Now().Sub(active.LastTransitionTime.Time) < timing.CopyCleanup, nil
	}
	if hasNeverConnected(cluster, active) {
		if was, err := r.wasNominated(ctx, cluster.Name, checks); err != nil || !was {
			return false, err
		}
	}
	managed, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: cluster.Name}, &clusterv1.ManagedCluster{})
	return managed, err
}

// hasNeverConnected reports whether an inactive cluster has been so since Kueue first tried to connect
// to it. A connection, and its end, would have changed the condition later.
func hasNeverConnected(cluster *kueue.MultiKueueCluster, active *metav1.Condition) bool {
	return active.LastTransitionTime.Sub(cluster.CreationTimestamp.Time) <= timing.FirstConnection
}

// wasNominated reports whether an unfinished workload with one of the checks was ever sent to a
// cluster. A connection that lasted for seconds is not visible in the condition.
func (r *Reconciler) wasNominated(ctx context.Context, cluster string, checks []string) (bool, error) {
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list Workloads that were nominated to cluster %s: %w", cluster, err)
	}
	for i := range list.Items {
		wl := &list.Items[i]
		if !hasCheck(wl, checks) || kueuestate.IsFinished(wl) {
			continue
		}
		if record, err := dispatch.Decode(wl.Annotations); err != nil || slices.Contains(record.Sent(), cluster) {
			return true, nil
		}
	}
	return false, nil
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
