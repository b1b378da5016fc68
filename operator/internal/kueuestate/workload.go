package kueuestate

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Annotations by which Kueue marks workloads that it pins to a cluster itself.
const (
	elasticAnnotation   = "kueue.x-k8s.io/elastic-job"
	ComponentAnnotation = "kueue.x-k8s.io/component-workload-index"
)

// FindCheck returns the workload's entry of that check; nil when it has none.
func FindCheck(wl *kueue.Workload, name string) *kueue.AdmissionCheckState {
	for i := range wl.Status.AdmissionChecks {
		if string(wl.Status.AdmissionChecks[i].Name) == name {
			return &wl.Status.AdmissionChecks[i]
		}
	}
	return nil
}

// IsFinished says whether the workload is done.
func IsFinished(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
}

// IsAdmitted says whether Kueue has admitted the workload.
func IsAdmitted(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)
}

// HoldsQuota says whether the workload is alive and has quota reserved.
func HoldsQuota(wl *kueue.Workload) bool {
	return wl.DeletionTimestamp.IsZero() && !IsFinished(wl) && wl.Status.Admission != nil &&
		apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
}

// Evictions that the workload went through so far. They seed its draw: it need not
// go again where it was.
func CountEvictions(wl *kueue.Workload) int {
	n := 0
	if stats := wl.Status.SchedulingStats; stats != nil {
		for _, e := range stats.Evictions {
			n += int(e.Count)
		}
	}
	return n
}

// IsEvicted says whether an eviction is under way.
func IsEvicted(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
}

// IsEvictedByCheck says that a check evicted it: for a workload that ran, MultiKueue's,
// because the worker had ended it or was lost for long.
func IsEvictedByAdmissionCheck(wl *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	return IsEvicted(wl) && c.Reason == kueue.WorkloadEvictedByAdmissionCheck
}

// MayWrite says whether Kueue's state allows writing to the workload's checks.
func AcceptsCheckUpdate(wl *kueue.Workload) bool {
	active := wl.Spec.Active == nil || *wl.Spec.Active
	return active && HoldsQuota(wl) && !IsEvicted(wl)
}

// OthersReady says whether every check but those named is Ready.
func OtherChecksReady(wl *kueue.Workload, except ...string) bool {
	for _, c := range wl.Status.AdmissionChecks {
		if c.State == kueue.CheckStateReady {
			continue
		}
		skip := false
		for _, name := range except {
			skip = skip || string(c.Name) == name
		}
		if !skip {
			return false
		}
	}
	return true
}

// Pinned says whether Kueue itself chooses the cluster: a slice of an elastic
// workload that already has one, or a component that follows its primary.
func IsPinnedByKueue(wl *kueue.Workload) bool {
	if wl.Annotations[elasticAnnotation] == "true" && wl.Status.ClusterName != nil {
		return true
	}
	index, ok := wl.Annotations[ComponentAnnotation]
	return ok && index != "0"
}

// WantsNomination says whether the MultiKueue check waits for clusters.
func WantsNomination(wl *kueue.Workload, check string) bool {
	entry := FindCheck(wl, check)
	return entry != nil && entry.State == kueue.CheckStatePending && wl.Status.ClusterName == nil && !IsPinnedByKueue(wl)
}

// MayNominate says whether Kueue's state allows a nomination now: on the usual way
// to admission, or because a stuck eviction needs one.
func AcceptsNomination(wl *kueue.Workload, check string, now time.Time) bool {
	stuck, _ := IsEvictionStuck(wl, check, now)
	return (AcceptsCheckUpdate(wl) || stuck) && WantsNomination(wl, check) && OtherChecksReady(wl, check)
}

// Deadlocked says whether an eviction waits for a cluster that nobody else will
// nominate: the copy vanished while the job ran, and Kueue keeps the workload
// Evicted with its quota, also when it was deactivated, until a cluster admits it.
// When it is not yet so, the duration says how long to wait.
func IsEvictionStuck(wl *kueue.Workload, check string, now time.Time) (bool, time.Duration) {
	entry := FindCheck(wl, check)
	if !HoldsQuota(wl) || !IsEvicted(wl) || !WantsNomination(wl, check) {
		return false, 0
	}
	since := entry.LastTransitionTime.Time
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	if left := timing.EvictionGrace - now.Sub(since); left > 0 {
		return false, left
	}
	return true, 0
}
