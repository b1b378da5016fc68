package engine

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// RestoreOrder fills the wait queue before the first decision, so that no workload passes one that ranks before
// it. The first workload comes first: the queue wakes what is alone in it.
func (e *Engine) RestoreOrder(waiting []waitqueue.Entry) {
	now := e.Now()
	slices.SortFunc(waiting, func(a, b waitqueue.Entry) int {
		if a.Rank.Before(b.Rank, a.Aging, now) {
			return -1
		}
		return 1
	})
	for _, entry := range waiting {
		e.Waiting.Add(entry)
	}
}

// Restore returns the situation of a workload that holds quota, or has lost it, with the history that the hub shows,
// and debits the ledger with what the workload takes.
func (e *Engine) Restore(s *lifecycle.Situation) *lifecycle.Situation {
	if len(s.Checks.Own) == 0 || s.Record.Err != nil { // PhaseRecordUnreadable resets the record
		return s
	}
	s = e.restoreCopies(s)
	if kueuestate.HoldsQuota(s.Workload) {
		s = e.restore(s)
		e.restorePlace(s)
	}
	return s.WithView(e.view(s))
}

// restoreCopies returns the situation with the copies that an attempt may have left behind which has lost its quota,
// and debits them until samples show the end of the attempt.
func (e *Engine) restoreCopies(s *lifecycle.Situation) *lifecycle.Situation {
	s, isFound := s.WithRecordedCopies()
	if !isFound {
		return s
	}
	uid := s.Workload.UID
	e.histories.rename(s.Key, uid)
	e.histories.put(uid, s.History)
	if s.Now.Sub(s.Record.NominatedAt) > e.Ledger.TTL {
		return s
	}
	for _, c := range s.History.Copies.Clusters {
		e.Ledger.Debit(s.Entry(c, s.Record.NominatedAt))
	}
	e.Ledger.MarkEnded(string(uid), s.History.Copies.LostAt)
	return s
}

// restore returns the situation with the history that the hub shows, and debits what the workload was sent to.
func (e *Engine) restore(s *lifecycle.Situation) *lifecycle.Situation {
	wl := s.Workload
	e.histories.rename(s.Key, wl.UID)
	h := s.History.WithQuota(wl, kueuestate.QuotaReservedAt(s.Workload), s.Now)
	if stage, _ := s.Record.Stage(s.Gate.Pace(s.MultiKueue.Lag), s.Now); stage != dispatch.StageWait || !s.Record.WidenedAt.IsZero() {
		h.LateAttempt = s.Record.Attempt // the process before counted it
	}
	s = s.WithHistory(h)
	switch cluster := s.Checks.PlacedCluster(wl); {
	case cluster != "" && s.Checks.AwaitsWorker(wl):
		e.debitPinned(s, cluster)
	case cluster != "":
		entry := s.AdmittedEntry(cluster, s.Checks.AdmittedAt(wl, s.Record.NominatedAt))
		s = s.WithHistory(h.WithRunning(entry))
		e.debitAdmitted(s, entry)
		if since, ok := kueuestate.PodsReadySince(wl, entry.DebitedAt); ok { // Account waits until the gate is known
			e.Ledger.MarkPodsReady(entry.UID, since)
			s = s.WithHistory(s.History.WithStart(since))
		}
		e.Ledger.PutRunning(s.RunningOn(entry))
	default:
		e.restoreSent(s)
	}
	e.histories.put(wl.UID, s.History)
	if p := s.Passage(); p != nil {
		e.Registry.Shadow.Put(*p)
	}
	return s
}

// restoreSent debits the clusters that the workload was sent to and that have not admitted it.
func (e *Engine) restoreSent(s *lifecycle.Situation) {
	var sent []string
	since := s.Record.NominatedAt
	if would, at := s.WouldBeOn(); would != "" {
		sent, since = []string{would}, at
	} else if chosen := s.SentByCheck(); chosen != "" { // an eviction would have reset the check
		sent, since = []string{chosen}, s.Check().LastTransitionTime.Time
	} else if s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)) && !s.IsShadow() {
		sent = s.Workload.Status.NominatedClusterNames
	}
	if s.Now.Sub(since) > e.Ledger.TTL {
		return
	}
	for _, c := range sent {
		entry := s.Entry(c, since)
		entry.Shadow = s.IsShadow()
		e.Ledger.Debit(entry)
		for _, entry := range s.ComponentEntries(c, since) {
			e.Ledger.Debit(entry)
		}
	}
}

// restorePlace debits what the placement of the job reserved for a component that has no cluster yet. The
// hub does not show which components the placement counted: restorePlace takes those that held quota
// when the cluster admitted component 0. Users can't write these times.
func (e *Engine) restorePlace(s *lifecycle.Situation) {
	primary := s.Job.Primary
	if primary == nil || kueuestate.ClusterOf(s.Workload) != "" || kueuestate.ClusterOf(primary) == "" {
		return
	}
	admission := kueuestate.FindCheck(primary, s.Checks.MultiKueue)
	if admission == nil || admission.State != kueue.CheckStateReady || kueuestate.QuotaReservedAt(s.Workload).After(admission.LastTransitionTime.Time) {
		return
	}
	entry := s.Entry(kueuestate.ClusterOf(primary), admission.LastTransitionTime.Time)
	entry.DecidedBy = string(primary.UID)
	e.Ledger.Debit(entry)
}
