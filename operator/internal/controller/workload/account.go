package workload

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// account brings ledger and history up to date with what the observation shows: quota lost
// or reserved again, admission by a cluster, pods ready.
func (r *Reconciler) account(o *lifecycle.Situation) {
	if o.Workload == nil {
		uid := r.histories.remove(o.Key)
		r.endAttempt(uid, o, endedUnseen)
		r.histories.drop(uid)
		return
	}
	uid := o.Workload.UID
	if former := r.histories.rename(o.Key, uid); former != "" { // deleted and created again between two looks
		r.endAttempt(former, o, endedUnseen)
		r.histories.drop(former)
	}
	if !kueuestate.HoldsQuota(o.Workload) {
		how := endedWithoutQuota
		switch {
		case kueuestate.IsFinished(o.Workload):
			how = endedFinished
		case kueuestate.IsEvictedByAdmissionCheck(o.Workload):
			how = endedByWorker
		}
		if o.History.Running != nil && !o.Record.Repair {
			if began, complete, ok := kueuestate.EvictionTimes(o.Workload); ok {
				r.evictions.Observe(began, complete)
			}
		}
		o.History = r.endAttempt(uid, o, how)
		return
	}
	if o.IsNewQuota() {
		if !o.History.ReservedAt.IsZero() { // Kueue released and reserved the quota between two looks
			o.History = r.endAttempt(uid, o, endedUnseen)
		}
		o.History = o.History.WithQuota(o.Workload, o.QuotaReservedAt(), o.Now)
	}
	if len(o.Checks.Own) > 0 && o.Check().State == kueue.CheckStateReady && o.MayNominate() && kueuestate.AcceptsCheckUpdate(o.Workload) {
		o.History = o.History.WithNominations(o.Workload.Status.NominatedClusterNames)
	}
	if _, waits := o.WaitsForPods(); !waits {
		o.History.PodsLate = nil
	}
	switch cluster := o.PlacedOn(); {
	case cluster == "" || !o.Gate.Known:
	case o.AwaitsWorker():
		r.holdPinned(o, cluster)
	default:
		r.accountAdmission(o, cluster)
	}
	r.histories.put(uid, o.History)
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
func (r *Reconciler) endAttempt(uid types.UID, o *lifecycle.Situation, how ending) lifecycle.History {
	h := r.histories.get(uid)
	r.waiting.Remove(o.Key)
	clusters, podSets := r.ledger.Reserved(string(uid))
	var held bool
	if how == endedFinished {
		held = r.ledger.Release(string(uid))
	} else {
		held = r.ledger.MarkEnded(string(uid), o.Now)
	}
	if e := h.Running; e != nil {
		clusters, podSets = append(clusters, e.Cluster), e.PodSets
		r.ledger.Credit(ledger.Credit{Cluster: e.Cluster, PodSets: e.PodSets, FinishedAt: o.Now})
		held = true
	}
	if held {
		gates := r.registry.GatesOf(clusters...)
		r.waiting.MarkFreed(podSets, gates...)
		r.waiting.ExpectChanges(2*r.ledger.Settle, podSets, gates...)
	}
	if h.Running != nil || len(h.NominatedSeen) > 0 {
		h = h.WithoutQuota(how == endedByWorker, o.Now)
		r.histories.put(uid, h)
	}
	return h
}

// accountAdmission records the cluster that admitted the workload, and since when its pods
// are ready.
func (r *Reconciler) accountAdmission(o *lifecycle.Situation, cluster string) {
	e := o.AdmittedEntry(cluster, o.AdmittedAt(o.Now))
	isNews := o.History.Running == nil || o.History.Running.Cluster != cluster
	o.History.Running = &e
	r.ledger.PutRunning(o.RunningOn(e))
	if isNews {
		took := max(0, lifecycle.LatestPossible(e.DebitedAt, o.Now).Sub(o.History.QuotaSeenAt))
		r.metrics.admitted(o.Gate.Name, cluster, took)
		if at := o.History.NominatedAt; !at.IsZero() {
			r.lag.Observe(at, lifecycle.LatestPossible(e.DebitedAt, o.Now))
		}
		clusters, _ := r.ledger.Reserved(e.UID)
		if r.holdAdmitted(o, e) {
			r.waiting.MarkFreed(e.PodSets, r.registry.GatesOf(append(clusters, cluster)...)...)
		}
	}
	if since, ok := lifecycle.PodsReadySince(o.Workload, e.DebitedAt); ok && r.ledger.MarkPodsReady(e.UID, since) {
		r.waiting.ExpectChanges(r.ledger.Settle, e.PodSets, r.registry.GatesOf(cluster)...)
	}
}

// holdPinned debits what the workload will take from the cluster that Kueue chose for it. After the TTL
// of the ledger, it is not debited again.
func (r *Reconciler) holdPinned(o *lifecycle.Situation, cluster string) {
	if since := o.QuotaReservedAt(); o.Now.Sub(since) < r.ledger.TTL {
		r.ledger.Debit(o.Entry(cluster, since))
	}
}

// holdAdmitted debits what the workload takes from the cluster that admitted it, and reports
// whether that changed the ledger. The samples already show an admission older than the TTL.
func (r *Reconciler) holdAdmitted(o *lifecycle.Situation, e ledger.Entry) bool {
	if o.Now.Sub(e.DebitedAt) < r.ledger.TTL {
		r.ledger.Debit(e)
	}
	reportsPodsReady := apimeta.FindStatusCondition(o.Workload.Status.Conditions, kueue.WorkloadPodsReady) != nil
	return r.ledger.MarkAdmitted(e.UID, e.Cluster, e.DebitedAt, reportsPodsReady)
}

// ending is how an attempt ended.
type ending int
