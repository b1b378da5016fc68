package engine

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// Account brings ledger and history up to date with what the situation shows: quota lost
// or reserved again, admission by a cluster, pods ready. The outcome has the situation with the new history.
func (e *Engine) Account(s *lifecycle.Situation) *Outcome {
	if s.Workload == nil {
		e.forget(e.histories.remove(s.Key), s)
		return &Outcome{Situation: s}
	}
	uid := s.Workload.UID
	if former := e.histories.rename(s.Key, uid); former != "" { // deleted and created again between two looks
		e.forget(former, s)
	}
	if s.IsReleased() { // it keeps the devices that its release has reserved
		return &Outcome{Situation: s}
	}
	if !kueuestate.HoldsQuota(s.Workload) {
		return &Outcome{Situation: e.accountLostQuota(s)}
	}
	if s.History.IsNewQuota(s.Workload) {
		if !s.History.ReservedAt.IsZero() { // Kueue released and reserved the quota between two looks
			s = s.WithHistory(e.endAttempt(uid, s, endedUnseen))
		}
		s = s.WithHistory(s.History.WithQuota(s.Workload, kueuestate.QuotaReservedAt(s.Workload), s.Now))
	}
	if len(s.Checks.Own) > 0 && s.Check().State == kueue.CheckStateReady && s.MayNominate() && kueuestate.AcceptsCheckUpdate(s.Workload) {
		s = s.WithHistory(s.History.WithNominations(s.Workload.Status.NominatedClusterNames))
	}
	if _, waits := s.WaitsForPods(); !waits && s.History.PodsLate != nil {
		s = s.WithHistory(s.History.WithPodsLate(nil))
	}
	out := &Outcome{Situation: s}
	switch cluster := s.Checks.PlacedCluster(s.Workload); {
	case cluster == "" || !s.Gate.Known:
	case s.Checks.AwaitsWorker(s.Workload):
		e.debitPinned(s, cluster)
	default:
		out.Situation, out.Admission = e.accountAdmission(s, cluster)
	}
	e.Remember(uid, out.Situation.History)
	switch p := out.Situation.Passage(); {
	case p != nil:
		e.Registry.Shadow.Put(*p)
	case kueuestate.AcceptsCheckUpdate(s.Workload): // the gate is not in mode Shadow any more
		e.Registry.Shadow.Drop(string(uid))
	}
	return out
}

// forget ends the attempt of a workload that does not exist any more.
func (e *Engine) forget(uid types.UID, s *lifecycle.Situation) {
	e.endAttempt(uid, s, endedUnseen)
	e.histories.drop(uid)
}

func (e *Engine) accountLostQuota(s *lifecycle.Situation) *lifecycle.Situation {
	how := endedWithoutQuota
	switch {
	case kueuestate.HasRun(s.Workload):
		how = endedFinished
	case kueuestate.IsReplaced(s.Workload):
		how = endedReplaced
	case kueuestate.IsEvictedByAdmissionCheck(s.Workload):
		how = endedByWorker
	}
	if s.History.Running != nil && !s.Record.Repair {
		if began, complete, ok := kueuestate.EvictionTimes(s.Workload); ok {
			e.evictions.Observe(began, complete)
		}
	}
	return s.WithHistory(e.endAttempt(s.Workload.UID, s, how))
}

// ending is how an attempt ended.
type ending int

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
	// endedReplaced: another slice of the job has the workload's pods now.
	endedReplaced
)

