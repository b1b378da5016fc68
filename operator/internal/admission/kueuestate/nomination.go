package kueuestate

import (
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Annotations that decide where a workload goes.
const (
	elasticAnnotation = "kueue.x-k8s.io/elastic-job"
	// replacedSliceAnnotation names the slice that a slice of an elastic job replaces, as
	// namespace/name.
	replacedSliceAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// ClusterNamesAnnotation is a list of MultiKueueClusters, separated by commas, to which a
	// user restricts the workload.
	ClusterNamesAnnotation = "kueue.x-k8s.io/multikueue-cluster-names"
)

// IsElastic reports whether the workload is a slice of an elastic job.
func IsElastic(wl *kueue.Workload) bool { return wl.Annotations[elasticAnnotation] == "true" }

// ReplacedSlice returns the name of the slice that the workload, a slice of an elastic job, replaces.
// It is empty for a workload that replaces none in its namespace.
func ReplacedSlice(wl *kueue.Workload) string {
	namespace, name, _ := strings.Cut(wl.Annotations[replacedSliceAnnotation], "/")
	if !IsElastic(wl) || namespace != wl.Namespace {
		return ""
	}
	return name
}

// IsPinnedByKueue reports whether Kueue itself chooses the cluster: the workload is a slice
// of an elastic job that already has a cluster, or a component that follows its primary.
func IsPinnedByKueue(wl *kueue.Workload) bool {
	if IsElastic(wl) && wl.Status.ClusterName != nil {
		return true
	}
	return FollowsPrimary(wl)
}

// PermittedClusters returns the clusters to which the user's annotation restricts the workload,
// sorted and without duplicates. Without the annotation the workload is not restricted.
func PermittedClusters(wl *kueue.Workload) (names []string, isRestricted bool) {
	list, isRestricted := wl.Annotations[ClusterNamesAnnotation]
	if !isRestricted {
		return nil, false
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// AllowsCluster reports whether the user's annotation permits a cluster. Without the
// annotation every cluster is permitted.
func AllowsCluster(wl *kueue.Workload, cluster string) bool {
	names, isRestricted := PermittedClusters(wl)
	return !isRestricted || slices.Contains(names, cluster)
}

// WantsNomination reports whether MultiKueue's check waits for nominated clusters.
func WantsNomination(wl *kueue.Workload, multiKueue string) bool {
	entry := FindCheck(wl, multiKueue)
	return entry != nil && entry.State == kueue.CheckStatePending && wl.Status.ClusterName == nil && !IsPinnedByKueue(wl)
}

// AcceptsNomination reports whether Kueue acts on a nomination now: the workload is on its
// way to admission, or an eviction is stuck and needs a nomination to complete. lag is how long
// MultiKueue takes to act.
func AcceptsNomination(wl *kueue.Workload, multiKueue string, lag time.Duration, now time.Time) bool {
	stuck, _ := IsEvictionStuck(wl, multiKueue, lag, now)
	return (AcceptsCheckUpdate(wl) || stuck) && WantsNomination(wl, multiKueue) && OtherChecksReady(wl, multiKueue)
}

// UnnominatedSince returns since when a workload is ready for nomination and has no
// nominated clusters: it holds quota and every check except MultiKueue's is Ready.
// It returns the zero time if the workload is in another state.
func UnnominatedSince(wl *kueue.Workload, multiKueue string) time.Time {
	if !AcceptsCheckUpdate(wl) || !WantsNomination(wl, multiKueue) || !OtherChecksReady(wl, multiKueue) || len(wl.Status.NominatedClusterNames) > 0 {
		return time.Time{}
	}
	since := QuotaReservedAt(wl)
	for _, c := range wl.Status.AdmissionChecks {
		if string(c.Name) != multiKueue && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
