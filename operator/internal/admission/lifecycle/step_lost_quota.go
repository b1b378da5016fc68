package lifecycle

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// OutdatedChecks are the gate's entries that are Ready for quota that the workload has lost without an
// eviction, which would have reset them:
//  1. A queue is stopped (Hold) or deleted, a StatefulSet is scaled to 0, or a user closes an admission
//     gate. Kueue takes the quota and leaves the checks.
//  2. Kueue reserves quota again, and admits the workload in the same write if all checks are Ready.
//
// If the operator nominates clusters, it decides again before that (see mustWithdraw), except for
// workloads that Kueue pins to a cluster. MultiKueue may have copied a workload as soon as it has quota
// again, so that its check is not taken back then. Without MultiKueue, an entry is outdated if it is
// older than the reservation by more than clocks differ.
func (s *Situation) OutdatedChecks() []string {
	if !kueuestate.IsActive(s.Workload) || kueuestate.IsFinished(s.Workload) || !s.Workload.DeletionTimestamp.IsZero() || kueuestate.IsEvicted(s.Workload) || kueuestate.IsAdmitted(s.Workload) ||
		s.Dispatch() == OwnDispatch && !kueuestate.IsPinnedByKueue(s.Workload) {
		return nil
	}
	hasQuota, reserved, seen := kueuestate.HoldsQuota(s.Workload), kueuestate.QuotaReservedAt(s.Workload), s.Now
	if s.History.ReservedAt.Equal(reserved) {
		seen = s.History.QuotaSeenAt
	}
	if seen.Before(reserved) { // Kueue's clock is ahead of this one, which is that of the check
		reserved = seen
	}
	if hasQuota && s.Dispatch() != Local {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Checks.Own), func(name string) bool {
		check := kueuestate.FindCheck(s.Workload, name)
		return check.State != kueue.CheckStateReady || hasQuota && reserved.Sub(check.LastTransitionTime.Time) <= timing.MaxClockSkew
	})
}

// stepResetChecks sets outdated checks Pending. The gate decides when the workload holds quota.
func stepResetChecks(s *Situation) Step {
	d := gate.Decision{State: gate.Pending, Reason: "QuotaLost", Message: "the last decision was for quota that the workload has lost; the gate decides again when it holds quota"}
	return Step{Writes: []Write{{
		Check: &CheckWrite{Names: s.OutdatedChecks(), Decision: d, RememberReason: true},
		Event: &Notice{Reason: d.Reason, Message: d.Message},
	}}}
}
