package world

import (
	"slices"
	"time"
)

// Times of MultiKueue 0.19.2's connections to workers. After a failed attempt, the next one follows 5 s later, then 10 s,
// 20 s and so on up to 320 s: a worker that is back may stay without a connection for more than five minutes.
const (
	connectRetry    = 5 * time.Second
	maxConnectSteps = 7
)

// watch looks whether the hub reaches a worker, and keeps the condition Active of its MultiKueueCluster.
func (m *multiKueue) watch(name string) {
	r := m.remotes[name]
	switch {
	case m.paused || r == nil:
		return
	case r.connected == r.cluster.reachable && m.world.isReportedActive(name) == r.connected:
		if !r.connected {
			m.retry(name, r)
		}
		return
	}
	was := r.connected
	r.connected = r.cluster.reachable
	switch {
	case r.connected:
		r.failures, r.connectedAt = 0, m.world.loop.Now()
	case was || r.lostAt.IsZero():
		r.lostAt = m.world.loop.Now()
	}
	m.world.reportConnection(name, r.connected)
	m.world.note("MultiKueue connection to %s: %v", name, r.connected)
	if !r.connected {
		m.retry(name, r)
	}
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

// retry plans the next attempt to connect to a worker.
func (m *multiKueue) retry(name string, r *remote) {
	wait := connectRetry << min(r.failures, maxConnectSteps-1)
	r.failures++
	attempt := r.failures
	m.world.loop.After(wait, func() {
		if !r.connected && r.failures == attempt {
			m.watch(name)
		}
	})
}
