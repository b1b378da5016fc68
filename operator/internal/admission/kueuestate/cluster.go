package kueuestate

import (
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// ClusterOf is the cluster that admitted a workload; empty = none yet.
func ClusterOf(wl *kueue.Workload) string {
	if wl.Status.ClusterName == nil {
		return ""
	}
	return *wl.Status.ClusterName
}

// PlacedCluster is the cluster that runs, or is about to run, the workload: the cluster in its status or,
// without MultiKueue, SentCluster once Kueue has admitted the workload. Empty = none yet.
func (c Checks) PlacedCluster(wl *kueue.Workload) string {
	if wl.Status.ClusterName != nil || !IsAdmitted(wl) || c.MultiKueue != "" {
		return ClusterOf(wl)
	}
	return c.SentCluster(wl)
}

// SentCluster is the cluster that the gate recorded as its choice in the podSetUpdates of its Ready check, as
// annotation v1alpha1.ClusterAnnotation; empty = none. A gate that nominates clusters records none there.
func (c Checks) SentCluster(wl *kueue.Workload) string {
	if len(c.Own) == 0 {
		return ""
	}
	check := FindCheck(wl, c.Own[0])
	if check == nil || check.State != kueue.CheckStateReady {
		return ""
	}
	for _, update := range check.PodSetUpdates {
		if cluster := update.Annotations[v1alpha1.ClusterAnnotation]; cluster != "" {
			return cluster
		}
	}
	return ""
}

// DisconnectedReason returns why MultiKueue cannot send workloads to a cluster, as a
// predicate after the cluster's name, or "". cluster is the
// MultiKueueCluster of this name; nil means not found.
func DisconnectedReason(config *kueue.MultiKueueConfig, name string, cluster *kueue.MultiKueueCluster) string {
	if !slices.Contains(config.Spec.Clusters, name) {
		return "is not in MultiKueueConfig " + config.Name
	}
	if cluster == nil {
		return "has no MultiKueueCluster"
	}
	switch active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive); {
	case active == nil:
		return "is not yet connected by Kueue"
	case active.Status != metav1.ConditionTrue:
		return "is not connected by Kueue: " + active.Message
	}
	return ""
}
