package workload

import (
	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
)

// admissionCollector reads the state of dispatch and admissions when it is scraped.
type admissionCollector struct {
	engine *engine.Engine
	// isDispatching reports whether this process nominates clusters now.
	isDispatching func() bool

	dispatching, lagSeconds, notReady *prometheus.Desc
}

func newAdmissionCollector(e *engine.Engine, isDispatching func() bool) *admissionCollector {
	return &admissionCollector{engine: e, isDispatching: isDispatching,
		dispatching: prometheus.NewDesc("plimsoll_dispatching",
			"1 if this replica of the operator leads and nominates clusters for MultiKueue; 0 if another replica leads, none does, or --multikueue-dispatch is off.", nil, nil),
		lagSeconds: prometheus.NewDesc("plimsoll_multikueue_lag_seconds",
			"Estimated time from a nomination to MultiKueue's copy of the workload, in seconds: the shortest time from nomination to admission within the last minute; 0 if there was no admission.", nil, nil),
		notReady: prometheus.NewDesc("plimsoll_gate_admitted_not_ready_workloads",
			"Number of workloads that a cluster admitted more than 10 minutes ago and whose pods have not been ready since. Kueue must report PodsReady (waitForPodsReady).", []string{"gate", "cluster"}, nil),
	}
}

func (c *admissionCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.dispatching
	ch <- c.lagSeconds
	ch <- c.notReady
}

func (c *admissionCollector) Collect(ch chan<- prometheus.Metric) {
	dispatching := 0.0
	if c.isDispatching() {
		dispatching = 1
	}
	ch <- prometheus.MustNewConstMetric(c.dispatching, prometheus.GaugeValue, dispatching)
	ch <- prometheus.MustNewConstMetric(c.lagSeconds, prometheus.GaugeValue, c.engine.Lag().Seconds())
	for admission, n := range c.engine.LateAdmissions() {
		ch <- prometheus.MustNewConstMetric(c.notReady, prometheus.GaugeValue, float64(n), admission.Gate, admission.Cluster)
	}
}
