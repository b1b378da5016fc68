package workload

import (
	"context"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// tracks is what is remembered of each workload between reconciliations.
type tracks struct {
	mu      sync.Mutex
	uids    map[types.NamespacedName]types.UID
	running map[types.UID]gate.Entry
	reasons map[types.UID]string
	lates   map[types.UID]int
}

func newTracks() *tracks {
	return &tracks{uids: map[types.NamespacedName]types.UID{}, running: map[types.UID]gate.Entry{}, reasons: map[types.UID]string{}, lates: map[types.UID]int{}}
}

// late records that an attempt was not admitted in time, and says whether that is news.
func (t *tracks) late(uid types.UID, attempt int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lates[uid] >= attempt {
		return false
	}
	t.lates[uid] = attempt
	return true
}

func (t *tracks) reason(uid types.UID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reasons[uid]
}

func (t *tracks) setReason(uid types.UID, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons[uid] = reason
}

func (t *tracks) known(key types.NamespacedName, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uids[key] = uid
}

func (t *tracks) uid(key types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uids[key]
}

// run records that a workload is on a cluster, and says whether that is news.
func (t *tracks) run(uid types.UID, e gate.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.running[uid]
	t.running[uid] = e
	return !known || old.Cluster != e.Cluster
}

// stop forgets that a workload runs, and returns where it ran.
func (t *tracks) stop(uid types.UID) (gate.Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.running[uid]
	delete(t.running, uid)
	return e, ok
}

func (t *tracks) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.reasons, t.uids[key])
	delete(t.lates, t.uids[key])
	delete(t.uids, key)
}

// track a workload in the ledger: admitted somewhere, or over.
func (r *Reconciler) track(ctx context.Context, s *subject) {
	uid := string(s.wl.UID)
	if !gate.HoldsQuota(s.wl) {
		r.over(s.wl.UID, s.key())
		return
	}
	r.tracks.known(s.key(), s.wl.UID)
	cluster := r.placed(s)
	g, ok := r.gateOf(s)
	if cluster == "" || len(s.own) == 0 || !ok {
		return
	}
	admitted := admittedAt(s.wl, s.mk, r.now())
	e := entry(r.facts(ctx, s, &g.Spec), cluster, admitted)
	if !r.tracks.run(s.wl.UID, e) {
		return
	}
	if r.now().Sub(admitted) < r.ledger.TTL {
		r.ledger.Debit(e)
	}
	if r.ledger.Admitted(uid, cluster, admitted) {
		r.metrics.admitted(s.gateName, cluster, s.wl, admitted)
		r.waiting.dirty("")
	}
}

// placed is the cluster that has the workload: the one that MultiKueue says or,
// without MultiKueue, the one that was decided once Kueue has admitted it.
func (r *Reconciler) placed(s *subject) string {
	if s.wl.Status.ClusterName != nil {
		return *s.wl.Status.ClusterName
	}
	if s.mk != "" || !gate.IsAdmitted(s.wl) {
		return ""
	}
	return r.ledger.Cluster(string(s.wl.UID))
}

// over: the workload holds nothing any longer. Waiting workloads are woken if
// it held something.
func (r *Reconciler) over(uid types.UID, key types.NamespacedName) {
	r.waiting.leave(key)
	released := r.ledger.Release(string(uid))
	if e, ran := r.tracks.stop(uid); ran {
		r.ledger.Credit(gate.Credit{Cluster: e.Cluster, PodSets: e.PodSets, Finished: r.now()})
		released = true
	}
	if released {
		r.waiting.dirty("")
		r.waiting.dirtyAfter(r.ledger.Settle)
	}
}

func (r *Reconciler) gone(key types.NamespacedName) {
	r.over(r.tracks.uid(key), key)
	r.tracks.forget(key)
}

// rebuildOnce debits what was nominated before this process started.
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
	for i := range list.Items {
		r.rebuildFrom(ctx, &list.Items[i])
	}
	r.rebuilt = true
	return nil
}

func (r *Reconciler) rebuildFrom(ctx context.Context, wl *kueue.Workload) {
	if !gate.HoldsQuota(wl) {
		return
	}
	s, err := r.gather(ctx, wl)
	dispatch, bad := gate.DecodeDispatch(wl.Annotations)
	if err != nil || bad != nil || len(s.own) == 0 {
		return
	}
	// The models' keys stand in the gate, which the board may not hold yet.
	g := gate.Gate{}
	if known, ok := r.gateOf(s); ok {
		g = known
	} else if spec, ok := r.specOf(ctx, s.gateName); ok {
		g.Spec = spec
	}
	facts := r.facts(ctx, s, &g.Spec)
	since := dispatch.NominatedAt
	if since.IsZero() || r.now().Sub(since) > r.ledger.TTL {
		return
	}
	if wl.Status.ClusterName != nil {
		r.ledger.Debit(entry(facts, *wl.Status.ClusterName, since))
		r.ledger.Admitted(facts.UID, *wl.Status.ClusterName, admittedAt(wl, s.mk, since))
		return
	}
	nominated := wl.Status.NominatedClusterNames
	if s.mk == "" {
		nominated = dispatch.Nominated
	}
	for _, c := range nominated {
		r.ledger.Debit(entry(facts, c, since))
	}
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
