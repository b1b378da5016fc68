package workload

import (
	"context"
	"fmt"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"

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
		if o.AwaitsDecision() {
			waiting = append(waiting, o.WaitEntry(r.cache.KeyOf(o.Gate.Gate, o.JobFacts())))
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

// rebuildFrom restores the history of a workload that holds quota, and what it takes from the ledger.
func (r *Reconciler) rebuildFrom(ctx context.Context, wl *kueue.Workload) (*lifecycle.Situation, error) {
	o := r.newSituation(types.NamespacedName(client.ObjectKeyFromObject(wl)))
	if err := r.observeWorkload(ctx, o, wl); err != nil {
		return nil, err
	}
	if len(o.Checks.Own) > 0 && o.Record.Err == nil { // PhaseRecordUnreadable resets the record
		r.restore(o)
		r.restorePlace(o)
		o.Room.View = r.viewFor(o)
	}
	return o, nil
}

func (r *Reconciler) restore(o *lifecycle.Situation) {
	wl := o.Workload
	r.histories.rename(o.Key, wl.UID)
	o.History = o.History.WithQuota(wl, o.QuotaReservedAt(), o.Now)
	if stage, _ := o.Record.Stage(o.Pace(), o.Now); stage != dispatch.StageWait || !o.Record.WidenedAt.IsZero() {
		o.History.LateAttempt = o.Record.Attempt // the process before counted it
	}
	defer func() { r.histories.put(wl.UID, o.History) }()
	cluster := o.PlacedOn()
	if cluster != "" && o.AwaitsWorker() {
		r.holdPinned(o, cluster)
		return
	}
	if cluster != "" {
		e := o.AdmittedEntry(cluster, o.AdmittedAt(o.Record.NominatedAt))
		o.History.Running = &e
		r.holdAdmitted(o, e)
		r.ledger.PutRunning(o.RunningOn(e))
		return
	}
	var sent []string
	since := o.Record.NominatedAt
	if chosen := o.SentByCheck(); chosen != "" { // an eviction would have reset the check
		sent, since = []string{chosen}, o.Check().LastTransitionTime.Time
	} else if o.Record.IsCurrent(o.QuotaReservedAt()) {
		sent = wl.Status.NominatedClusterNames
	}
	if o.Now.Sub(since) > r.ledger.TTL {
		return
	}
	for _, c := range sent {
		r.ledger.Debit(o.Entry(c, since))
		for _, e := range o.ComponentEntries(c, since) {
			r.ledger.Debit(e)
		}
	}
}

// restorePlace debits what the placement of the job reserved for a component that has no cluster yet. The
// hub does not show which components the placement counted: restorePlace takes those that held quota
// when the cluster admitted component 0. Users can't write these times.
func (r *Reconciler) restorePlace(o *lifecycle.Situation) {
	primary := o.Job.Primary
	if primary == nil || lifecycle.ClusterOf(o.Workload) != "" || lifecycle.ClusterOf(primary) == "" {
		return
	}
	admission := kueuestate.FindCheck(primary, o.Checks.MultiKueue)
	if admission == nil || admission.State != kueue.CheckStateReady || o.QuotaReservedAt().After(admission.LastTransitionTime.Time) {
		return
	}
	e := o.Entry(lifecycle.ClusterOf(primary), admission.LastTransitionTime.Time)
	e.DecidedBy = string(primary.UID)
	r.ledger.Debit(e)
}
