package scoringpolicy

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
)

// sourceRestart is a policy whose operator restarts.
type sourceRestart struct {
	t     *testing.T
	r     *Reconciler
	hub   client.Client
	clock time.Time
}

func newSourceRestart(t *testing.T, fleet *fakeFleet) *sourceRestart {
	s := &sourceRestart{t: t, clock: now}
	s.r, s.hub = newReconciler(t, fleet, &s.clock)
	s.r.publisher = &publish.Publisher{Client: recordWriteTimes(s.hub.(client.WithWatch), &s.clock)}
	s.setSource("prometheus", "one", fleet)
	return s
}

func (s *sourceRestart) setSource(name, settings string, source query.Querier) {
	s.r.sources.Set(query.SourceInfo{Name: name, Settings: settings, ClusterLabel: "cluster", Partial: true}, source)
}

// refer changes sourceRef.
func (s *sourceRestart) refer(name string) {
	s.t.Helper()
	policy := s.policy()
	policy.Spec.SourceRef.Name = name
	policy.Generation++
	if err := s.hub.Update(s.t.Context(), policy); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sourceRestart) restart() { s.r.policies = map[string]*policyState{} }

func (s *sourceRestart) round(after time.Duration) *completedRound {
	s.t.Helper()
	s.clock = now.Add(after)
	if _, err := s.r.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil {
		s.t.Fatal(err)
	}
	return s.r.lastRound("fleet")
}

func (s *sourceRestart) policy() *v1alpha1.ScoringPolicy {
	s.t.Helper()
	policy := &v1alpha1.ScoringPolicy{}
	if err := s.hub.Get(s.t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
		s.t.Fatal(err)
	}
	return policy
}

// published returns the score of c1 and its state.
func (s *sourceRestart) published() string {
	s.t.Helper()
	object := &clusterv1alpha1.AddOnPlacementScore{}
	if err := s.hub.Get(s.t.Context(), client.ObjectKey{Namespace: "c1", Name: "fleet"}, object); err != nil {
		s.t.Fatal(err)
	}
	for _, item := range object.Status.Scores {
		if item.Name == "a" {
			state := "Scored"
			if c := meta.FindStatusCondition(object.Status.Conditions, "score.plimsoll.dev/a"); c != nil {
				state = c.Reason
			}
			return state
		}
	}
	return "none"
}

