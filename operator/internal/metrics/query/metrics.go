package query

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of all clients of a process. A nil *Metrics records nothing.
type Metrics struct {
	duration    *prometheus.HistogramVec
	failures    *prometheus.CounterVec
	retries     *prometheus.CounterVec
	annotations *prometheus.CounterVec
}

// NewMetrics creates and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "plimsoll_query_duration_seconds",
			Help:    "Duration of queries to a metrics source, including retries.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"source"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_query_failures_total",
			Help: "Failed queries to a metrics source, by reason.",
		}, []string{"source", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_query_retries_total",
			Help: "Retries of queries to a metrics source, by reason of the preceding failure.",
		}, []string{"source", "reason"}),
		annotations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_query_annotations_total",
			Help: "Warnings and infos in the results of queries to a metrics source, by kind.",
		}, []string{"source", "kind"}),
	}
	reg.MustRegister(m.duration, m.failures, m.retries, m.annotations)
	return m
}

// DeleteSource deletes the series of a source that no longer exists.
func (m *Metrics) DeleteSource(source string) {
	if m == nil {
		return
	}
	labels := prometheus.Labels{"source": source}
	m.duration.DeletePartialMatch(labels)
	m.failures.DeletePartialMatch(labels)
	m.retries.DeletePartialMatch(labels)
	m.annotations.DeletePartialMatch(labels)
}

func (m *Metrics) observe(source string, d time.Duration, err error) {
	if m == nil {
		return
	}
	m.duration.WithLabelValues(source).Observe(d.Seconds())
	if err != nil {
		m.failures.WithLabelValues(source, reasonLabel(ReasonOf(err))).Inc()
	}
}

func (m *Metrics) countRetry(source string, reason Reason) {
	if m != nil {
		m.retries.WithLabelValues(source, reasonLabel(reason)).Inc()
	}
}

func (m *Metrics) countAnnotations(source string, r Result) {
	if m == nil {
		return
	}
	m.annotations.WithLabelValues(source, "warning").Add(float64(len(r.Warnings)))
	m.annotations.WithLabelValues(source, "info").Add(float64(len(r.Infos)))
}

// reasonLabel returns the label value of a reason. Conditions use CamelCase, metric
// labels snake_case.
func reasonLabel(r Reason) string {
	switch r {
	case ReasonBadQuery:
		return "bad_query"
	case ReasonTimeout:
		return "timeout"
	case ReasonRateLimited:
		return "rate_limited"
	case ReasonUnavailable:
		return "unavailable"
	case ReasonUnreachable:
		return "unreachable"
	case ReasonUnauthorized:
		return "unauthorized"
	case ReasonBadTLS:
		return "bad_tls"
	case ReasonBadResponse:
		return "bad_response"
	case ReasonTooLarge:
		return "too_large"
	case ReasonRedirected:
		return "redirected"
	case ReasonForbidden:
		return "forbidden_address"
	case ReasonCanceled:
		return "canceled"
	}
	return "unknown"
}
