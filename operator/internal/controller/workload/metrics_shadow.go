package workload

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
)

// shadowCollector reads what gates in mode Shadow would have done when it is scraped.
type shadowCollector struct {
	book                *shadow.Book
	now                 func() time.Time
	total, waited, hung *prometheus.Desc
}

func newShadowCollector(book *shadow.Book, now func() time.Time) *shadowCollector {
	return &shadowCollector{book: book, now: now,
		total: prometheus.NewDesc("plimsoll_gate_shadow_total",
			"Workloads that passed a gate in mode Shadow and have started or ended since, by what the gate would have done. The count begins anew with each change of the gate's spec.", []string{"gate", "outcome"}, nil),
		waited: prometheus.NewDesc("plimsoll_gate_shadow_wait_seconds_total",
			"Time for which the gate would have kept these workloads waiting, in seconds.", []string{"gate", "outcome"}, nil),
		hung: prometheus.NewDesc("plimsoll_gate_shadow_hung_device_seconds_total",
			"Devices of workloads that passed a gate in mode Shadow and whose pods were not ready 5 minutes after a cluster admitted them, times the seconds until they were, or the workload ended. Workloads that still hang are included.", []string{"gate", "outcome"}, nil),
	}
}

func (c *shadowCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.total
	ch <- c.waited
	ch <- c.hung
}

func (c *shadowCollector) Collect(ch chan<- prometheus.Metric) {
	for name, report := range c.book.Reports(c.now()) {
		totals := map[v1alpha1.GateOutcome]v1alpha1.ShadowOutcome{}
		for _, sum := range report.Outcomes {
			totals[sum.Outcome] = sum
		}
		hung := map[v1alpha1.GateOutcome]int64{}
		for _, row := range report.Hanging {
			hung[row.Outcome] += row.HungSeconds * row.Devices
		}
		for _, outcome := range shadow.Outcomes {
			label := snakeCase(string(outcome))
			ch <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(totals[outcome].Workloads), name, label)
			ch <- prometheus.MustNewConstMetric(c.hung, prometheus.CounterValue, float64(totals[outcome].HungDeviceSeconds+hung[outcome]), name, label)
			ch <- prometheus.MustNewConstMetric(c.waited, prometheus.CounterValue, float64(totals[outcome].WaitSeconds), name, label)
		}
	}
}
