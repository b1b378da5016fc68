package workload

import (
	"context"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// observeLostQuota reads the checks of a workload without quota, if a decision for quota that it has
// lost may still stand in one. Otherwise no step depends on them: most workloads of a hub wait for quota.
func (r *Reconciler) observeLostQuota(ctx context.Context, s *lifecycle.Situation) error {
	if !slices.ContainsFunc(s.Workload.Status.AdmissionChecks, isReady) {
		return nil
	}
	if err := r.observeChecks(ctx, s); err != nil {
		return err
	}
	if len(s.OutdatedChecks()) == 0 {
		s.Checks, s.Gate.Name = kueuestate.Checks{}, ""
	}
	return nil
}

func isReady(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateReady }
