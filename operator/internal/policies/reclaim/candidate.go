package reclaim

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Owner identifies pods on a cluster by their topmost controller.
type Owner struct{ Cluster, Namespace, Kind, Name string }

// Candidate is an admitted workload that agreed to be reclaimed.
type Candidate struct {
	Namespace, Name, UID string
	// Queue is the ClusterQueue, and Group what it draws quota from: the root of its Cohorts, or
	// itself.
	Queue, Group string
	// OthersWait is true if another workload of the group, of at least this priority, waits for
	// devices of this resource.
	OthersWait bool
	// Returning is a workload of the group whose reclaim is not complete. Empty means none.
	Returning string
	// QuotaWantedBy is a workload of the group that waits for quota of this resource, and would take
	// that of the candidate. Empty means none.
	QuotaWantedBy string
	// ReclaimedAt is when a policy last returned the workload to its queue. Zero means never.
	ReclaimedAt time.Time
	// RefusedAt is when the API server last refused to deactivate the workload. Zero means never.
	RefusedAt time.Time
	Owner     Owner
	Priority  int32
	// Resource and number of the devices that the workload holds, and since when it has run.
	Resource string
	Devices  int64
	// Requests are what its pods free with each device, at least.
	Requests shape.Requests
	// Flavor is the ResourceFlavor of the devices. Empty means several, or unknown.
	Flavor       string
	RunningSince time.Time
	// GracePeriod is the largest of its pods: the time that they may take to end, 10 minutes at most.
	GracePeriod time.Duration
	// Protection is why the workload must not be reclaimed in its present state. Empty means
	// that it may be.
	Protection string
	// Idle is for how long each of its idle devices has been idle.
	Idle []time.Duration
}

// NewCandidate returns the candidate of a workload, without what only other objects and metrics
// show. It returns false if the workload does not run, did not agree, or holds no devices whose
// use is measured one by one.
func NewCandidate(wl *kueue.Workload, priorityClasses []string) (*Candidate, bool) {
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if !IsReclaimable(wl, priorityClasses) || !kueuestate.AcceptsCheckUpdate(wl) || !kueuestate.IsAdmitted(wl) {
		return nil, false
	}
	resource, devices, ok := shape.WholeDevices(wl)
	if !ok {
		return nil, false
	}
	c := &Candidate{Namespace: wl.Namespace, Name: wl.Name, UID: string(wl.UID), Queue: string(wl.Status.Admission.ClusterQueue),
		Priority: priorityOf(wl), Resource: resource, Devices: devices, Requests: shape.RequestsPerDevice(wl), Flavor: shape.FlavorOf(wl, resource), RunningSince: admitted.LastTransitionTime.Time,
		GracePeriod: kueuestate.PodGrace(wl), Protection: protectionOf(wl)}
	if ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady); ready != nil && ready.LastTransitionTime.After(c.RunningSince) {
		c.RunningSince = ready.LastTransitionTime.Time
	}
	if record, err := dispatch.Decode(wl.Annotations); err == nil && record.Reclaimed != nil {
		c.ReclaimedAt = record.Reclaimed.At
	}
	if job := kueuestate.JobOf(wl); job != nil {
		c.Owner = Owner{Namespace: wl.Namespace, Kind: job.Kind, Name: job.Name}
	}
	return c, true
}

// IsReclaimable reports whether a workload agreed to be reclaimed: one of its pod templates has
// the label, or its WorkloadPriorityClass is one of the policy's.
func IsReclaimable(wl *kueue.Workload, priorityClasses []string) bool {
	if class := wl.Spec.PriorityClassRef; class != nil && class.Kind == kueue.WorkloadPriorityClassKind && slices.Contains(priorityClasses, class.Name) {
		return true
	}
	return slices.ContainsFunc(wl.Spec.PodSets, func(set kueue.PodSet) bool { return set.Template.Labels[v1alpha1.ReclaimableLabel] == "true" })
}

// protectionOf returns why a running workload must not be reclaimed, as far as the workload
// itself shows it.
func protectionOf(wl *kueue.Workload) string {
	ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	record, err := dispatch.Decode(wl.Annotations)
	switch {
	case kueuestate.IsElastic(wl):
		return "it is a slice of an elastic job"
	case kueuestate.IsComponent(wl):
		return "it is a component of a job of several workloads"
	case kueuestate.JobOf(wl) != nil && kueuestate.JobOf(wl).Kind == "Pod":
		return "it is a single Pod, which Kueue would delete"
	case kueuestate.JobOf(wl) == nil:
		return "it has no single owner, so its pods are unknown"
	case ready != nil && ready.Status != metav1.ConditionTrue:
		return "its pods are not ready"
	case kueuestate.KeepsRetries(wl):
		return "its pods were often not ready in time, and a deactivation would reset Kueue's count of retries"
	case apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadDeactivationTarget):
		return "it is about to be deactivated"
	case err != nil:
		return "the annotation " + v1alpha1.DispatchAnnotation + " does not parse"
	case !record.SleepsUntil.IsZero():
		return "it returned to its queue before, which is not complete"
	}
	return ""
}

// idleFor returns for how long all devices have been idle. It returns false unless there are as many
// idle devices as the workload holds. A device that is idle for longer than the workload runs was held
// by earlier pods. If there are more idle devices, some belong to pods that have ended and might stand
// in for busy ones.
func (c *Candidate) idleFor(now time.Time) (time.Duration, bool) {
	idle := slices.DeleteFunc(slices.Clone(c.Idle), func(d time.Duration) bool { return d > now.Sub(c.RunningSince)+timing.MaxClockSkew })
	if c.Devices == 0 || int64(len(idle)) != c.Devices {
		return 0, false
	}
	return slices.Min(idle), true
}