// TestQueriesStartAgainAfterARestartAtAnotherSource: what a query matched at a source says nothing
// about another one, also if the source changed while no operator ran. Otherwise a wrong label at
// the other source sets all clusters to -100.
func TestQueriesStartAgainAfterARestartAtAnotherSource(t *testing.T) {
	foreign := fakeFleet{values: map[string]map[string]float64{"free": {"other": 1}}}
	for name, tc := range map[string]struct {
		change func(s *sourceRestart)
		want   string // valid condition, and state after the keep time
	}{
		"the same source": {func(s *sourceRestart) { s.setSource("prometheus", "one", foreign) }, "Valid Worst"},
		"other settings":  {func(s *sourceRestart) { s.setSource("prometheus", "two", foreign) }, "NoClusterMatches none"},
		"another source": {func(s *sourceRestart) {
			s.setSource("other", "one", foreign)
			s.refer("other")
		}, "NoClusterMatches none"},
		"another source that does not exist yet": {func(s *sourceRestart) {
			s.refer("other")
			s.round(20 * time.Second)
			s.setSource("other", "one", foreign)
		}, "NoClusterMatches none"},
		"another source that does not exist yet, and a second restart": {func(s *sourceRestart) {
			s.refer("other")
			s.round(20 * time.Second)
			s.restart()
			s.setSource("other", "one", foreign)
		}, "NoClusterMatches none"},
		"another source that fails before a second restart": {func(s *sourceRestart) {
			s.setSource("prometheus", "two", fakeFleet{failures: map[string]error{"free": errors.New("down")}})
			s.round(20 * time.Second)
			s.restart()
			s.setSource("prometheus", "two", foreign)
		}, "NoClusterMatches none"},
		"a status of an operator that did not record the source": {func(s *sourceRestart) {
			policy := s.policy()
			policy.Status.Source = ""
			if err := s.hub.Status().Update(s.t.Context(), policy); err != nil {
				s.t.Fatal(err)
			}
			s.setSource("prometheus", "one", foreign)
		}, "Valid Worst"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := healthy
			s := newSourceRestart(t, &fleet)
			s.round(0)
			s.restart()
			tc.change(s)
			s.round(40 * time.Second)
			done := s.round(time.Hour)
			if got := decideQueriesValid(done.report).Reason + " " + s.published(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestChangedQueryThatFailsBeforeARestart: the published scores are those of the query before it.
func TestChangedQueryThatFailsBeforeARestart(t *testing.T) {
	fleet := healthy
	s := newSourceRestart(t, &fleet)
	s.round(0)
	policy := s.policy()
	policy.Spec.Scores[0].Query = "fre"
	policy.Generation++
	if err := s.hub.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	fleet = fakeFleet{failures: map[string]error{"fre": errors.New("down")}}
	s.round(30 * time.Second)
	s.restart()
	fleet = fakeFleet{}
	s.round(60 * time.Second)
	done := s.round(time.Hour)
	if got := decideQueriesValid(done.report).Reason + " " + s.published(); got != "NoClusterMatches none" {
		t.Errorf("got %s: the query has never matched a cluster", got)
	}
}

// TestSeriesCountsOfAnotherSource: a count of another source must not make a partial response
// complete.
func TestSeriesCountsOfAnotherSource(t *testing.T) {
	for name, tc := range map[string]struct{ settings, want string }{
		"the same source": {"one", "Scored"},
		"other settings":  {"two", "Kept"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := healthy
			s := newSourceRestart(t, &fleet)
			count := query.QuerierFunc(func(ctx context.Context, _ string, at time.Time) (query.Result, error) {
				return fleet.Query(ctx, "free", at)
			})
			s.setSource("prometheus", "one", count)
			s.round(0)
			s.restart()
			s.setSource("prometheus", tc.settings, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
				result, err := count(ctx, expr, at)
				result.Partial = true
				return result, err
			}))
			s.round(30 * time.Second)
			if got := s.published(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestNextValueOfAnotherSourceIsUndamped: the mean and the deadband of values of a source say
// nothing about those of another one.
func TestNextValueOfAnotherSourceIsUndamped(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			fleet := healthy
			s := newSourceRestart(t, &fleet)
			policy := s.policy()
			policy.Spec.Scores[0].Damping = v1alpha1.Damping{HalfLifeSeconds: 3600, Deadband: 20}
			if err := s.hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			s.round(0)
			if restart {
				s.restart()
			}
			other := fakeFleet{values: map[string]map[string]float64{"free": {"c1": 2, "c2": 2, "c3": 2}}}
			s.setSource("prometheus", "two", other)
			done := s.round(30 * time.Second)
			if got := done.report.Result.Row(0)[0].Value; got != 20 {
				t.Errorf("got %d, want 20", got)
			}
		})
	}
}

// TestDeletedSourceKeepsItsClusterLabelAfterARestart: the label is a part of queries with
// $cluster_label. Another label would make them other queries, which have matched no cluster.
func TestDeletedSourceKeepsItsClusterLabelAfterARestart(t *testing.T) {
	fleet := healthy
	s := newSourceRestart(t, &fleet)
	response := query.Result{Samples: []query.Sample{{Labels: map[string]string{"site": "c1"}, Value: 4}}}
	create := func() {
		s.r.sources.Set(query.SourceInfo{Name: "prometheus", ClusterLabel: "site"}, query.QuerierFunc(func(context.Context, string, time.Time) (query.Result, error) {
			return response, nil
		}))
	}
	create()
	policy := s.policy()
	policy.Spec.Scores[0].Query = "sum by ($cluster_label) (free)"
	if err := s.hub.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.round(0)
	s.r.sources.Delete("prometheus")
	s.restart()
	s.round(30 * time.Second)
	if got := s.policy().Status.Scores[0]; got.Query != "sum by (site) (free)" || got.Unmatched {
		t.Errorf("got query %s, unmatched %t", got.Query, got.Unmatched)
	}
	s.restart()
	create()
	response = query.Result{}
	s.round(60 * time.Second)
	done := s.round(time.Hour)
	if got := decideQueriesValid(done.report).Reason + " " + s.published(); got != "Valid Worst" {
		t.Errorf("got %s: the query has matched before", got)
	}
}

// TestRestartWhileNoClusterIsScored: the query has matched before, and no published score says so. The
// round after a restart is the same as the one before it.
func TestRestartWhileNoClusterIsScored(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ScoringPolicySpec)
		want   string
	}{
		"no cluster has the resource any more": {func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Absent = "Omit" }, "Valid None Omitted"},
		"the metrics are gone":                 {func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Then = v1alpha1.MissingOmit }, "Valid Absent Omitted"},
		"in Shadow mode":                       {func(s *v1alpha1.ScoringPolicySpec) { s.Mode = v1alpha1.ModeShadow }, "Valid Absent Worst"},
		"the freshness query, too": {func(s *v1alpha1.ScoringPolicySpec) {
			s.Scores[0].Missing.Absent, s.Freshness = "Omit", &v1alpha1.Freshness{Query: "age"}
		}, "Valid Stale Worst"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := healthy
			fleet.values = map[string]map[string]float64{"free": healthy.values["free"], "age": {"c1": 1, "c2": 1, "c3": 1}}
			s := newSourceRestart(t, &fleet)
			policy := s.policy()
			tc.change(&policy.Spec)
			if err := s.hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			s.round(0)
			fleet = fakeFleet{}
			s.round(30 * time.Second)
			describe := func(done *completedRound) string {
				cell := done.report.Result.Row(0)[0]
				return decideQueriesValid(done.report).Reason + " " + cell.Outcome.String() + " " + cell.State.String()
			}
			if got := describe(s.round(400 * time.Second)); got != tc.want {
				t.Fatalf("before the restart: %s, want %s", got, tc.want)
			}
			s.restart()
			if got := describe(s.round(430 * time.Second)); got != tc.want {
				t.Errorf("after the restart: %s, want %s", got, tc.want)
			}
		})
	}
}

