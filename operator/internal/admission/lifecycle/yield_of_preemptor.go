package lifecycle

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A workload whose ClusterQueue on the hub preempts takes back the quota that it has returned, from workloads that run
// meanwhile. So it does not yield to those, and stays away until it has room.

// PendingWorkload waits for quota.
type PendingWorkload struct {
	ClusterQueue string
	Priority     int32
	CreatedAt    time.Time
}

// WouldPreempt reports whether the workload, returned to its queue, would preempt another one that has its quota.
// Quota that its own queue borrows is not taken back from the cohort.
func (s *Situation) WouldPreempt(other PendingWorkload) bool {
	own, q := ptr.Deref(s.Workload.Spec.Priority, 0), s.Queue
	if other.ClusterQueue == string(s.Workload.Status.Admission.ClusterQueue) {
		isNewer := other.Priority == own && other.CreatedAt.After(s.Workload.CreationTimestamp.Time)
		return q.PreemptsLowerPriority && other.Priority < own || q.PreemptsNewerEqual && isNewer
	}
	return !q.Borrows && slices.Contains(q.Reclaim.Queues, other.ClusterQueue) && (q.Reclaim.AnyPriority || other.Priority < own)
}

// awaitsRoom reports whether a workload stays away after its pause, until it has room: for as long as the pauses between
// yields last at most.
func awaitsRoom(s *Situation) bool {
	return s.Returned() != nil && s.Record.Reason == gate.ReasonYield && s.Queue.CanPreempt && s.Gate.Known && s.Gate.Problem == "" && len(s.Checks.Own) == 1 &&
		s.Gate.Spec.WhenUnplaceable.Mode == v1alpha1.UnplaceableYield && s.Now.Before(s.Record.LastYield.Add(timing.LastYieldPause))
}

// stepAwaitRoom returns the workload if a cluster has room for it.
func stepAwaitRoom(s *Situation) Step {
	if s.Decision(s.Record.Attempt+1).State == gate.Ready {
		return stepReturn(s)
	}
	period := gate.PeriodOf(&s.Gate.Spec)
	return Step{RequeueAfter: min(period, s.Record.LastYield.Add(timing.LastYieldPause).Sub(s.Now))}
}
