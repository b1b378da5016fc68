package reclaimpolicy

import (
	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// modeLabels are the values of the label mode.
var modeLabels = map[v1alpha1.Mode]string{v1alpha1.ModeShadow: "shadow", v1alpha1.ModeEnforce: "enforce"}

type metrics struct {
	workloads   *prometheus.CounterVec
	idleDevices *prometheus.GaugeVec
	moves       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		workloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_reclaim_workloads_total", Help: "Workloads that a ReclaimPolicy returned to their queues (mode=enforce) or would have returned (mode=shadow), because their devices were idle.",
		}, []string{"policy", "mode"}),
		idleDevices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_reclaim_idle_devices", Help: "Devices of reclaimable workloads that have been idle for the time of the ReclaimPolicy, in its last round.",
		}, []string{"policy"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_reclaim_moves_total", Help: "Workloads that a ReclaimPolicy with rebalance returned to their queues (mode=enforce) or would have returned (mode=shadow), because a waiting workload has room without them and they fit on another cluster.",
		}, []string{"policy", "mode"}),
	}
	if reg != nil {
		reg.MustRegister(m.workloads, m.idleDevices, m.moves)
	}
	return m
}

func (m *metrics) count(policy string, mode v1alpha1.Mode, isMove bool) {
	counter := m.workloads
	if isMove {
		counter = m.moves
	}
	counter.WithLabelValues(policy, modeLabels[mode]).Inc()
}

// initMoves exports the counters of moves as 0. A policy without rebalance has none.
func (m *metrics) initMoves(policy string) {
	for _, mode := range modeLabels {
		m.moves.WithLabelValues(policy, mode)
	}
}

// setIdleDevices also exports the counters of the policy as 0.
func (m *metrics) setIdleDevices(policy string, devices int64) {
	m.idleDevices.WithLabelValues(policy).Set(float64(devices))
	for _, mode := range modeLabels {
		m.workloads.WithLabelValues(policy, mode)
	}
}

// forget removes the series of a policy that no longer exists.
func (m *metrics) forget(policy string) {
	m.idleDevices.DeleteLabelValues(policy)
	m.workloads.DeletePartialMatch(prometheus.Labels{"policy": policy})
	m.moves.DeletePartialMatch(prometheus.Labels{"policy": policy})
}
