package world

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// Times of MultiKueue 0.19.2.
const (
	// batchPeriod is the delay of events from workers.
	batchPeriod = time.Second
	// collectInterval is the time between two searches for orphaned copies on a worker.
	collectInterval = time.Minute
	// clientBurst are the requests that a worker's client sends before its limit applies.
	clientBurst = 10
	// errorDelay is the wait after a failed reconciliation.
	errorDelay = time.Second
)

// multiKueue is MultiKueue on the hub. reconcileGroup has the numbered steps of
// pkg/controller/admissionchecks/multikueue/workload.go.
type multiKueue struct {
	world   *World
	check   string
	remotes map[string]*remote
	pending map[types.NamespacedName]time.Time
	paused  bool
	// deleted are the last states of Workloads that no longer exist.
	deleted map[types.NamespacedName]*kueue.Workload
}

// remote is MultiKueue's client of a worker.
type remote struct {
	cluster   *cluster
	connected bool
	lostAt    time.Time
	// tokens and at are the state of the client's rate limit.
	tokens float64
	at     time.Time
}

// request takes a number of requests from the limit and returns how long they wait.
func (m *multiKueue) request(r *remote, n int) time.Duration {
	qps, now := m.world.settings.WorkerQPS, m.world.loop.Now()
	r.tokens = min(clientBurst, r.tokens+now.Sub(r.at).Seconds()*qps)
	r.at = now
	r.tokens -= float64(n)
	if r.tokens >= 0 {
		return 0
	}
	return time.Duration(-r.tokens / qps * float64(time.Second))
}

// changed reconciles a Workload after a delay and after the requests that read its copies.
func (m *multiKueue) changed(key types.NamespacedName, delay time.Duration) {
	at := m.world.loop.Now().Add(delay + m.world.dice.between(10*time.Millisecond, 60*time.Millisecond, "multikueue "+key.Name))
	if planned, ok := m.pending[key]; ok && !planned.After(at) {
		return
	}
	m.pending[key] = at
	m.world.loop.After(at.Sub(m.world.loop.Now()), func() {
		if !m.pending[key].Equal(at) {
			return // an earlier look replaced this one
		}
		delete(m.pending, key)
		if m.paused {
			return
		}
		m.read(key)
	})
}

// read reads the copies from all connected workers and then acts.
func (m *multiKueue) read(key types.NamespacedName) {
	wl := m.workload(key)
	if wl == nil || kueuestate.FindCheck(wl, m.check) == nil || kueuestate.FindCheck(wl, m.check).State == kueue.CheckStateRejected {
		return
	}
	wait := time.Duration(0)
	for _, name := range m.members() {
		if r := m.remotes[name]; r != nil && r.connected {
			wait = max(wait, m.request(r, 1))
		}
	}
	m.world.loop.After(wait, func() {
		if m.paused {
			return
		}
		for _, name := range m.members() {
			if r := m.remotes[name]; r != nil && r.connected && !r.cluster.reachable {
				m.changed(key, errorDelay) // the read fails
				return
			}
		}
		m.reconcile(key)
	})
}

// workload is the live Workload, or the last state of a deleted one.
func (m *multiKueue) workload(key types.NamespacedName) *kueue.Workload {
	if wl := m.world.kueue.workloads.get(key); wl != nil {
		return wl
	}
	return m.deleted[key]
}

// members are the clusters of the MultiKueueConfig.
func (m *multiKueue) members() []string { return m.world.configClusters() }

// connections are the members with and without a connection.
func (m *multiKueue) connections() (names []string, unavailable []string) {
	for _, name := range m.members() {
		if r := m.remotes[name]; r != nil && r.connected {
			names = append(names, name)
		} else {
			unavailable = append(unavailable, name)
		}
	}
	return names, unavailable
}

func (m *multiKueue) copyOn(name string, key types.NamespacedName) *kueue.Workload {
	return m.remotes[name].cluster.kueue.workloads.get(key)
}

// first is the worker whose copy has had a condition for the longest time.
func (m *multiKueue) first(names []string, key types.NamespacedName, kind string) string {
	best, on := time.Time{}, ""
	for _, name := range names {
		wl := m.copyOn(name, key)
		if wl == nil {
			continue
		}
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionTrue && (on == "" || c.LastTransitionTime.Time.Before(best)) {
			best, on = c.LastTransitionTime.Time, name
		}
	}
	return on
}

