package workload

import (
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// track a workload in the ledger: admitted somewhere, or over.
func (r *Reconciler) track(ctx context.Context, s *subject) {
	if former := r.tracks.meet(s.key(), s.wl.UID); former != "" { // deleted and made again between two looks
		r.over(former, s.key(), nil)
		r.tracks.drop(former)
	}
	if !gate.HoldsQuota(s.wl) {
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
	e := entry(r.facts(ctx, s, &g.Spec), cluster, admittedAt(s.wl, s.mk, r.now()))
	if r.tracks.run(s.wl.UID, e) {
		r.metrics.admitted(s.gateName, cluster, r.tracks.heldFor(s.wl.UID, happened(e.Debited, r.now())))
		if r.holds(e, s.wl) {
			r.waiting.dirty("")
		}
	}
	if since, ok := runningSince(s.wl, e.Debited); ok && r.ledger.Running(e.UID, since) {
		r.waiting.settling(r.ledger.Settle)
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
func (r *Reconciler) holds(e gate.Entry, wl *kueue.Workload) bool {
	if r.now().Sub(e.Debited) < r.ledger.TTL {
		r.ledger.Debit(e)
	}
	return r.ledger.Admitted(e.UID, e.Cluster, e.Debited, apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady) != nil)
}

// over: the workload holds nothing any longer; nil = it is gone, or nobody saw it so.
// Waiting workloads are woken if it held something: at once if its pods are done, else
// as samples come to show it.
func (r *Reconciler) over(uid types.UID, key types.NamespacedName, wl *kueue.Workload) {
	r.waiting.leave(key)
	var held bool
	if wl != nil && gate.IsFinished(wl) {
		held = r.ledger.Release(string(uid))
	} else {
		held = r.ledger.End(string(uid), r.now())
	}
	if e := r.tracks.stop(uid, wl != nil && gate.IsEvictedByCheck(wl), r.now()); e != nil {
		r.ledger.Credit(gate.Credit{Cluster: e.Cluster, PodSets: e.PodSets, Finished: r.now()})
		held = true
	}
	if held {
		r.waiting.dirty("")
		r.waiting.settling(2 * r.ledger.Settle)
	}
}

func (r *Reconciler) gone(key types.NamespacedName) {
	uid := r.tracks.leave(key)
	r.over(uid, key, nil)
	r.tracks.drop(uid)
}

func admittedAt(wl *kueue.Workload, check string, otherwise time.Time) time.Time {
	if c := gate.FindCheck(wl, check); c != nil && c.State == kueue.CheckStateReady {
		return c.LastTransitionTime.Time
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); check == "" && c != nil {
		return c.LastTransitionTime.Time
	}
	return otherwise
}
