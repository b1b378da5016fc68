package workload

import (
	"context"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// observeLostQuota reads the checks of a workload without quota, if a decision for quota that it has
// lost may still stand in one. Otherwise no step depends on them: most workloads of a hub wait for quota.
func (r *Reconciler) observeLostQuota(ctx context.Context, o *observation) error {
	if !slices.ContainsFunc(o.wl.Status.AdmissionChecks, isReady) {
		return nil
	}
	if err := r.observeChecks(ctx, o); err != nil {
		return err
	}
	if len(o.outdatedChecks()) == 0 {
		o.forgetChecks()
	}
	return nil
}

func isReady(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateReady }

// forgetChecks removes what observeChecks added.
func (o *observation) forgetChecks() {
	o.checks, o.trialChecks, o.gateName, o.multiKueue, o.workers.config = nil, nil, "", "", ""
}

// outdatedChecks are the gate's entries that are Ready for quota that the workload has lost without an
// eviction, which would have reset them:
//  1. A queue is stopped (Hold) or deleted, a StatefulSet is scaled to 0, or a user closes an admission
//     gate. Kueue takes the quota and leaves the checks.
//  2. Kueue reserves quota again, and admits the workload in the same write if all checks are Ready.
//
// If the operator nominates clusters, it decides again before that (see mustWithdraw), except for
// workloads that Kueue pins to a cluster. MultiKueue may have copied a workload as soon as it has quota
// again, so that its check is not taken back then. Without MultiKueue, an entry is outdated if it is
// older than the reservation by more than clocks differ.
func (o *observation) outdatedChecks() []string {
	if !kueuestate.IsActive(o.wl) || kueuestate.IsFinished(o.wl) || !o.wl.DeletionTimestamp.IsZero() || kueuestate.IsEvicted(o.wl) || kueuestate.IsAdmitted(o.wl) ||
		o.nominates && o.multiKueue != "" && !kueuestate.IsPinnedByKueue(o.wl) {
		return nil
	}
	hasQuota, reserved, seen := kueuestate.HoldsQuota(o.wl), o.quotaReservedAt(), o.now
	if o.history.reservedAt.Equal(reserved) {
		seen = o.history.quotaSeenAt
	}
	if seen.Before(reserved) { // Kueue's clock is ahead of this one, which is that of the check
		reserved = seen
	}
	if hasQuota && o.multiKueue != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.checks), func(name string) bool {
		check := kueuestate.FindCheck(o.wl, name)
		return check.State != kueue.CheckStateReady || hasQuota && reserved.Sub(check.LastTransitionTime.Time) <= timing.MaxClockSkew
	})
}

// stepResetChecks sets outdated checks Pending. The gate decides when the workload holds quota.
func (o *observation) stepResetChecks() step {
	d := gate.Decision{State: gate.Pending, Reason: "QuotaLost", Message: "the last decision was for quota that the workload has lost; the gate decides again when it holds quota"}
	return step{writes: []write{{
		check: &checkWrite{names: o.outdatedChecks(), decision: d, rememberReason: true},
		event: &notice{reason: d.Reason, message: d.Message},
	}}}
}
