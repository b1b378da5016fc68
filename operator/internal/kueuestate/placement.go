package kueuestate

import (
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Placed is the cluster that has the workload: the one that MultiKueue says or,
// without MultiKueue, the one that it was sent to once Kueue has admitted it. own are
// the checks that gates decide, multiKueue is MultiKueue's; empty = none.
func PlacedCluster(wl *kueue.Workload, own []string, multiKueue string) string {
	if wl.Status.ClusterName != nil {
		return *wl.Status.ClusterName
	}
	if !IsAdmitted(wl) {
		return ""
	}
	return SentCluster(wl, own, multiKueue)
}

// Sent is where a workload without MultiKueue was sent; empty = nowhere yet. Its Ready
// check is all that tells.
func SentCluster(wl *kueue.Workload, own []string, multiKueue string) string {
	if multiKueue != "" || len(own) == 0 {
		return ""
	}
	if c := FindCheck(wl, own[0]); c == nil || c.State != kueue.CheckStateReady {
		return ""
	}
	return ChosenCluster(FindCheck(wl, own[0]).Message)
}

// Chosen is the cluster that the message of a Ready check names; empty = none.
func ChosenCluster(message string) string {
	cluster, rest, _ := strings.Cut(message, " ")
	if strings.HasPrefix(rest, "can take it") || strings.HasPrefix(rest, "may take it") {
		return cluster
	}
	return ""
}