// TestRestartAfterTheLastNameIsGone: no cluster has had a model for more than a day, so that no score of
// nameFrom is left.
func TestRestartAfterTheLastNameIsGone(t *testing.T) {
	models := func(values ...string) query.Querier {
		return query.QuerierFunc(func(context.Context, string, time.Time) (query.Result, error) {
			response := query.Result{}
			for _, model := range values {
				response.Samples = append(response.Samples, query.Sample{Labels: map[string]string{"cluster": "c1", "model": model}, Value: 4})
			}
			return response, nil
		})
	}
	s := newSourceRestart(t, &fakeFleet{clusters: healthy.clusters})
	policy := s.policy()
	policy.Spec.Scores[0].NameFrom, policy.Spec.Scores[0].Missing.Absent = &v1alpha1.NameFrom{Label: "model"}, "Worst"
	policy.Spec.Total = nil
	if err := s.hub.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.setSource("prometheus", "one", models("H100"))
	s.round(0)
	s.setSource("prometheus", "one", models())
	s.round(time.Hour)
	reason := func(after time.Duration) string { return decideQueriesValid(s.round(after).report).Reason }
	if got := reason(26 * time.Hour); got != "Valid" || len(s.r.lastRound("fleet").report.Result.Names) > 0 {
		t.Fatalf("before the restart: %s, names %v", got, s.r.lastRound("fleet").report.Result.Names)
	}
	s.restart()
	if got := reason(27 * time.Hour); got != "Valid" {
		t.Errorf("after the restart: %s", got)
	}
}
