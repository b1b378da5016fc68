package jobprofile

import (
	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Results of finished runs, as values of the label result.
const (
	resultAdded       = "added"
	resultNoSamples   = "no_samples"
	resultQueryFailed = "query_failed"
	resultUnknownRun  = "unknown_run"
)

// predicted are the quantities that a profile predicts, with their label values.
var predicted = map[v1alpha1.ProfileQuantity]string{
	v1alpha1.QuantityDuration: "duration", v1alpha1.QuantityMemoryPeak: "memory_peak", v1alpha1.QuantityUtilization: "utilization",
}

type metrics struct {
	runs       *prometheus.CounterVec
	errorRatio *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_profile_runs_total", Help: "Successful runs of workloads whose gate has the section profiles, by result: added, no_samples (no recording rule has a sample of the run), query_failed (no complete response within an hour), unknown_run (no single job, no cluster, or the last slice of a resized job).",
		}, []string{"result"}),
		errorRatio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plimsoll_profile_error_ratio", Help: "Relative error of a profile's prediction at the end of each run, by quantity: |predicted - measured| / measured.",
			Buckets: []float64{0.05, 0.1, 0.15, 0.25, 0.5, 1, 2, 5, 10},
		}, []string{"quantity"}),
	}
	for _, result := range []string{resultAdded, resultNoSamples, resultQueryFailed, resultUnknownRun} {
		m.runs.WithLabelValues(result)
	}
	for _, quantity := range predicted {
		m.errorRatio.WithLabelValues(quantity)
	}
	if reg != nil {
		reg.MustRegister(m.runs, m.errorRatio)
	}
	return m
}

func (m *metrics) count(result string) { m.runs.WithLabelValues(result).Inc() }

func (m *metrics) observeErrors(byQuantity map[v1alpha1.ProfileQuantity][]float64) {
	for quantity, ratios := range byQuantity {
		for _, ratio := range ratios {
			m.errorRatio.WithLabelValues(predicted[quantity]).Observe(ratio)
		}
	}
}
