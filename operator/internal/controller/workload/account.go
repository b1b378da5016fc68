package workload

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// account brings ledger and history up to date with what the situation shows: quota lost
// or reserved again, admission by a cluster, pods ready. It returns the situation with the new history.
func (r *Reconciler) account(s *lifecycle.Situation) *lifecycle.Situation {
	if s.Workload == nil {
		uid := r.histories.remove(s.Key)
		r.endAttempt(uid, s, endedUnseen)
		r.histories.drop(uid)
		return s
	}
	uid := s.Workload.UID
	if former := r.histories.rename(s.Key, uid); former != "" { // deleted and created again between two looks
		r.endAttempt(former, s, endedUnseen)
		r.histories.drop(former)
	}
	if !kueuestate.HoldsQuota(s.Workload) {
		how := endedWithoutQuota
		switch {
		case kueuestate.IsFinished(s.Workload):
			how = endedFinished
		case kueuestate.IsEvictedByAdmissionCheck(s.Workload):
			how = endedByWorker
		}
		if s.History.Running != nil && !s.Record.Repair {
			if began, complete, ok := kueuestate.EvictionTimes(s.Workload); ok {
				r.evictions.Observe(began, complete)
			}
		}
		return s.WithHistory(r.endAttempt(uid, s, how))
	}
	if s.IsNewQuota() {
		if !s.History.ReservedAt.IsZero() { // Kueue released and reserved the quota between two looks
			s = s.WithHistory(r.endAttempt(uid, s, endedUnseen))
		}
		s = s.WithHistory(s.History.WithQuota(s.Workload, s.QuotaReservedAt(), s.Now))
	}
	if len(s.Checks.Own) > 0 && s.Check().State == kueue.CheckStateReady && s.MayNominate() && kueuestate.AcceptsCheckUpdate(s.Workload) {
		s = s.WithHistory(s.History.WithNominations(s.Workload.Status.NominatedClusterNames))
	}
	if _, waits := s.WaitsForPods(); !waits {
		s = s.WithHistory(s.History.WithPodsLate(nil))
	}
	switch cluster := s.PlacedOn(); {
	case cluster == "" || !s.Gate.Known:
	case s.AwaitsWorker():
		r.debitPinned(s, cluster)
	default:
		s = r.accountAdmission(s, cluster)
	}
	r.histories.put(uid, s.History)
	return s
}

const (
	// endedUnseen: the workload was deleted, or its quota changed between two looks.
	endedUnseen ending = iota
	// endedWithoutQuota: the workload lost its quota; its copies outlive that for a moment.
	endedWithoutQuota
	// endedByWorker: the worker ended the workload, or Kueue gave the worker up after
	// workerLostTimeout, so that there is nothing to wait for.
	endedByWorker
	// endedFinished: the workload's pods are done.
	endedFinished
)

// endAttempt releases what the workload held. Workloads that wait for its clusters are decided
// again if it held something: at once, and as the samples come to show the change.
func (r *Reconciler) endAttempt(uid types.UID, s *lifecycle.Situation, how ending) lifecycle.History {
	h := r.histories.get(uid)
	r.waiting.Remove(s.Key)
	clusters, podSets := r.ledger.Reserved(string(uid))
	var held bool
	if how == endedFinished {
		held = r.ledger.Release(string(uid))
	} else {
		held = r.ledger.MarkEnded(string(uid), s.Now)
	}
	if e := h.Running; e != nil {
		clusters, podSets = append(clusters, e.Cluster), e.PodSets
		r.ledger.Credit(ledger.Credit{Cluster: e.Cluster, PodSets: e.PodSets, FinishedAt: s.Now})
		held = true
	}
	if held {
		gates := r.registry.GatesOf(clusters...)
		r.waiting.MarkFreed(podSets, gates...)
		r.waiting.ExpectChanges(2*r.ledger.Settle, podSets, gates...)
	}
	if h.Running != nil || len(h.NominatedSeen) > 0 {
		h = h.WithoutQuota(how == endedByWorker, s.Now)
		r.histories.put(uid, h)
	}
	return h
}

// accountAdmission records the cluster that admitted the workload, and since when its pods
// are ready.
func (r *Reconciler) accountAdmission(s *lifecycle.Situation, cluster string) *lifecycle.Situation {
	e := s.AdmittedEntry(cluster, s.AdmittedAt(s.Now))
	isNews := s.History.Running == nil || s.History.Running.Cluster != cluster
	s = s.WithHistory(s.History.WithRunning(e))
	r.ledger.PutRunning(s.RunningOn(e))
	if isNews {
		took := max(0, lifecycle.LatestPossible(e.DebitedAt, s.Now).Sub(s.History.QuotaSeenAt))
		r.metrics.admitted(s.Gate.Name, cluster, took)
		if at := s.History.NominatedAt; !at.IsZero() {
			r.lag.Observe(at, lifecycle.LatestPossible(e.DebitedAt, s.Now))
		}
		clusters, _ := r.ledger.Reserved(e.UID)
		if r.debitAdmitted(s, e) {
			r.waiting.MarkFreed(e.PodSets, r.registry.GatesOf(append(clusters, cluster)...)...)
		}
	}
	if since, ok := lifecycle.PodsReadySince(s.Workload, e.DebitedAt); ok && r.ledger.MarkPodsReady(e.UID, since) {
		r.waiting.ExpectChanges(r.ledger.Settle, e.PodSets, r.registry.GatesOf(cluster)...)
	}
	return s
}

// debitPinned debits what the workload will take from the cluster that Kueue chose for it. After the TTL
// of the ledger, it is not debited again.
func (r *Reconciler) debitPinned(s *lifecycle.Situation, cluster string) {
	if since := s.QuotaReservedAt(); s.Now.Sub(since) < r.ledger.TTL {
		r.ledger.Debit(s.Entry(cluster, since))
	}
}

// debitAdmitted debits what the workload takes from the cluster that admitted it, and reports
// whether that changed the ledger. The samples already show an admission older than the TTL.
func (r *Reconciler) debitAdmitted(s *lifecycle.Situation, e ledger.Entry) bool {
	if s.Now.Sub(e.DebitedAt) < r.ledger.TTL {
		r.ledger.Debit(e)
	}
	reportsPodsReady := apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadPodsReady) != nil
	return r.ledger.MarkAdmitted(e.UID, e.Cluster, e.DebitedAt, reportsPodsReady)
}

// ending is how an attempt ended.
type ending int
