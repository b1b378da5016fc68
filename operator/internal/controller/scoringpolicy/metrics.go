package scoringpolicy

import (
	"cmp"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

var (
	scoreDesc = prometheus.NewDesc("plimsoll_score",
		"Published score of a cluster, from -100 to 100. In Shadow mode, the score that would be published.", []string{"policy", "score", "cluster"}, nil)
	stateDesc = prometheus.NewDesc("plimsoll_score_state",
		"Number of clusters by the state of their score in the last round. state=\"absent\" counts clusters without a series that missing.absent accepts.", []string{"policy", "score", "state"}, nil)
	queryDurationDesc = prometheus.NewDesc("plimsoll_score_query_duration_seconds",
		"Duration of a score's query in the last round, including retries. score=\"(freshness)\" is the policy's freshness query.", []string{"policy", "score"}, nil)
	sampleTimeDesc = prometheus.NewDesc("plimsoll_score_sample_timestamp_seconds",
		"Unix time of the oldest usable sample behind a cluster's scores.", []string{"policy", "cluster"}, nil)
)

// metrics of all policies. The metrics per cluster are computed from the last rounds at
// each scrape, so that no series outlives its cluster or policy.
type metrics struct {
	lastRounds func() map[string]*completedRound
	perCluster bool // export the metrics per cluster
	duration   *prometheus.HistogramVec
	startTime  *prometheus.GaugeVec
	validUntil *prometheus.GaugeVec
	refused    *prometheus.CounterVec
	clamped    *prometheus.CounterVec
	failures   *prometheus.CounterVec
	writes     *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, perCluster bool, lastRounds func() map[string]*completedRound) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"policy"}, labels...))
	}
	m := &metrics{
		lastRounds: lastRounds, perCluster: perCluster,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_round_duration_seconds", Help: "Duration of a policy's rounds, from the first query to the last write.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"policy"}),
		startTime: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_round_timestamp_seconds", Help: "Unix time at which a policy's last round started.",
		}, []string{"policy"}),
		validUntil: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_round_valid_until_timestamp_seconds", Help: "Unix time at which the published scores of a policy expire. A round whose writes all fail does not advance it.",
		}, []string{"policy"}),
		refused:  counter("plimsoll_rounds_refused_total", "Number of rounds whose values did not count because fewer clusters than minHealthyPercent had fresh values."),
		clamped:  counter("plimsoll_score_clamped_total", "Number of values that normalization left outside the range of the score."),
		failures: counter("plimsoll_score_query_failures_total", "Number of rounds in which a score's query failed, by reason. A query with reason=\"parse_error\" is not sent.", "score", "reason"),
		writes:   counter("plimsoll_score_writes_total", "Number of writes of AddOnPlacementScores, by what changed. result=\"failed\" counts failed writes.", "result"),
	}
	if reg != nil {
		reg.MustRegister(m, m.duration, m.startTime, m.validUntil, m.refused, m.clamped, m.failures, m.writes)
	}
	return m
}

// observe records one round of a policy.
func (m *metrics) observe(policy string, done *completedRound) {
	m.duration.WithLabelValues(policy).Observe(done.took.Seconds())
	m.startTime.WithLabelValues(policy).Set(unixSeconds(done.in.request.Now))
	if p := done.published; p.Failed == 0 || p.Written > 0 {
		m.setExpiry(policy, done.in.request.Now.Add(done.in.valid))
	}
	m.clamped.WithLabelValues(policy).Add(float64(done.report.Result.Clamped))
	refused := m.refused.WithLabelValues(policy) // 0 before the first refusal, which is then an increase
	if done.report.Result.Refused {
		refused.Inc()
	}
	for _, q := range queriesOf(done.report) {
		if reason := failureReason(q); reason != "" {
			m.failures.WithLabelValues(policy, nameOf(q), reason).Inc()
		}
	}
	for reason, n := range done.published.Reasons {
		m.writes.WithLabelValues(policy, string(reason)).Add(float64(n))
	}
	m.writes.WithLabelValues(policy, "deleted").Add(float64(done.published.Deleted))
	m.writes.WithLabelValues(policy, "failed").Add(float64(done.published.Failed))
}

// setExpiry records when the published scores of a policy expire.
func (m *metrics) setExpiry(policy string, at time.Time) {
	m.validUntil.WithLabelValues(policy).Set(unixSeconds(at))
}

// delete removes all series of a policy.
func (m *metrics) delete(policy string) {
	labels := prometheus.Labels{"policy": policy}
	m.duration.DeletePartialMatch(labels)
	m.startTime.DeletePartialMatch(labels)
	m.validUntil.DeletePartialMatch(labels)
	m.refused.DeletePartialMatch(labels)
	m.clamped.DeletePartialMatch(labels)
	m.failures.DeletePartialMatch(labels)
	m.writes.DeletePartialMatch(labels)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{scoreDesc, stateDesc, queryDurationDesc, sampleTimeDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for policy, done := range m.lastRounds() {
		collectResult(ch, policy, done.report.Result, m.perCluster)
		for _, q := range queriesOf(done.report) {
			sendGauge(ch, queryDurationDesc, q.Duration.Seconds(), policy, nameOf(q))
		}
	}
}

// collectResult sends the metrics per score, and those per cluster if perCluster is set.
func collectResult(ch chan<- prometheus.Metric, policy string, r *score.Result, perCluster bool) {
	states := make([]map[score.State]int, len(r.Names))
	accepted := make([]int, len(r.Names)) // absent as the policy accepts
	for i := range states {
		states[i] = map[score.State]int{}
	}
	for i, cluster := range r.Clusters {
		oldest := score.Instant(0)
		for j, cell := range r.Row(i) {
			if cell.Outcome == score.None {
				accepted[j]++
			} else {
				states[j][cell.State]++
			}
			if perCluster && cell.State != score.Omitted {
				sendGauge(ch, scoreDesc, float64(cell.Value), policy, r.Names[j], cluster)
			}
			if !cell.SampleTime.IsZero() && (oldest.IsZero() || cell.SampleTime < oldest) {
				oldest = cell.SampleTime
			}
		}
		if perCluster && !oldest.IsZero() {
			sendGauge(ch, sampleTimeDesc, float64(oldest)/float64(time.Second), policy, cluster)
		}
	}
	for j, name := range r.Names {
		for s := score.Scored; s <= score.Omitted; s++ {
			sendGauge(ch, stateDesc, float64(states[j][s]), policy, name, snakeCase(s.String()))
		}
		sendGauge(ch, stateDesc, float64(accepted[j]), policy, name, "absent")
	}
}

func sendGauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// nameOf returns the name of a query in metrics and in the status. The parentheses
// can't be part of a score's name.
func nameOf(q *round.QueryReport) string {
	return cmp.Or(q.Name, "(freshness)")
}

// failureReason returns why a query failed, as a label value. It is empty if the query
// succeeded.
func failureReason(q *round.QueryReport) string {
	switch {
	case q.Problems != nil:
		return snakeCase(v1alpha1.ReasonParseError)
	case q.Err != nil:
		return snakeCase(string(query.ReasonOf(q.Err)))
	}
	return ""
}

// snakeCase converts a reason such as BadTLS to a label value such as bad_tls.
func snakeCase(reason string) string {
	var b strings.Builder
	previousUpper := true
	for _, c := range reason {
		if unicode.IsUpper(c) && !previousUpper {
			b.WriteByte('_')
		}
		previousUpper = unicode.IsUpper(c)
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
