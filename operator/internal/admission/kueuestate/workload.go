// Package kueuestate interprets Kueue's objects: how far a Workload is on its way to
// admission, which writes Kueue accepts at this point, and which cluster has the Workload.
package kueuestate

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// IsActive reports whether the workload may be admitted: users and the operator deactivate workloads.
func IsActive(wl *kueue.Workload) bool { return wl.Spec.Active == nil || *wl.Spec.Active }

// IsFinished reports whether the workload has finished.
func IsFinished(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
}

// HasRun reports whether the workload has finished because its pods are done. Kueue also finishes one whose job was
// deleted, and the slices of an elastic job that goes on with another one.
func HasRun(wl *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return c != nil && c.Status == metav1.ConditionTrue &&
		!slices.Contains([]string{kueue.WorkloadFinishedReasonOwnerNotFound, kueue.WorkloadSliceReplaced, kueue.WorkloadFinishedReasonOutOfSync}, c.Reason)
}

// IsReplaced reports whether another slice of the elastic job has taken over the workload's quota and pods.
func IsReplaced(wl *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == kueue.WorkloadSliceReplaced
}

// IsAdmitted reports whether Kueue has admitted the workload.
func IsAdmitted(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)
}

// IsGateFirst reports whether the gate decides the workload before Kueue reserves quota for it.
func IsGateFirst(wl *kueue.Workload) bool { return wl.Annotations[v1alpha1.GateFirst] == "true" }

// HoldsQuota reports whether the workload has reserved quota and is neither finished nor
// being deleted.
func HoldsQuota(wl *kueue.Workload) bool {
	return wl.DeletionTimestamp.IsZero() && !IsFinished(wl) && wl.Status.Admission != nil &&
		apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
}

// QuotaReservedAt is the transition time of QuotaReserved; zero = no such condition.
func QuotaReservedAt(wl *kueue.Workload) time.Time {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// IsOnItsWay reports whether a workload holds quota, and nothing takes it away.
func IsOnItsWay(wl *kueue.Workload) bool { return AcceptsCheckUpdate(wl) && !IsRejected(wl) }

// PodsReadySince is when all pods of a workload were ready that was admitted at a given time.
func PodsReadySince(wl *kueue.Workload, admitted time.Time) (time.Time, bool) {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.LastTransitionTime.Time.Before(admitted) {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// ReportsPodsReady reports whether Kueue says of the workload whether its pods are ready.
func ReportsPodsReady(wl *kueue.Workload) bool {
	return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady) != nil
}

// MaxRunTime is the longest time for which a workload runs; zero = unknown.
func MaxRunTime(wl *kueue.Workload) time.Duration {
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		return time.Duration(*limit) * time.Second
	}
	return 0
}

// IsEvicted reports whether an eviction is in progress.
func IsEvicted(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
}

// IsRejected reports whether an admission check rejected the workload. Kueue deactivates it then, and
// resets its checks. The reason of its eviction remains.
func IsRejected(wl *kueue.Workload) bool {
	isRejected := func(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateRejected }
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	return slices.ContainsFunc(wl.Status.AdmissionChecks, isRejected) || !IsActive(wl) && IsEvicted(wl) && evicted.Reason == deactivatedByAdmissionCheck
}

// deactivatedByAdmissionCheck is the reason of Kueue's eviction of a workload that an admission check
// rejected.
const deactivatedByAdmissionCheck = kueue.WorkloadDeactivated + "DueTo" + kueue.WorkloadEvictedByAdmissionCheck

// IsEvictedByAdmissionCheck reports whether an admission check caused the eviction. If the
// workload was running, MultiKueue's check did: the worker ended the workload, or was
// unreachable for too long.
func IsEvictedByAdmissionCheck(wl *kueue.Workload) bool {
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	return IsEvicted(wl) && evicted.Reason == kueue.WorkloadEvictedByAdmissionCheck
}

// CauseOfFailedStart is why Kueue evicted a workload that a cluster admitted at a time, if that says that the cluster
// did not start it: its pods were not ready in time, or the worker ended it long after the admission, or was
// unreachable for too long. Sooner, the worker ends it for other reasons, such as another component of its job. Empty =
// no such eviction since there were before.
func CauseOfFailedStart(wl *kueue.Workload, admitted time.Time, before FailedStarts, now time.Time) string {
	f := FailedStartsOf(wl)
	switch {
	case f.NotReady > before.NotReady:
		return kueue.WorkloadEvictedByPodsReadyTimeout
	case f.ByWorker > before.ByWorker && now.Sub(admitted) >= timing.SlowStart:
		return kueue.WorkloadEvictedByAdmissionCheck
	}
	return ""
}

// FailedStarts are the numbers of evictions so far which may be due to the cluster.
type FailedStarts struct{ NotReady, ByWorker int32 }

// FailedStartsOf counts the evictions of a workload. They stay when Kueue reserves quota again.
func FailedStartsOf(wl *kueue.Workload) (f FailedStarts) {
	if wl.Status.SchedulingStats == nil {
		return f
	}
	for _, e := range wl.Status.SchedulingStats.Evictions {
		switch e.Reason {
		case kueue.WorkloadEvictedByPodsReadyTimeout:
			f.NotReady += e.Count
		case kueue.WorkloadEvictedByAdmissionCheck:
			f.ByWorker += e.Count
		}
	}
	return f
}

// KeepsRetries reports whether a deactivation would take away a count of retries that matters. Kueue forgets
// status.requeueState then: the pause before the next retry, and the way to requeuingBackoffLimitCount, which ends a
// workload that never becomes ready. The number of its evictions stays, so that such a workload is no longer
// deactivated for others in the end, and Kueue's limit applies.
func KeepsRetries(wl *kueue.Workload) bool {
	return wl.Status.RequeueState != nil && FailedStartsOf(wl).NotReady >= timing.MaxForgottenRetries
}

// CountEvictions returns the number of evictions so far. It is part of the seed of the
// random choice among clusters, so that an evicted workload may go to another cluster.
func CountEvictions(wl *kueue.Workload) int {
	n := 0
	if stats := wl.Status.SchedulingStats; stats != nil {
		for _, e := range stats.Evictions {
			n += int(e.Count)
		}
	}
	return n
}

// WasAdmitted reports whether the workload was admitted in an earlier attempt, which an eviction ended.
func WasAdmitted(wl *kueue.Workload) bool {
	return wl.Status.AccumulatedPastExecutionTimeSeconds != nil
}
