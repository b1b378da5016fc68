package scoringpolicy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
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
# HELP plimsoll_round_valid_until_timestamp_seconds Unix time at which the published scores of a policy expire. A round whose writes all fail does not advance it.
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

// TestExpiryOfPublishedScores: plimsoll_round_valid_until_timestamp_seconds, by which PlimsollScoresStale
// fires, is when the published scores expire, and not when those expire that could not be written.
func TestExpiryOfPublishedScores(t *testing.T) {
	const period, valid = 30 * time.Second, 90 * time.Second
	refused := errors.New("the API server refuses it")
	for name, tc := range map[string]struct {
		calls interceptor.Funcs // of the client that publishes, from the second round on
		// restart is true if the second round is the first one of another process.
		restart bool
		change  func(*v1alpha1.ScoringPolicySpec)
		want    time.Duration // from the first round, after rounds that are due 30, 60, 90 and 120 s after it
	}{
		"written": {want: 4*period + valid},
		"no write succeeds": {calls: interceptor.Funcs{SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return refused
		}}, want: valid},
		"no write succeeds after a restart": {calls: interceptor.Funcs{SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return refused
		}}, restart: true, want: valid},
		"one write fails": {calls: interceptor.Funcs{SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if o, ok := obj.(client.Object); ok && o.GetNamespace() == "c1" {
				return refused
			}
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		}}, want: 4*period + valid},
		"the scores can't be listed": {calls: interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*clusterv1alpha1.AddOnPlacementScoreList); ok {
				return refused
			}
			return c.List(ctx, list, opts...)
		}}, want: valid},
		"an invalid spec": {change: func(s *v1alpha1.ScoringPolicySpec) { s.Total.Expression = "1 +" }, want: valid},
		"an invalid spec after a restart": {
			change: func(s *v1alpha1.ScoringPolicySpec) { s.Total.Expression = "1 +" }, restart: true, want: valid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, clock := healthy, now
			r, hub := newReconciler(t, &fleet, &clock)
			run := func() {
				t.Helper()
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil {
					t.Fatal(err)
				}
			}
			run()
			if tc.restart {
				r.policies = map[string]*policyState{}
				r.metrics = newMetrics(nil, true, r.lastRounds)
			}
			if tc.change != nil {
				policy := &v1alpha1.ScoringPolicy{}
				if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
					t.Fatal(err)
				}
				tc.change(&policy.Spec)
				policy.Generation++
				if err := hub.Update(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
			}
			r.publisher.Client = interceptor.NewClient(hub.(client.WithWatch), tc.calls)
			for i := range 4 {
				clock = now.Add(time.Duration(i+1) * period)
				run()
			}
			if n := testutil.CollectAndCount(r.metrics.validUntil); n != 1 {
				t.Fatalf("%d series", n)
			}
			if got := testutil.ToFloat64(r.metrics.validUntil.WithLabelValues("fleet")) - unixSeconds(now); got != tc.want.Seconds() {
				t.Errorf("the scores expire after %g s, want %g", got, tc.want.Seconds())
			}
		})
	}
}