func (m *multiKueue) reconcile(key types.NamespacedName) { //nolint:gocyclo // the steps of Kueue's own reconciler, in its order
	local := m.world.kueue.workloads.get(key)
	names, unavailable := m.connections()
	if local == nil || !local.DeletionTimestamp.IsZero() {
		for _, name := range names {
			m.removeCopy(name, key)
		}
		delete(m.deleted, key)
		return
	}
	acs := kueuestate.FindCheck(local, m.check)
	if acs == nil {
		return
	}
	job := m.world.kueue.jobOf(key)
	if job == nil {
		return
	}
	// 1. Slices that were or will be replaced.
	if ignores(local) {
		return
	}
	// 2. Without quota or after the end, no copy stays.
	if kueuestate.IsFinished(local) || local.Status.Admission == nil {
		for _, name := range names {
			m.removeCopy(name, key)
		}
		if len(unavailable) > 0 {
			m.changed(key, m.world.settings.WorkerLostTimeout)
		}
		return
	}
	// 3. A finished copy ends the workload.
	if on := m.first(names, key, kueue.WorkloadFinished); on != "" {
		m.syncJob(on, key, job)
		m.world.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			return m.world.kueue.condition(wl, kueue.WorkloadFinished, true, job.finished, "")
		})
		return
	}
	// 4. Evictions.
	if on := m.first(names, key, kueue.WorkloadEvicted); on != "" {
		if kueuestate.IsEvicted(local) {
			if m.syncJob(on, key, job) {
				m.changed(key, errorDelay)
			}
			return
		}
		if acs.State == kueue.CheckStateReady {
			m.setCheck(key, kueue.CheckStateRetry, "Workload evicted on worker cluster: "+on)
			return
		}
	}
	// 5. Copies with another spec are replaced.
	for _, name := range names {
		if c := m.copyOn(name, key); c != nil && outOfSync(local, c) && !m.scaleDown(name, key, local) {
			m.removeCopy(name, key)
		}
	}
	// 6. The first copy that a worker admitted wins.
	on := m.first(names, key, kueue.WorkloadAdmitted)
	if on == "" && acs.State == kueue.CheckStateReady {
		m.admittingLost(local, key, unavailable)
		return
	}
	if on != "" {
		m.follow(local, key, names, on, job)
		return
	}
	// 8. and 9. The nominated clusters get copies, the others lose them.
	if acs.State != kueue.CheckStatePending || local.Status.ClusterName != nil && !kueuestate.IsElastic(local) || !kueuestate.OtherChecksReady(local, m.check) {
		return
	}
	if m.nominateComponent(key, names) {
		m.copyTo(key, names)
	}
}

// admittingLost handles a workload whose admitting worker shows no admitted copy.
func (m *multiKueue) admittingLost(local *kueue.Workload, key types.NamespacedName, unavailable []string) {
	if local.Status.ClusterName != nil && slices.Contains(unavailable, *local.Status.ClusterName) {
		lostAt := m.world.loop.Now()
		if r := m.remotes[*local.Status.ClusterName]; r != nil {
			lostAt = r.lostAt
		}
		if wait := m.world.settings.WorkerLostTimeout - m.world.loop.Now().Sub(lostAt); wait > 0 {
			m.changed(key, wait)
			return
		}
		m.setCheck(key, kueue.CheckStateRetry, "Admitting remote lost")
		return
	}
	m.setCheck(key, kueue.CheckStateRetry, "Admitting remote no longer exists")
}

// follow converges on the worker that admitted the workload.
func (m *multiKueue) follow(local *kueue.Workload, key types.NamespacedName, names []string, on string, job *batchJob) {
	for _, name := range names {
		if name != on && m.copyOn(name, key) != nil {
			m.removeCopy(name, key)
		}
	}
	if kueuestate.IsEvicted(local) {
		c := m.remotes[on].cluster
		c.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			return c.kueue.condition(wl, kueue.WorkloadDeactivationTarget, true, "EvictedOnManagerCluster", "")
		})
		return
	}
	deferred := m.syncJob(on, key, job)
	if check := kueuestate.FindCheck(local, m.check); check.State == kueue.CheckStatePending {
		m.world.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			check := kueuestate.FindCheck(wl, m.check)
			if check == nil || check.State != kueue.CheckStatePending || wl.Status.Admission == nil || kueuestate.IsEvicted(wl) {
				return false
			}
			if wl.Status.ClusterName != nil && *wl.Status.ClusterName != on {
				return false // the name is immutable
			}
			if wl.Status.ClusterName == nil && !slices.Contains(wl.Status.NominatedClusterNames, on) {
				return false // the webhook refuses a cluster that is not nominated
			}
			check.State, check.Message, check.LastTransitionTime = kueue.CheckStateReady, "The workload was admitted on "+on, m.world.kueue.stamp()
			wl.Status.ClusterName, wl.Status.NominatedClusterNames = &on, nil
			m.world.placed(key, on)
			m.wakeSiblings(key)
			return true
		})
	}
	if deferred {
		m.changed(key, errorDelay)
	}
}

func (m *multiKueue) setCheck(key types.NamespacedName, state kueue.CheckState, message string) {
	m.world.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
		check := kueuestate.FindCheck(wl, m.check)
		if check == nil || check.State == state {
			return false
		}
		check.State, check.Message, check.LastTransitionTime = state, message, m.world.kueue.stamp()
		return true
	})
	m.world.note("MultiKueue sets its check of %s to %s: %s", key.Name, state, message)
}

// watch keeps the condition Active of the MultiKueueClusters.
func (m *multiKueue) watch(name string) {
	r := m.remotes[name]
	if m.paused || r == nil || r.connected == r.cluster.reachable && m.world.isReportedActive(name) == r.connected {
		return
	}
	r.connected = r.cluster.reachable
	if !r.connected {
		r.lostAt = m.world.loop.Now()
	}
	m.world.reportConnection(name, r.connected)
	m.world.note("MultiKueue connection to %s: %v", name, r.connected)
	for _, key := range m.world.kueue.workloads.keys() {
		wl := m.world.kueue.workloads.get(key)
		if m.copyOn(name, key) != nil || wl.Status.ClusterName != nil && *wl.Status.ClusterName == name || slices.Contains(wl.Status.NominatedClusterNames, name) {
			m.changed(key, batchPeriod)
		}
	}
	if r.connected {
		for _, key := range r.cluster.kueue.workloads.keys() {
			m.changed(key, batchPeriod)
		}
	}
}
