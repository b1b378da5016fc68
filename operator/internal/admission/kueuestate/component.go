package kueuestate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Annotations of a job that consists of several workloads, such as a LeaderWorkerSet with one
// workload per replica. Kueue runs all components of such a job on one cluster: the one that
// is nominated for the primary component, the component with the index 0.
const (
	// ComponentAnnotation holds the index of a workload among the components of one job.
	ComponentAnnotation = "kueue.x-k8s.io/component-workload-index"
	// jobOwnerAnnotation names the kind of the owner reference that all components share, as
	// schema.GroupVersionKind.String does.
	jobOwnerAnnotation = "kueue.x-k8s.io/job-owner-gvk"
)

// IsComponent reports whether the workload is one of the components of a job.
func IsComponent(wl *kueue.Workload) bool {
	_, ok := wl.Annotations[ComponentAnnotation]
	return ok
}

// JobOf returns the job of a workload, which is the topmost owner of its pods. It is nil for a
// workload without a single owner, such as a group of pods, and for a component of a job of
// several workloads: metrics do not distinguish its pods from those of the others.
func JobOf(wl *kueue.Workload) *metav1.OwnerReference {
	if IsComponent(wl) {
		return nil
	}
	if owner := metav1.GetControllerOf(wl); owner != nil {
		return owner
	}
	if len(wl.OwnerReferences) != 1 {
		return nil
	}
	return &wl.OwnerReferences[0]
}

// FollowsPrimary reports whether the workload is a component other than the primary one.
func FollowsPrimary(wl *kueue.Workload) bool {
	return IsComponent(wl) && wl.Annotations[ComponentAnnotation] != "0"
}

// JobUID returns the UID of the job that a component belongs to. It is empty if the workload
// is no component or has no owner reference of the annotated kind.
func JobUID(wl *kueue.Workload) types.UID {
	if !IsComponent(wl) {
		return ""
	}
	for _, ref := range wl.OwnerReferences {
		if schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).String() == wl.Annotations[jobOwnerAnnotation] {
			return ref.UID
		}
	}
	return ""
}
