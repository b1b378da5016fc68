package workload

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// account brings ledger and history up to date with what the observation shows: quota lost
// or reserved again, admission by a cluster, pods ready.
func (r *Reconciler) account(o *observation) {
	if o.wl == nil {
		uid := r.histories.remove(o.key)
		r.endAttempt(uid, o, endedUnseen)
		r.histories.drop(uid)
		return
	}
	uid := o.wl.UID
	if former := r.histories.rename(o.key, uid); former != "" { // deleted and created again between two looks
		r.endAttempt(former, o, endedUnseen)
		r.histories.drop(former)
	}
	if !kueuestate.HoldsQuota(o.wl) {
		how := endedWithoutQuota
		switch {
		case kueuestate.IsFinished(o.wl):
			how = endedFinished
		case kueuestate.IsEvictedByAdmissionCheck(o.wl):
			how = endedByWorker
		}
		if o.history.running != nil && !o.record.Repair {
			if began, complete, ok := kueuestate.EvictionTimes(o.wl); ok {
				r.evictions.Observe(began, complete)
			}
		}
		o.history = r.endAttempt(uid, o, how)
		return
	}
	if o.isNewQuota() {
		if !o.history.reservedAt.IsZero() { // Kueue released and reserved the quota between two looks
			o.history = r.endAttempt(uid, o, endedUnseen)
		}
		o.history = o.history.withQuota(o.wl, o.quotaReservedAt(), o.now)
	}
	if len(o.checks) > 0 && o.check().State == kueue.CheckStateReady && o.mayNominate() && kueuestate.AcceptsCheckUpdate(o.wl) {
		o.history = o.history.withNominations(o.wl.Status.NominatedClusterNames)
	}
	if _, waits := o.waitsForPods(); !waits {
		o.history.podsLate = nil
	}
	switch cluster := o.placedOn(); {
	case cluster == "" || !o.gateKnown:
	case o.awaitsWorker():
		r.holdPinned(o, cluster)
	default:
		r.accountAdmission(o, cluster)
	}
	r.histories.put(uid, o.history)
}

// isNewQuota reports whether the quota was reserved since the last look. If it was released and
// reserved within one second, only the number of evictions has changed.
func (o *observation) isNewQuota() bool {
	hasEnded := !kueuestate.IsEvicted(o.wl) && o.history.evictions != kueuestate.CountEvictions(o.wl)
	return !o.history.reservedAt.Equal(o.quotaReservedAt()) || hasEnded
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
)

// endAttempt releases what the workload held. Workloads that wait for its clusters are decided
// again if it held something: at once, and as the samples come to show the change.
func (r *Reconciler) endAttempt(uid types.UID, o *observation, how ending) history {
	h := r.histories.get(uid)
	r.waiting.Remove(o.key)
	clusters, podSets := r.ledger.Reserved(string(uid))
	var held bool
	if how == endedFinished {
		held = r.ledger.Release(string(uid))
	} else {
		held = r.ledger.MarkEnded(string(uid), o.now)
	}
	if e := h.running; e != nil {
		clusters, podSets = append(clusters, e.Cluster), e.PodSets
		r.ledger.Credit(ledger.Credit{Cluster: e.Cluster, PodSets: e.PodSets, FinishedAt: o.now})
		held = true
	}
	if held {
		gates := r.registry.GatesOf(clusters...)
		r.waiting.MarkFreed(podSets, gates...)
		r.waiting.ExpectChanges(2*r.ledger.Settle, podSets, gates...)
	}
	if h.running != nil || len(h.nominatedSeen) > 0 {
		h = h.withoutQuota(how == endedByWorker, o.now)
		r.histories.put(uid, h)
	}
	return h
}

// accountAdmission records the cluster that admitted the workload, and since when its pods
// are ready.
func (r *Reconciler) accountAdmission(o *observation, cluster string) {
	e := o.admittedEntry(cluster, o.admittedAt(o.now))
	isNews := o.history.running == nil || o.history.running.Cluster != cluster
	o.history.running = &e
	r.ledger.PutRunning(o.runningOn(e))
	if isNews {
		took := max(0, latestPossible(e.DebitedAt, o.now).Sub(o.history.quotaSeenAt))
		r.metrics.admitted(o.gateName, cluster, took)
		if at := o.history.nominatedAt; !at.IsZero() {
			r.lag.Observe(at, latestPossible(e.DebitedAt, o.now))
		}
		clusters, _ := r.ledger.Reserved(e.UID)
		if r.holdAdmitted(o, e) {
			r.waiting.MarkFreed(e.PodSets, r.registry.GatesOf(append(clusters, cluster)...)...)
		}
	}
	if since, ok := podsReadySince(o.wl, e.DebitedAt); ok && r.ledger.MarkPodsReady(e.UID, since) {
		r.waiting.ExpectChanges(r.ledger.Settle, e.PodSets, r.registry.GatesOf(cluster)...)
	}
}

// runningOn is the ledger's record of the workload on the cluster that admitted it.
func (o *observation) runningOn(e ledger.Entry) ledger.Running {
	running := ledger.Running{UID: e.UID, Cluster: e.Cluster, ClusterQueue: o.facts.ClusterQueue, Priority: o.rank().Priority, PodSets: e.PodSets, Since: e.DebitedAt}
	if limit := o.runsFor(); limit > 0 {
		running.EndsBy = e.DebitedAt.Add(limit)
	}
	return running
}

// holdPinned debits what the workload will take from the cluster that Kueue chose for it. After the TTL
// of the ledger, it is not debited again.
func (r *Reconciler) holdPinned(o *observation, cluster string) {
	if since := o.quotaReservedAt(); o.now.Sub(since) < r.ledger.TTL {
		r.ledger.Debit(o.entry(cluster, since))
	}
}

// holdAdmitted debits what the workload takes from the cluster that admitted it, and reports
// whether that changed the ledger. The samples already show an admission older than the TTL.
func (r *Reconciler) holdAdmitted(o *observation, e ledger.Entry) bool {
	if o.now.Sub(e.DebitedAt) < r.ledger.TTL {
		r.ledger.Debit(e)
	}
	reportsPodsReady := apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadPodsReady) != nil
	return r.ledger.MarkAdmitted(e.UID, e.Cluster, e.DebitedAt, reportsPodsReady)
}

// admittedAt is when a cluster admitted the workload: the transition of MultiKueue's check to
// Ready or, without MultiKueue, of the condition Admitted.
func (o *observation) admittedAt(otherwise time.Time) time.Time {
	if c := kueuestate.FindCheck(o.wl, o.multiKueue); c != nil && c.State == kueue.CheckStateReady {
		return c.LastTransitionTime.Time
	}
	if c := apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadAdmitted); o.multiKueue == "" && c != nil {
		return c.LastTransitionTime.Time
	}
	return otherwise
}

// podsReadySince is when all pods of a workload were ready that was admitted at a given time.
func podsReadySince(wl *kueue.Workload, admitted time.Time) (time.Time, bool) {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.LastTransitionTime.Time.Before(admitted) {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}