// endAttempt releases what the workload held. Workloads that wait for its clusters are decided
// again if it held something: at once, and as the samples come to show the change.
func (e *Engine) endAttempt(uid types.UID, s *lifecycle.Situation, how ending) lifecycle.History {
	h := e.histories.get(uid)
	var failed *lifecycle.FailedStart
	if s.Workload != nil && s.Workload.UID == uid {
		failed = s.FailedStart()
	}
	h.FailedStart = cmp.Or(failed, h.FailedStart)
	if s.Workload == nil || s.Workload.UID != uid || lifecycle.PhaseOf(s) != lifecycle.PhaseParked {
		e.Waiting.Remove(s.Key)
	}
	e.Registry.Shadow.End(string(uid), how == endedFinished, s.Now)
	clusters, podSets := e.Ledger.Reserved(string(uid))
	var held bool
	if how != endedFinished {
		e.Ledger.FailStart(string(uid), s.Now, failed != nil)
	}
	switch how {
	case endedFinished:
		held = e.Ledger.Release(string(uid))
	case endedReplaced:
		held = e.Ledger.HandOver(string(uid))
	default:
		held = e.Ledger.MarkEnded(string(uid), s.Now)
	}
	if ran := h.Running; ran != nil {
		clusters, podSets = append(clusters, ran.Cluster), ran.PodSets
		if !s.Record.Repair { // else the copy was gone before, and the samples may show its devices as free
			e.Ledger.Credit(ledger.Credit{Cluster: ran.Cluster, Queue: ran.Queue, PodSets: ran.PodSets, FinishedAt: s.Now})
		}
		held = true
	}
	if held {
		gates := e.Registry.GatesOf(clusters...)
		e.Waiting.MarkFreed(podSets, gates...)
		e.Waiting.ExpectChanges(2*e.Ledger.Settle, podSets, gates...)
	}
	if h.Running != nil || len(h.NominatedSeen) > 0 {
		h = h.WithoutQuota(how == endedByWorker, s.Now)
		e.histories.put(uid, h)
	}
	return h
}

// accountAdmission records the cluster that admitted the workload, and since when its pods
// are ready. The admission is nil if it was seen before.
func (e *Engine) accountAdmission(s *lifecycle.Situation, cluster string) (*lifecycle.Situation, *Admission) {
	var news *Admission
	isNews := s.History.Running == nil || s.History.Running.Cluster != cluster
	known := s.Now
	if !isNews {
		known = s.History.Running.DebitedAt // the check of MultiKueue says nothing of it while the workload is taken away
	}
	entry := s.AdmittedEntry(cluster, s.Checks.AdmittedAt(s.Workload, known))
	since, isReady := kueuestate.PodsReadySince(s.Workload, entry.DebitedAt)
	h := s.History.WithRunning(entry)
	if isReady {
		h = h.WithStart(since)
	}
	s = s.WithHistory(h)
	e.Ledger.PutRunning(s.RunningOn(entry))
	if isNews {
		at := lifecycle.LatestPossible(entry.DebitedAt, s.Now)
		news = &Admission{Cluster: cluster, After: max(0, at.Sub(s.History.QuotaSeenAt))}
		if nominated := s.History.NominatedAt; !nominated.IsZero() {
			e.ObserveLag(nominated, at)
		}
		clusters, _ := e.Ledger.Reserved(entry.UID)
		if e.debitAdmitted(s, entry) {
			e.Waiting.MarkFreed(entry.PodSets, e.Registry.GatesOf(append(clusters, cluster)...)...)
		}
	}
	if isReady && e.Ledger.MarkPodsReady(entry.UID, since) {
		e.Waiting.ExpectChanges(e.Ledger.Settle, entry.PodSets, e.Registry.GatesOf(cluster)...)
	}
	return s, news
}

// debitPinned debits what the workload will take from the cluster that Kueue chose for it. After the TTL
// of the ledger, it is not debited again.
func (e *Engine) debitPinned(s *lifecycle.Situation, cluster string) {
	if since := kueuestate.QuotaReservedAt(s.Workload); s.Now.Sub(since) < e.Ledger.TTL {
		e.Ledger.Debit(s.Entry(cluster, since))
	}
}

// debitAdmitted debits what the workload takes from the cluster that admitted it, and reports
// whether that changed the ledger. The samples already show an admission older than the TTL.
func (e *Engine) debitAdmitted(s *lifecycle.Situation, entry ledger.Entry) bool {
	if s.Now.Sub(entry.DebitedAt) < e.Ledger.TTL {
		e.Ledger.Debit(entry)
	}
	return e.Ledger.MarkAdmitted(entry.UID, entry.Cluster, entry.DebitedAt, kueuestate.ReportsPodsReady(s.Workload))
}
