package workload

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

type metrics struct {
	decisions     *prometheus.CounterVec
	nominations   *prometheus.CounterVec
	mispredicts   *prometheus.CounterVec
	readySeconds  *prometheus.HistogramVec
	admitSeconds  *prometheus.HistogramVec
	ledgerDevices *ledgerCollector
}

var buckets = []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}

func newMetrics(reg prometheus.Registerer, ledger *ledger.Ledger, board *registry.Registry, now func() time.Time) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_decisions_total", Help: "Decisions about workloads, by gate, state and reason.",
		}, []string{"gate", "state", "reason"}),
		nominations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_nominations_total", Help: "Clusters nominated, by cluster and why.",
		}, []string{"cluster", "reason"}),
		mispredicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_mispredictions_total", Help: "Nominations that no cluster admitted in time.",
		}, []string{"gate"}),
		readySeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_gate_ready_seconds", Help: "Seconds from when the operator saw quota reserved, or at most a second after it was, to the gate's check Ready.", Buckets: buckets,
		}, []string{"gate"}),
		admitSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_gate_admitted_seconds", Help: "Seconds from quota reserved on the hub to admission by a cluster, each as the operator saw it, or at most a second after it was.", Buckets: buckets,
		}, []string{"gate", "cluster"}),
		ledgerDevices: &ledgerCollector{ledger: ledger, desc: prometheus.NewDesc("plimsoll_gate_ledger_devices",
			"Devices sent to a cluster and not yet seen in its metrics.", []string{"cluster"}, nil)},
	}
	if reg != nil {
		reg.MustRegister(newQueueCollector(board, now), m.decisions, m.nominations, m.mispredicts, m.readySeconds, m.admitSeconds, m.ledgerDevices)
	}
	return m
}

// ledgerCollector reads the ledger when it is scraped.
type ledgerCollector struct {
	ledger *ledger.Ledger
	desc   *prometheus.Desc
}

func (c *ledgerCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *ledgerCollector) Collect(ch chan<- prometheus.Metric) {
	for cluster, devices := range c.ledger.DevicesByCluster() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(devices), cluster)
	}
}

// queueCollector reads the gates' queues when it is scraped.
type queueCollector struct {
	board           *registry.Registry
	now             func() time.Time
	waiting, oldest *prometheus.Desc
	unanswered      *prometheus.Desc
}

func newQueueCollector(board *registry.Registry, now func() time.Time) *queueCollector {
	desc := func(opts prometheus.GaugeOpts) *prometheus.Desc {
		return prometheus.NewDesc(opts.Name, opts.Help, []string{"gate"}, nil)
	}
	return &queueCollector{board: board, now: now,
		waiting: desc(prometheus.GaugeOpts{Name: "plimsoll_gate_waiting_workloads", Help: "Workloads that hold quota and that a gate keeps waiting, whether or not it exists."}),
		oldest:  desc(prometheus.GaugeOpts{Name: "plimsoll_gate_oldest_waiting_seconds", Help: "Seconds since the longest waiting workload got its quota; 0 when none waits."}),
		unanswered: desc(prometheus.GaugeOpts{Name: "plimsoll_gate_queries_failing",
			Help: "1 while some query that the gate needed of late was not answered, or not for all clusters, when it was asked last; the gate's condition QueriesSucceeding says which and why."}),
	}
}

func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.waiting
	ch <- c.oldest
	ch <- c.unanswered
}

func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	for name, q := range c.board.WaitSummaries() {
		age := 0.0
		if !q.Since.IsZero() {
			age = c.now().Sub(q.Since).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(q.Workloads), name)
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age, name)
		unanswered := 0.0
		if c.board.FailingQueries(name) != "" {
			unanswered = 1
		}
		ch <- prometheus.MustNewConstMetric(c.unanswered, prometheus.GaugeValue, unanswered, name)
	}
}

func (m *metrics) decided(gateName string, d gate.Decision) {
	m.decisions.WithLabelValues(gateName, string(d.State), d.Reason).Inc()
}

func (m *metrics) nominated(clusters []string, reason string) {
	for _, c := range clusters {
		m.nominations.WithLabelValues(c, reason).Inc()
	}
}

func (m *metrics) mispredicted(gateName string) { m.mispredicts.WithLabelValues(gateName).Inc() }

func (m *metrics) ready(gateName string, after time.Duration) {
	m.readySeconds.WithLabelValues(gateName).Observe(after.Seconds())
}

func (m *metrics) admitted(gateName, cluster string, after time.Duration) {
	m.admitSeconds.WithLabelValues(gateName, cluster).Observe(after.Seconds())
}

func reservedAt(wl *kueue.Workload) (time.Time, bool) {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}
