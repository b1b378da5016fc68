package workload

import (
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
)

// track a workload in the ledger: admitted somewhere, or over.
func (r *Reconciler) track(ctx context.Context, s *subject) {
	if former := r.tracks.meet(s.key(), s.wl.UID); former != "" { // deleted and made again between two looks
		r.over(former, s.key(), nil)
		r.tracks.drop(former)
	}
	if !kueuestate.HoldsQuota(s.wl) {
		r.over(s.wl.UID, s.key(), s.wl)
		return
	}
	// Kueue may give quota back and reserve it anew between two looks.
	if reserved, _ := reservedAt(s.wl); r.tracks.holds(s.wl.UID, reserved, r.now()) {
		r.over(s.wl.UID, s.key(), nil)
	}
	cluster := s.placed()
	g, ok := r.gateOf(s)
	if cluster == "" || len(s.own) == 0 || !ok {
		return
	}
	e := Entry(r.facts(ctx, s, &g.Spec), cluster, admittedAt(s.wl, s.mk, r.now()))
	if r.tracks.run(s.wl.UID, e) {
		r.metrics.admitted(s.gateName, cluster, r.tracks.heldFor(s.wl.UID, happened(e.DebitedAt, r.now())))
		if r.holds(e, s.wl) {
			r.waiting.MarkDirty("")
		}
	}
	if since, ok := runningSince(s.wl, e.DebitedAt); ok && r.ledger.MarkPodsReady(e.UID, since) {
		r.waiting.ExpectChanges(r.ledger.Settle)
	}
}

// runningSince is when the pods of a workload that was admitted then were all ready.
func runningSince(wl *kueue.Workload, admitted time.Time) (time.Time, bool) {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.LastTransitionTime.Time.Before(admitted) {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// holds debits what a workload takes from the cluster that admitted it, and says
// whether that changed the ledger. What was admitted long ago shows in the metrics.
func (r *Reconciler) holds(e ledger.Entry, wl *kueue.Workload) bool {
	if r.now().Sub(e.DebitedAt) < r.ledger.TTL {
		r.ledger.Debit(e)
	}
	return r.ledger.MarkAdmitted(e.UID, e.Cluster, e.DebitedAt, apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady) != nil)
}

// over: the workload holds nothing any longer; nil = it is gone, or nobody saw it so.
// Waiting workloads are woken if it held something: at once if its pods are done, else
// as samples come to show it.
func (r *Reconciler) over(uid types.UID, key types.NamespacedName, wl *kueue.Workload) {
	r.waiting.Remove(key)
	var held bool
	if wl != nil && kueuestate.IsFinished(wl) {
		held = r.ledger.Release(string(uid))
	} else {
		held = r.ledger.MarkEnded(string(uid), r.now())
	}
	if e := r.tracks.stop(uid, wl != nil && kueuestate.IsEvictedByAdmissionCheck(wl), r.now()); e != nil {
		r.ledger.Credit(ledger.Credit{Cluster: e.Cluster, PodSets: e.PodSets, FinishedAt: r.now()})
		held = true
	}
	if held {
		r.waiting.MarkDirty("")
		r.waiting.ExpectChanges(2 * r.ledger.Settle)
	}
}

func (r *Reconciler) gone(key types.NamespacedName) {
	uid := r.tracks.leave(key)
	r.over(uid, key, nil)
	r.tracks.drop(uid)
}

func admittedAt(wl *kueue.Workload, check string, otherwise time.Time) time.Time {
	if c := kueuestate.FindCheck(wl, check); c != nil && c.State == kueue.CheckStateReady {
		return c.LastTransitionTime.Time
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); check == "" && c != nil {
		return c.LastTransitionTime.Time
	}
	return otherwise
}
