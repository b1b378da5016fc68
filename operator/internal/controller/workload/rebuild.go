package workload

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// rebuildOnce fills ledger, histories and wait queue with what the hub shows of earlier nominations
// and admissions, before the process decides for the first time. An error ends the
// reconciliation: a decision on half a ledger would overcommit clusters.
func (r *Reconciler) rebuildOnce(ctx context.Context) error {
	r.rebuild.Lock()
	defer r.rebuild.Unlock()
	if r.rebuilt {
		return nil
	}
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list); err != nil {
		return err
	}
	var waiting []waitqueue.Entry
	for i := range list.Items {
		wl := &list.Items[i]
		if !kueuestate.HoldsQuota(wl) && !mayHaveCopies(wl) {
			continue
		}
		s := r.engine.Begin(client.ObjectKeyFromObject(wl))
		r.engine.Recall(s, wl)
		if err := r.observeWorkload(ctx, s); err != nil {
			return fmt.Errorf("workload %s/%s: %w", wl.Namespace, wl.Name, err)
		}
		if s = r.engine.Restore(s); kueuestate.HoldsQuota(wl) && s.AwaitsDecision() {
			waiting = append(waiting, s.WaitEntry(r.keyOf(s)))
		}
	}
	r.engine.RestoreOrder(waiting)
	r.rebuilt = true
	return nil
}

// mayHaveCopies reports whether workers may have copies of a workload without quota: the gate nominated clusters once,
// and the workload has neither finished nor is it about to be deleted.
func mayHaveCopies(wl *kueue.Workload) bool {
	return wl.Annotations[v1alpha1.DispatchAnnotation] != "" && wl.DeletionTimestamp.IsZero() && !kueuestate.IsFinished(wl)
}
