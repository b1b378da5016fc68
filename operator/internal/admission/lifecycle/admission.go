package lifecycle

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// IsNewQuota reports whether the quota was reserved since the last look. If it was released and
// reserved within one second, only the number of evictions has changed.
func (s *Situation) IsNewQuota() bool {
	hasEnded := !kueuestate.IsEvicted(s.Workload) && s.History.evictions != kueuestate.CountEvictions(s.Workload)
	return !s.History.ReservedAt.Equal(s.QuotaReservedAt()) || hasEnded
}

// RunningOn is the ledger's record of the workload on the cluster that admitted it.
func (s *Situation) RunningOn(e ledger.Entry) ledger.Running {
	running := ledger.Running{UID: e.UID, Cluster: e.Cluster, ClusterQueue: s.Request.Facts.ClusterQueue, Priority: s.Rank().Priority, PodSets: e.PodSets, Since: e.DebitedAt}
	if limit := s.runsFor(); limit > 0 {
		running.EndsBy = e.DebitedAt.Add(limit)
	}
	return running
}

// AdmittedAt is when a cluster admitted the workload: the transition of MultiKueue's check to
// Ready or, without MultiKueue, of the condition Admitted.
func (s *Situation) AdmittedAt(otherwise time.Time) time.Time {
	if c := kueuestate.FindCheck(s.Workload, s.Checks.MultiKueue); c != nil && c.State == kueue.CheckStateReady {
		return c.LastTransitionTime.Time
	}
	if c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadAdmitted); s.Dispatch() == Local && c != nil {
		return c.LastTransitionTime.Time
	}
	return otherwise
}

// PodsReadySince is when all pods of a workload were ready that was admitted at a given time.
func PodsReadySince(wl *kueue.Workload, admitted time.Time) (time.Time, bool) {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.LastTransitionTime.Time.Before(admitted) {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}
