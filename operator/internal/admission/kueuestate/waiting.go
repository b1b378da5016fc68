package kueuestate

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// admissionGatedByAnnotation names what must release a workload before Kueue admits it.
const admissionGatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"

// WaitsForQuota reports whether Kueue considers the workload for quota, if its queues give any. Kueue
// does not while an admission gate is closed, while the job is on hold, such as a StatefulSet without
// replicas, or while pods of a group are missing.
func WaitsForQuota(wl *kueue.Workload) bool {
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	isOnHold := reserved != nil && reserved.Status == metav1.ConditionFalse && reserved.Reason == kueue.WorkloadOnHold
	return IsActive(wl) && wl.DeletionTimestamp.IsZero() && !IsFinished(wl) && wl.Status.Admission == nil && !isOnHold &&
		wl.Annotations[admissionGatedByAnnotation] == "" && !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadWaitingForReplacementPods)
}

// NoQuotaReason returns why a ClusterQueue gives no workload quota, as a predicate after its name. It
// is empty if the queue does.
func NoQuotaReason(queue *kueue.ClusterQueue) string {
	active := apimeta.FindStatusCondition(queue.Status.Conditions, kueue.ClusterQueueActive)
	switch {
	case !queue.DeletionTimestamp.IsZero():
		return "is being deleted"
	case isStopped(queue.Spec.StopPolicy):
		return "is stopped"
	case active != nil && active.Status == metav1.ConditionFalse:
		return "is not active: " + active.Message
	}
	return ""
}

// NoQuotaReasonOfLocal returns why workloads of a LocalQueue get no quota, whatever its ClusterQueue
// gives. It is a predicate like that of NoQuotaReason.
func NoQuotaReasonOfLocal(queue *kueue.LocalQueue) string {
	switch {
	case !queue.DeletionTimestamp.IsZero():
		return "is being deleted"
	case isStopped(queue.Spec.StopPolicy):
		return "is stopped"
	}
	return ""
}

func isStopped(policy *kueue.StopPolicy) bool { return policy != nil && *policy != kueue.None }
