package kueuestate

import (
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Unconnected says why MultiKueue can send nothing to a cluster, to follow its name
// in a sentence; empty = it can. cluster is nil where there is none of that name.
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
