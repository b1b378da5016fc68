package kueuestate

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// IsBeingEvicted reports whether an eviction has begun and is not complete. Kueue clears the workload's
// clusters when the eviction begins. The copy on the worker ends later, and with it the job on the hub
// and the quota: Kueue stops the copy only while the worker is a member of the MultiKueueConfig.
func IsBeingEvicted(wl *kueue.Workload) bool { return IsEvicted(wl) && HoldsQuota(wl) }

// IsEvictionStuck reports whether an eviction can complete only after a nomination:
//  1. The workload's copy vanished from the worker while the job ran.
//  2. Kueue marks the workload Evicted but keeps its quota, even after a deactivation,
//     until some cluster admits the workload.
//  3. No other component nominates clusters for an evicted workload.
//
// lag is how long MultiKueue takes to complete an eviction. If the eviction is too recent, IsEvictionStuck returns
// false and the remaining time.
func IsEvictionStuck(wl *kueue.Workload, multiKueue string, lag time.Duration, now time.Time) (bool, time.Duration) {
	entry := FindCheck(wl, multiKueue)
	if !IsBeingEvicted(wl) || !WantsNomination(wl, multiKueue) {
		return false, 0
	}
	since := entry.LastTransitionTime.Time
	if evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); evicted.LastTransitionTime.After(since) {
		since = evicted.LastTransitionTime.Time
	}
	if remaining := EvictionGrace(wl, lag) - now.Sub(since); remaining > 0 {
		return false, remaining
	}
	return true, 0
}

// EvictionGrace is the time that Kueue may take to complete the eviction of a workload that
// MultiKueue sent to a worker.
//   - Active: MultiKueue stops the copy on the worker, and the quota stays reserved while the job on
//     the hub counts as active.
//   - Inactive: MultiKueue deletes the copy at once. Nothing updates the job on the hub after that.
func EvictionGrace(wl *kueue.Workload, lag time.Duration) time.Duration {
	if !IsActive(wl) {
		return timing.EvictionGrace
	}
	grace := timing.EvictionGrace + lag
	if countsTerminatingPods(wl) {
		grace += PodGrace(wl)
	}
	return grace
}

// EvictionTimes returns when an eviction of a workload that ran on a worker began, and when it was
// complete. ok is false if there is none, or if it waited for more than MultiKueue: for the last pod,
// or for a worker that ended the workload.
func EvictionTimes(wl *kueue.Workload) (began, complete time.Time, ok bool) {
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	quota := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if !IsEvicted(wl) || IsEvictedByAdmissionCheck(wl) || countsTerminatingPods(wl) || quota == nil || quota.Status != metav1.ConditionFalse {
		return time.Time{}, time.Time{}, false
	}
	return evicted.LastTransitionTime.Time, quota.LastTransitionTime.Time, true
}

// groupsWithoutTerminatingPods are the API groups of jobs that do not count as active while their
// last pods terminate: status.active of a Job, JobSet, TrainJob, PyTorchJob or MPIJob leaves such pods
// out. Pods on the hub have no node, so the API server grants them no time to end.
var groupsWithoutTerminatingPods = []string{"", "batch", "jobset.x-k8s.io", "kubeflow.org", "trainer.kubeflow.org"}

// countsTerminatingPods reports whether the workload's job may count as active until its last pod
// has ended, as those of KubeRay do.
func countsTerminatingPods(wl *kueue.Workload) bool {
	for _, ref := range wl.OwnerReferences {
		if !slices.Contains(groupsWithoutTerminatingPods, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group) {
			return true
		}
	}
	return len(wl.OwnerReferences) == 0
}

// PodGrace is the largest grace period of the workload's pods: 30 s for a pod template that has none,
// and timing.MaxPodGrace at most.
func PodGrace(wl *kueue.Workload) time.Duration {
	var longest time.Duration
	for i := range wl.Spec.PodSets {
		grace := timing.DefaultPodGrace
		if seconds := wl.Spec.PodSets[i].Template.Spec.TerminationGracePeriodSeconds; seconds != nil {
			grace = time.Duration(min(max(*seconds, 0), int64(timing.MaxPodGrace/time.Second))) * time.Second
		}
		longest = max(longest, grace)
	}
	return longest
}
