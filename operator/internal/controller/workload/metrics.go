package workload

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

type metrics struct {
	decisions     *prometheus.CounterVec
	nominations   *prometheus.CounterVec
	mispredicts   *prometheus.CounterVec
	requeues      *prometheus.CounterVec
	readySeconds  *prometheus.HistogramVec
	admitSeconds  *prometheus.HistogramVec
	ledgerDevices *ledgerCollector
}

var buckets = []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}

func newMetrics(reg prometheus.Registerer, ledger *ledger.Ledger, gates *gatestate.Registry, waiting *waitqueue.Queue, now func() time.Time) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_decisions_total", Help: "Decisions of the gate, by state of the admission check and reason.",
		}, []string{"gate", "state", "reason"}),
		nominations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_nominations_total", Help: "Nominations of clusters, by cluster and reason.",
		}, []string{"cluster", "reason"}),
		mispredicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_mispredictions_total", Help: "Attempts of a workload that no nominated cluster admitted within the gate's advanced.widenAfterSeconds.",
		}, []string{"gate"}),
		requeues: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_gate_requeues_total", Help: "Workloads that returned to their queue because no nominated cluster admitted them within the gate's notAdmittedAfterSeconds.",
		}, []string{"gate"}),
		readySeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_gate_ready_seconds", Help: "Time from quota reservation to the gate's check becoming Ready, in seconds. Kueue records the reservation with a resolution of one second.", Buckets: buckets,
		}, []string{"gate"}),
		admitSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_gate_admitted_seconds", Help: "Time from quota reservation on the hub to admission by a cluster, in seconds. Both are recorded with a resolution of one second.", Buckets: buckets,
		}, []string{"gate", "cluster"}),
		ledgerDevices: &ledgerCollector{ledger: ledger, desc: prometheus.NewDesc("plimsoll_gate_ledger_devices",
			"Devices of workloads that were sent to a cluster and that its samples do not show yet.", []string{"cluster"}, nil),
			oldest: prometheus.NewDesc("plimsoll_gate_ledger_oldest_seconds",
				"Age of the oldest reservation for a cluster in seconds. A reservation ends when the cluster's samples show the workload.", []string{"cluster"}, nil),
			doubted: prometheus.NewDesc("plimsoll_gate_doubted",
				"1 while gates doubt the cluster for the workloads of some namespace, because it admits workloads and has not started the last ones; else 0.", []string{"cluster"}, nil),
			now: now, holds: prometheus.NewDesc("plimsoll_gate_hold_seconds",
				"Time since the gate began to hold the cluster for a waiting workload, in seconds. With mode=\"shadow\", the cluster is not kept free.",
				[]string{"gate", "cluster", "mode"}, nil)},
	}
	if reg != nil {
		reg.MustRegister(newQueueCollector(gates, waiting, now), m.decisions, m.nominations, m.mispredicts, m.requeues, m.readySeconds, m.admitSeconds, m.ledgerDevices, newShadowCollector(gates.Shadow, now))
	}
	gates.OnChange(func(name string) {
		if g, ok := gates.Get(name); ok {
			m.startAtZero(g)
		}
	})
	return m
}

// pendingReasons are the reasons for which a gate regularly keeps workloads waiting.
var pendingReasons = []string{gate.ReasonNoDecisions, gate.ReasonNoRoom, gate.ReasonNever, gate.ReasonRuledOut, gate.ReasonStale, gate.ReasonNoMetrics,
	gate.ReasonFleetRequirementUnmet, gate.ReasonOrphanedCopy, gate.ReasonGateNotReady}

// nominationReasons are the reasons of all nominations.
var nominationReasons = []string{lifecycle.ReasonNominated, lifecycle.ReasonNominatedAgain, lifecycle.ReasonEvictionRepair,
	string(dispatch.StageWiden), string(dispatch.StageAll)}

// startAtZero creates the series of a gate and of its clusters. A series that is born with
// its first event has no increase then, so rules would miss the event.
func (m *metrics) startAtZero(g gatestate.Gate) {
	m.mispredicts.WithLabelValues(g.Name)
	m.requeues.WithLabelValues(g.Name)
	m.readySeconds.WithLabelValues(g.Name)
	m.decisions.WithLabelValues(g.Name, snakeCase(string(gate.Ready)), snakeCase(gate.ReasonPlaceable))
	for _, reason := range pendingReasons {
		m.decisions.WithLabelValues(g.Name, snakeCase(string(gate.Pending)), snakeCase(reason))
	}
	for _, c := range g.Clusters {
		m.admitSeconds.WithLabelValues(g.Name, c.Name)
		for _, reason := range nominationReasons {
			m.nominations.WithLabelValues(c.Name, snakeCase(reason))
		}
	}
}

// ledgerCollector reads the ledger when it is scraped.
type ledgerCollector struct {
	ledger      *ledger.Ledger
	now         func() time.Time
	desc, holds *prometheus.Desc
	oldest      *prometheus.Desc
	doubted     *prometheus.Desc
}

func (c *ledgerCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.desc
	ch <- c.holds
	ch <- c.oldest
	ch <- c.doubted
}

