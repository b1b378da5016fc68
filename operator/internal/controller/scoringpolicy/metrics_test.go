package scoringpolicy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

func TestMetricsOfPublishedScores(t *testing.T) {
	w := fakeFleet{clusters: []string{"c1", "c2"}, values: map[string]map[string]float64{"free": {"c1": 4}}}
	done := w.round(newSpec("free"), nil, now)
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg, true, func() map[string]*completedRound { return map[string]*completedRound{"fleet": done} })
	m.observe("fleet", done)
	want := `# HELP plimsoll_score Published score of a cluster, from -100 to 100. In Shadow mode, the score that would be published.
# TYPE plimsoll_score gauge
plimsoll_score{cluster="c1",policy="fleet",score="a"} 40
plimsoll_score{cluster="c1",policy="fleet",score="total"} 40
plimsoll_score{cluster="c2",policy="fleet",score="a"} -100
plimsoll_score{cluster="c2",policy="fleet",score="total"} -100
# HELP plimsoll_round_timestamp_seconds Unix time at which a policy's last round started.
# TYPE plimsoll_round_timestamp_seconds gauge
plimsoll_round_timestamp_seconds{policy="fleet"} 1.767323045e+09
# HELP plimsoll_round_valid_until_timestamp_seconds Unix time at which the scores of a policy's last round expire.
# TYPE plimsoll_round_valid_until_timestamp_seconds gauge
plimsoll_round_valid_until_timestamp_seconds{policy="fleet"} 1.767323135e+09
# HELP plimsoll_rounds_refused_total Number of rounds whose values did not count because fewer clusters than minHealthyPercent had fresh values.
# TYPE plimsoll_rounds_refused_total counter
plimsoll_rounds_refused_total{policy="fleet"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "plimsoll_score", "plimsoll_round_timestamp_seconds",
		"plimsoll_round_valid_until_timestamp_seconds", "plimsoll_rounds_refused_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	m.delete("fleet")
	if n := testutil.CollectAndCount(m.startTime); n != 0 {
		t.Errorf("%d series of a deleted policy", n)
	}
}

func TestMetricsOfFailedQueries(t *testing.T) {
	s := newSpec("free", "sum(")
	s.Freshness = &v1alpha1.Freshness{Query: "age"}
	w := fakeFleet{clusters: []string{"c1"}, failures: map[string]error{"age": &query.Error{Reason: query.ReasonTimeout}}}
	done := w.round(s, nil, now)
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg, true, func() map[string]*completedRound { return map[string]*completedRound{"fleet": done} })
	m.observe("fleet", done)
	want := `# HELP plimsoll_score_query_duration_seconds Duration of a score's query in the last round, including retries. score="(freshness)" is the policy's freshness query.
# TYPE plimsoll_score_query_duration_seconds gauge
plimsoll_score_query_duration_seconds{policy="fleet",score="(freshness)"} 0
plimsoll_score_query_duration_seconds{policy="fleet",score="a"} 0
plimsoll_score_query_duration_seconds{policy="fleet",score="b"} 0
# HELP plimsoll_score_query_failures_total Number of rounds in which a score's query failed, by reason. A query with reason="parse_error" is not sent.
# TYPE plimsoll_score_query_failures_total counter
plimsoll_score_query_failures_total{policy="fleet",reason="parse_error",score="b"} 1
plimsoll_score_query_failures_total{policy="fleet",reason="timeout",score="(freshness)"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "plimsoll_score_query_duration_seconds", "plimsoll_score_query_failures_total"); err != nil {
		t.Error(err)
	}
}

// TestMetricsPerClusterAreOptional: a fleet of many clusters can do without one series per
// score and cluster.
func TestMetricsPerClusterAreOptional(t *testing.T) {
	done := healthy.round(newSpec("free"), nil, now)
	for _, tc := range []struct {
		perCluster bool
		want       int
	}{{true, 3*2 + 3}, {false, 0}} {
		reg := prometheus.NewPedanticRegistry()
		newMetrics(reg, tc.perCluster, func() map[string]*completedRound { return map[string]*completedRound{"fleet": done} })
		n, err := testutil.GatherAndCount(reg, "plimsoll_score", "plimsoll_score_sample_timestamp_seconds")
		if err != nil || n != tc.want {
			t.Errorf("perCluster %v: %d series, want %d (%v)", tc.perCluster, n, tc.want, err)
		}
		if n, err := testutil.GatherAndCount(reg, "plimsoll_score_state"); err != nil || n != 2*7 {
			t.Errorf("perCluster %v: %d series of states (%v)", tc.perCluster, n, err)
		}
	}
}

func TestSnakeCase(t *testing.T) {
	for _, tc := range []struct{ reason, want string }{
		{"Timeout", "timeout"}, {"BadTLS", "bad_tls"}, {"TooLarge", "too_large"}, {"ParseError", "parse_error"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := snakeCase(tc.reason); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
