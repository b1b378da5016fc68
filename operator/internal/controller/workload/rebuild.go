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
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
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
		s, err := r.rebuildFrom(ctx, wl)
		if err != nil {
			return fmt.Errorf("workload %s/%s: %w", wl.Namespace, wl.Name, err)
		}
		if s.AwaitsDecision() {
			waiting = append(waiting, s.WaitEntry(r.cache.KeyOf(s.Gate.Gate, s.JobFacts())))
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
	s := r.newSituation(types.NamespacedName(client.ObjectKeyFromObject(wl)))
	if err := r.observeWorkload(ctx, s, wl); err != nil {
		return nil, err
	}
	if len(s.Checks.Own) > 0 && s.Record.Err == nil { // PhaseRecordUnreadable resets the record
		s = r.restore(s)
		r.restorePlace(s)
		s = s.WithView(r.viewFor(s))
	}
	return s, nil
}

// restore returns the situation with the history that the hub shows, and debits what the workload was sent to.
func (r *Reconciler) restore(s *lifecycle.Situation) *lifecycle.Situation {
	wl := s.Workload
	r.histories.rename(s.Key, wl.UID)
	h := s.History.WithQuota(wl, s.QuotaReservedAt(), s.Now)
	if stage, _ := s.Record.Stage(s.Pace(), s.Now); stage != dispatch.StageWait || !s.Record.WidenedAt.IsZero() {
		h.LateAttempt = s.Record.Attempt // the process before counted it
	}
	s = s.WithHistory(h)
	switch cluster := s.PlacedOn(); {
	case cluster != "" && s.AwaitsWorker():
		r.debitPinned(s, cluster)
	case cluster != "":
		e := s.AdmittedEntry(cluster, s.AdmittedAt(s.Record.NominatedAt))
		s = s.WithHistory(h.WithRunning(e))
		r.debitAdmitted(s, e)
		r.ledger.PutRunning(s.RunningOn(e))
	default:
		r.restoreSent(s)
	}
	r.histories.put(wl.UID, s.History)
	return s
}

// restoreSent debits the clusters that the workload was sent to and that have not admitted it.
func (r *Reconciler) restoreSent(s *lifecycle.Situation) {
	var sent []string
	since := s.Record.NominatedAt
	if chosen := s.SentByCheck(); chosen != "" { // an eviction would have reset the check
		sent, since = []string{chosen}, s.Check().LastTransitionTime.Time
	} else if s.Record.IsCurrent(s.QuotaReservedAt()) {
		sent = s.Workload.Status.NominatedClusterNames
	}
	if s.Now.Sub(since) > r.ledger.TTL {
		return
	}
	for _, c := range sent {
		r.ledger.Debit(s.Entry(c, since))
		for _, e := range s.ComponentEntries(c, since) {
			r.ledger.Debit(e)
		}
	}
}

// restorePlace debits what the placement of the job reserved for a component that has no cluster yet. The
// hub does not show which components the placement counted: restorePlace takes those that held quota
// when the cluster admitted component 0. Users can't write these times.
func (r *Reconciler) restorePlace(s *lifecycle.Situation) {
	primary := s.Job.Primary
	if primary == nil || lifecycle.ClusterOf(s.Workload) != "" || lifecycle.ClusterOf(primary) == "" {
		return
	}
	admission := kueuestate.FindCheck(primary, s.Checks.MultiKueue)
	if admission == nil || admission.State != kueue.CheckStateReady || s.QuotaReservedAt().After(admission.LastTransitionTime.Time) {
		return
	}
	e := s.Entry(lifecycle.ClusterOf(primary), admission.LastTransitionTime.Time)
	e.DecidedBy = string(primary.UID)
	r.ledger.Debit(e)
}
