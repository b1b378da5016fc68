package trial

import (
	"github.com/prometheus/client_golang/prometheus"

	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
)

type metrics struct{ trials *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{trials: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plimsoll_trials_total", Help: "Trials of a TrialPolicy that ended: measured, unmeasured, timed_out at waitSeconds, or stopped because they could not go on.",
	}, []string{"policy", "result"})}
	if reg != nil {
		reg.MustRegister(m.trials)
	}
	return m
}

func (m *metrics) count(policy string, result trial.Result) {
	m.trials.WithLabelValues(policy, string(result)).Inc()
}

// add exports the counters of a policy as 0.
func (m *metrics) add(policy string) {
	for _, result := range trial.Results {
		m.trials.WithLabelValues(policy, string(result))
	}
}

// forget removes the series of a policy that no longer exists.
func (m *metrics) forget(policy string) {
	m.trials.DeletePartialMatch(prometheus.Labels{"policy": policy})
}
