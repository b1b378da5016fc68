package scoringpolicy

import (
	"cmp"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

var (
	scoreDesc = prometheus.NewDesc("plimsoll_score",
		"Score as it is published, or would be in Shadow mode: -100..100.", []string{"policy", "score", "cluster"}, nil)
	rawDesc = prometheus.NewDesc("plimsoll_score_raw",
		"Last usable value of a score's query, as the source answered it.", []string{"policy", "score", "cluster"}, nil)
	stateDesc = prometheus.NewDesc("plimsoll_score_state",
		"Scores of a policy by what became of them in the last round.", []string{"policy", "score", "state"}, nil)
	askedDesc = prometheus.NewDesc("plimsoll_score_query_duration_seconds",
		"Duration of a score's query in the last round, with retries; score=\"(freshness)\" is the policy's freshness.", []string{"policy", "score"}, nil)
	ageDesc = prometheus.NewDesc("plimsoll_score_sample_timestamp_seconds",
		"Unix time of the oldest usable sample behind a cluster's scores.", []string{"policy", "cluster"}, nil)
)

// metrics of all policies. Those per cluster are made from the last results at each
// scrape, so that nothing outlives a cluster or a policy.
type metrics struct {
	outcomes func() map[string]*outcome
	duration *prometheus.HistogramVec
	last     *prometheus.GaugeVec
	until    *prometheus.GaugeVec
	refused  *prometheus.CounterVec
	clamped  *prometheus.CounterVec
	failures *prometheus.CounterVec
	writes   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, outcomes func() map[string]*outcome) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"policy"}, labels...))
	}
	m := &metrics{
		outcomes: outcomes,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_round_duration_seconds", Help: "Duration of a policy's rounds, from asking to the last write.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"policy"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_round_timestamp_seconds", Help: "Unix time at which a policy's last round began.",
		}, []string{"policy"}),
		until: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_round_valid_until_timestamp_seconds", Help: "Unix time until which what a policy's last round published is valid.",
		}, []string{"policy"}),
		refused:  counter("plimsoll_rounds_refused_total", "Rounds that were held because fewer clusters than minHealthyPercent answered."),
		clamped:  counter("plimsoll_score_clamped_total", "Values that normalization left outside the score's range."),
		failures: counter("plimsoll_score_query_failures_total", "Rounds in which a score's query got no usable answer, by reason; ParseError: it was not asked.", "score", "reason"),
		writes:   counter("plimsoll_score_writes_total", "Writes of AddOnPlacementScores, by what had changed; failed ones as result=\"failed\".", "result"),
	}
	if reg != nil {
		reg.MustRegister(m, m.duration, m.last, m.until, m.refused, m.clamped, m.failures, m.writes)
	}
	return m
}

func (m *metrics) observe(policy string, done *outcome) {
	m.duration.WithLabelValues(policy).Observe(done.took.Seconds())
	m.last.WithLabelValues(policy).Set(float64(done.in.request.Now.UnixNano()) / float64(time.Second))
	m.until.WithLabelValues(policy).Set(float64(done.in.request.Now.Add(done.in.valid).UnixNano()) / float64(time.Second))
	m.clamped.WithLabelValues(policy).Add(float64(done.report.Result.Clamped))
	if done.report.Result.Refused {
		m.refused.WithLabelValues(policy).Inc()
	}
	for _, a := range all(done.report) {
		if reason := failure(a); reason != "" {
			m.failures.WithLabelValues(policy, label(a), reason).Inc()
		}
	}
	for result, n := range done.published.Reasons {
		m.writes.WithLabelValues(policy, result).Add(float64(n))
	}
	m.writes.WithLabelValues(policy, "deleted").Add(float64(done.published.Deleted))
	m.writes.WithLabelValues(policy, "failed").Add(float64(done.published.Failed))
}

func (m *metrics) forget(policy string) {
	labels := prometheus.Labels{"policy": policy}
	m.duration.DeletePartialMatch(labels)
	m.last.DeletePartialMatch(labels)
	m.until.DeletePartialMatch(labels)
	m.refused.DeletePartialMatch(labels)
	m.clamped.DeletePartialMatch(labels)
	m.failures.DeletePartialMatch(labels)
	m.writes.DeletePartialMatch(labels)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{scoreDesc, rawDesc, stateDesc, askedDesc, ageDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for policy, done := range m.outcomes() {
		collect(ch, policy, done.report.Result)
		for _, a := range all(done.report) {
			gauge(ch, askedDesc, a.Duration.Seconds(), policy, label(a))
		}
	}
}

// label names a query in metrics and in the status.
func label(a *round.QueryReport) string {
	return cmp.Or(a.Name, "(freshness)")
}

func failure(a *round.QueryReport) string {
	switch {
	case a.Problems != nil:
		return v1alpha1.ReasonParseError
	case a.Err != nil:
		return string(query.ReasonOf(a.Err))
	}
	return ""
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func collect(ch chan<- prometheus.Metric, policy string, r *score.Result) {
	states := make([]map[score.State]int, len(r.Names))
	for i := range states {
		states[i] = map[score.State]int{}
	}
	for i, cluster := range r.Clusters {
		oldest := score.Instant(0)
		for j, cell := range r.Row(i) {
			states[j][cell.State]++
			if cell.State != score.Omitted {
				gauge(ch, scoreDesc, float64(cell.Value), policy, r.Names[j], cluster)
			}
			if !cell.SampleTime.IsZero() {
				if !math.IsNaN(cell.Raw) {
					gauge(ch, rawDesc, cell.Raw, policy, r.Names[j], cluster)
				}
				if oldest.IsZero() || cell.SampleTime < oldest {
					oldest = cell.SampleTime
				}
			}
		}
		if !oldest.IsZero() {
			gauge(ch, ageDesc, float64(oldest)/float64(time.Second), policy, cluster)
		}
	}
	for j, name := range r.Names {
		for s := score.Scored; s <= score.Omitted; s++ {
			gauge(ch, stateDesc, float64(states[j][s]), policy, name, s.String())
		}
	}
}
