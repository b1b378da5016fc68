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
func (r *Reconciler) observeLostQuota(ctx context.Context, o *Situation) error {
	if !slices.ContainsFunc(o.Workload.Status.AdmissionChecks, isReady) {
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
func (o *Situation) forgetChecks() {
	o.Checks.Own, o.Checks.Trials, o.Gate.Name, o.Checks.MultiKueue, o.MultiKueue.Config = nil, nil, "", "", ""
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
func (o *Situation) outdatedChecks() []string {
	if !kueuestate.IsActive(o.Workload) || kueuestate.IsFinished(o.Workload) || !o.Workload.DeletionTimestamp.IsZero() || kueuestate.IsEvicted(o.Workload) || kueuestate.IsAdmitted(o.Workload) ||
		o.MultiKueue.Nominates && o.Checks.MultiKueue != "" && !kueuestate.IsPinnedByKueue(o.Workload) {
		return nil
	}
	hasQuota, reserved, seen := kueuestate.HoldsQuota(o.Workload), o.quotaReservedAt(), o.Now
	if o.History.reservedAt.Equal(reserved) {
		seen = o.History.quotaSeenAt
	}
	if seen.Before(reserved) { // Kueue's clock is ahead of this one, which is that of the check
		reserved = seen
	}
	if hasQuota && o.Checks.MultiKueue != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Checks.Own), func(name string) bool {
		check := kueuestate.FindCheck(o.Workload, name)
		return check.State != kueue.CheckStateReady || hasQuota && reserved.Sub(check.LastTransitionTime.Time) <= timing.MaxClockSkew
	})
}

// stepResetChecks sets outdated checks Pending. The gate decides when the workload holds quota.
func (o *Situation) stepResetChecks() step {
	d := gate.Decision{State: gate.Pending, Reason: "QuotaLost", Message: "the last decision was for quota that the workload has lost; the gate decides again when it holds quota"}
	return step{writes: []write{{
		check: &checkWrite{names: o.outdatedChecks(), decision: d, rememberReason: true},
		event: &notice{reason: d.Reason, message: d.Message},
	}}}
}
