package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// rebuildOnce fills ledger and histories with what the hub shows of earlier nominations and
// admissions, before the process decides for the first time. An error ends the
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
	for i := range list.Items {
		if err := r.rebuildFrom(ctx, &list.Items[i]); err != nil {
			return fmt.Errorf("workload %s/%s: %w", list.Items[i].Namespace, list.Items[i].Name, err)
		}
	}
	r.rebuilt = true
	return nil
}

func (r *Reconciler) rebuildFrom(ctx context.Context, wl *kueue.Workload) error {
	if !kueuestate.HoldsQuota(wl) {
		return nil
	}
	o := &observation{key: types.NamespacedName(client.ObjectKeyFromObject(wl)), now: r.now(), nominates: r.nominates, ledgerTTL: r.ledger.TTL}
	if err := r.observeWorkload(ctx, o, wl); err != nil {
		return err
	}
	if len(o.checks) == 0 || o.recordErr != nil { // PhaseRecordUnreadable resets the record
		return nil
	}
	r.histories.rename(o.key, wl.UID)
	o.history = o.history.withQuota(wl, o.quotaReservedAt(), o.now)
	if stage, _ := o.record.Stage(o.pace(), o.now); stage != dispatch.StageWait || !o.record.WidenedAt.IsZero() {
		o.history.lateAttempt = o.record.Attempt // the process before counted it
	}
	defer func() { r.histories.put(wl.UID, o.history) }()
	cluster := o.placedOn()
	if cluster != "" && o.awaitsWorker() {
		r.holdPinned(o, cluster)
		return nil
	}
	if cluster != "" {
		e := o.entry(cluster, o.admittedAt(o.record.NominatedAt))
		o.history.running = &e
		r.holdAdmitted(o, e)
		r.ledger.PutRunning(o.runningOn(e))
		return nil
	}
	sent, since := wl.Status.NominatedClusterNames, o.record.NominatedAt
	if chosen := o.sentByCheck(); chosen != "" {
		sent, since = []string{chosen}, o.check().LastTransitionTime.Time
	}
	if since.Before(o.quotaReservedAt()) || o.now.Sub(since) > r.ledger.TTL {
		return nil
	}
	for _, c := range sent {
		r.ledger.Debit(o.entry(c, since))
	}
	return nil
}