func (c *ledgerCollector) Collect(ch chan<- prometheus.Metric) {
	for cluster, devices := range c.ledger.DevicesByCluster() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(devices), cluster)
	}
	for cluster, at := range c.ledger.OldestByCluster() {
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, c.now().Sub(at).Seconds(), cluster)
	}
	for cluster, isDoubted := range c.ledger.View().Doubted(c.now()) {
		value := 0.0
		if isDoubted {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.doubted, prometheus.GaugeValue, value, cluster)
	}
	oldest := map[[3]string]time.Time{} // a gate may hold a cluster for several kinds of devices
	for _, h := range c.ledger.View().Holds() {
		labels := [3]string{h.Gate, h.Cluster, "enforce"}
		if h.Shadow {
			labels[2] = "shadow"
		}
		if since, ok := oldest[labels]; !ok || h.Since.Before(since) {
			oldest[labels] = h.Since
		}
	}
	for labels, since := range oldest {
		ch <- prometheus.MustNewConstMetric(c.holds, prometheus.GaugeValue, c.now().Sub(since).Seconds(), labels[:]...)
	}
}

// queueCollector reads the gates' queues when it is scraped.
type queueCollector struct {
	gates                   *gatestate.Registry
	queue                   *waitqueue.Queue
	now                     func() time.Time
	waiting, parked, oldest *prometheus.Desc
	devices                 *prometheus.Desc
	failing                 *prometheus.Desc
}

func newQueueCollector(gates *gatestate.Registry, queue *waitqueue.Queue, now func() time.Time) *queueCollector {
	desc := func(opts prometheus.GaugeOpts) *prometheus.Desc {
		return prometheus.NewDesc(opts.Name, opts.Help, []string{"gate"}, nil)
	}
	return &queueCollector{gates: gates, queue: queue, now: now,
		devices: prometheus.NewDesc("plimsoll_gate_waiting_devices",
			"Number of devices that the waiting workloads of the gate request, by resource and model. model is empty for workloads that may use any model.", []string{"gate", "resource", "model"}, nil),
		waiting: desc(prometheus.GaugeOpts{Name: "plimsoll_gate_waiting_workloads", Help: "Number of workloads that hold quota and wait for the gate, including gates that do not exist."}),
		parked:  desc(prometheus.GaugeOpts{Name: "plimsoll_gate_parked_workloads", Help: "Number of workloads without quota that no cluster of the gate could start, even if it were empty."}),
		oldest:  desc(prometheus.GaugeOpts{Name: "plimsoll_gate_oldest_waiting_seconds", Help: "Time since the longest waiting workload of the gate reserved quota, in seconds; 0 if no workload waits."}),
		failing: desc(prometheus.GaugeOpts{Name: "plimsoll_gate_queries_failing",
			Help: "1 while the last attempt of a query that the gate recently needed failed, or returned no result for some clusters. The gate's condition QueriesSucceeding names the query and the error."}),
	}
}

func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.waiting
	ch <- c.parked
	ch <- c.oldest
	ch <- c.failing
	ch <- c.devices
}

func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	for name, devices := range c.queue.Devices() {
		for kind, n := range devices {
			ch <- prometheus.MustNewConstMetric(c.devices, prometheus.GaugeValue, float64(n), name, kind.Resource, kind.Model)
		}
	}
	for name, q := range c.gates.WaitSummaries() {
		age := 0.0
		if !q.Since.IsZero() {
			age = c.now().Sub(q.Since).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(q.Workloads), name)
		ch <- prometheus.MustNewConstMetric(c.parked, prometheus.GaugeValue, float64(q.Parked), name)
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age, name)
		failing := 0.0
		if c.gates.QueryFaults(name).Failing != "" {
			failing = 1
		}
		ch <- prometheus.MustNewConstMetric(c.failing, prometheus.GaugeValue, failing, name)
	}
}

// count counts what a step did.
func (m *metrics) count(out *engine.Outcome) {
	gateName, next := out.Situation.Gate.Name, out.Step
	if d := next.Decision; d != nil {
		m.decisions.WithLabelValues(gateName, snakeCase(string(d.State)), snakeCase(d.Reason)).Inc()
	}
	if next.Mispredicted {
		m.mispredicts.WithLabelValues(gateName).Inc()
	}
	if next.Requeued {
		m.requeues.WithLabelValues(gateName).Inc()
	}
	if a := out.Admission; a != nil {
		m.admitSeconds.WithLabelValues(gateName, a.Cluster).Observe(a.After.Seconds())
	}
	if out.ReadyAfter != nil {
		m.readySeconds.WithLabelValues(gateName).Observe(out.ReadyAfter.Seconds())
	}
	for _, w := range next.Writes {
		if w.Nomination != nil {
			m.countNomination(out.Situation.Workload.Status.NominatedClusterNames, *w.Nomination)
		}
	}
}

func (m *metrics) countNomination(before []string, w lifecycle.NominationWrite) {
	for _, c := range w.Clusters {
		if !slices.Contains(before, c) {
			m.nominations.WithLabelValues(c, snakeCase(w.Reason)).Inc()
		}
	}
}

// snakeCase turns a condition reason in CamelCase into a label value.
func snakeCase(reason string) string {
	var b strings.Builder
	for i, c := range reason {
		if unicode.IsUpper(c) {
			if i > 0 {
				b.WriteByte('_')
			}
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}
