package query

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of all clients of a process. A nil *Metrics measures nothing.
type Metrics struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
	retries  *prometheus.CounterVec
	notes    *prometheus.CounterVec
}

// NewMetrics makes and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "plimsoll_query_duration_seconds",
			Help:    "Duration of questions to a metrics source, with retries.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"source"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_query_failures_total",
			Help: "Questions to a metrics source that got no usable answer, by reason.",
		}, []string{"source", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_query_retries_total",
			Help: "Questions sent again, by the reason of the failure before.",
		}, []string{"source", "reason"}),
		notes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_query_annotations_total",
			Help: "Warnings and infos that came with answers.",
		}, []string{"source", "kind"}),
	}
	reg.MustRegister(m.duration, m.failures, m.retries, m.notes)
	return m
}

// Forget drops the series of a source that is gone.
func (m *Metrics) Forget(source string) {
	if m == nil {
		return
	}
	labels := prometheus.Labels{"source": source}
	m.duration.DeletePartialMatch(labels)
	m.failures.DeletePartialMatch(labels)
	m.retries.DeletePartialMatch(labels)
	m.notes.DeletePartialMatch(labels)
}

func (m *Metrics) observe(source string, d time.Duration, err error) {
	if m == nil {
		return
	}
	m.duration.WithLabelValues(source).Observe(d.Seconds())
	if err != nil {
		m.failures.WithLabelValues(source, string(ReasonOf(err))).Inc()
	}
}

func (m *Metrics) retry(source string, reason Reason) {
	if m != nil {
		m.retries.WithLabelValues(source, string(reason)).Inc()
	}
}

func (m *Metrics) annotations(source string, a Answer) {
	if m == nil {
		return
	}
	m.notes.WithLabelValues(source, "warning").Add(float64(len(a.Warnings)))
	m.notes.WithLabelValues(source, "info").Add(float64(len(a.Infos)))
}
