package workload

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
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
		if !kueuestate.HoldsQuota(wl) {
			continue
		}
		o, err := r.rebuildFrom(ctx, wl)
		if err != nil {
			return fmt.Errorf("workload %s/%s: %w", wl.Namespace, wl.Name, err)
		}
		if o.awaitsDecision() {
			waiting = append(waiting, o.waitEntry(r.cache.KeyOf(o.gate, o.jobFacts())))
		}
	}
	r.restoreOrder(waiting)
	r.rebuilt = true
	return nil
}

// restoreOrder fills the wait queue before the first decision, so that no workload passes one that
// ranks before it. The first workload comes first: the queue wakes what is alone in it.
func (r *Reconciler) restoreOrder(waiting []waitqueue.Entry) {
	now := r.now()
	slices.SortFunc(waiting, func(a, b waitqueue.Entry) int {
		if a.Rank.Before(b.Rank, a.Aging, now) {
			return -1
		}
		return 1
	})
	for _, e := range waiting {
		r.waiting.Add(e)
	}
}

// awaitsDecision reports whether the gate decides the workload next.
func (o *observation) awaitsDecision() bool {
	phase := phaseOf(o)
	return o.gateExists && slices.Contains([]Phase{PhaseWaiting, PhaseNominating, PhaseGateUnknown}, phase)
}

// rebuildFrom restores the history of a workload that holds quota, and what it takes from the ledger.
func (r *Reconciler) rebuildFrom(ctx context.Context, wl *kueue.Workload) (*observation, error) {
	o := &observation{key: types.NamespacedName(client.ObjectKeyFromObject(wl)), now: r.now(), nominates: r.nominates, ledgerTTL: r.ledger.TTL}
	if err := r.observeWorkload(ctx, o, wl); err != nil {
		return nil, err
	}
	if len(o.checks) > 0 && o.recordErr == nil { // PhaseRecordUnreadable resets the record
		r.restore(o)
		r.restorePlace(o)
		o.view = r.viewFor(o)
	}
	return o, nil
}

func (r *Reconciler) restore(o *observation) {
	wl := o.wl
	r.histories.rename(o.key, wl.UID)
	o.history = o.history.withQuota(wl, o.quotaReservedAt(), o.now)
	if stage, _ := o.record.Stage(o.pace(), o.now); stage != dispatch.StageWait || !o.record.WidenedAt.IsZero() {
		o.history.lateAttempt = o.record.Attempt // the process before counted it
	}
	defer func() { r.histories.put(wl.UID, o.history) }()
	cluster := o.placedOn()
	if cluster != "" && o.awaitsWorker() {
		r.holdPinned(o, cluster)
		return
	}
	if cluster != "" {
		e := o.admittedEntry(cluster, o.admittedAt(o.record.NominatedAt))
		o.history.running = &e
		r.holdAdmitted(o, e)
		r.ledger.PutRunning(o.runningOn(e))
		return
	}
	var sent []string
	since := o.record.NominatedAt
	if chosen := o.sentByCheck(); chosen != "" { // an eviction would have reset the check
		sent, since = []string{chosen}, o.check().LastTransitionTime.Time
	} else if o.record.IsCurrent(o.quotaReservedAt()) {
		sent = wl.Status.NominatedClusterNames
	}
	if o.now.Sub(since) > r.ledger.TTL {
		return
	}
	for _, c := range sent {
		r.ledger.Debit(o.entry(c, since))
		for _, e := range o.componentEntries(c, since) {
			r.ledger.Debit(e)
		}
	}
}

// restorePlace debits what the placement of the job reserved for a component that has no cluster yet. The
// hub does not show which components the placement counted: restorePlace takes those that held quota
// when the cluster admitted component 0. Users can't write these times.
func (r *Reconciler) restorePlace(o *observation) {
	primary := o.component.primary
	if primary == nil || clusterOf(o.wl) != "" || clusterOf(primary) == "" {
		return
	}
	admission := kueuestate.FindCheck(primary, o.multiKueue)
	if admission == nil || admission.State != kueue.CheckStateReady || o.quotaReservedAt().After(admission.LastTransitionTime.Time) {
		return
	}
	e := o.entry(clusterOf(primary), admission.LastTransitionTime.Time)
	e.DecidedBy = string(primary.UID)
	r.ledger.Debit(e)
}
