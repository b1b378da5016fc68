package kueuestate

import (
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// PlacedCluster returns the cluster with the workload, or "": the cluster in the workload's
// status or, without MultiKueue, SentCluster once Kueue has admitted the workload. own are
// the workload's checks of gates. multiKueue is the check of MultiKueue, or "".
func PlacedCluster(wl *kueue.Workload, own []string, multiKueue string) string {
	if wl.Status.ClusterName != nil {
		return *wl.Status.ClusterName
	}
	if !IsAdmitted(wl) {
		return ""
	}
	return SentCluster(wl, own, multiKueue)
}

// SentCluster returns the gate's choice for a workload without MultiKueue, or "". The gate records its choice in the podSetUpdates of its Ready check, as annotation
// v1alpha1.ClusterAnnotation.
func SentCluster(wl *kueue.Workload, own []string, multiKueue string) string {
	if multiKueue != "" || len(own) == 0 {
		return ""
	}
	check := FindCheck(wl, own[0])
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
