package scoringpolicy

import (
	"errors"
	"maps"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// TestChangedQueryStartsAgainAfterARestart: published scores count as matches of the query that
// gave them, and not of a query that replaced it while no round ran.
func TestChangedQueryStartsAgainAfterARestart(t *testing.T) {
	const misspelled = "fre"
	for name, tc := range map[string]struct {
		change func(t *testing.T, r *Reconciler, hub client.Client, policy *v1alpha1.ScoringPolicy)
		want   string // valid condition, and score after the keep time
	}{
		"the same query": {func(*testing.T, *Reconciler, client.Client, *v1alpha1.ScoringPolicy) {}, "Valid -100"},
		"changed while no operator ran": {func(t *testing.T, _ *Reconciler, hub client.Client, policy *v1alpha1.ScoringPolicy) {
			policy.Spec.Scores[0].Query = misspelled
			policy.Generation++
			if err := hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
		}, "NoClusterMatches none"},
		"deleted and created again": {func(t *testing.T, _ *Reconciler, hub client.Client, policy *v1alpha1.ScoringPolicy) {
			if err := hub.Delete(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			created := &v1alpha1.ScoringPolicy{}
			created.Name, created.UID, created.Generation, created.Spec = policy.Name, "second", 1, policy.Spec
			created.Spec.Scores[0].Query = misspelled
			if err := hub.Create(t.Context(), created); err != nil {
				t.Fatal(err)
			}
		}, "NoClusterMatches none"},
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
			policy := &v1alpha1.ScoringPolicy{}
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
				t.Fatal(err)
			}
			tc.change(t, r, hub, policy)
			r.policies = map[string]*policyState{}
			fleet = fakeFleet{clusters: healthy.clusters}
			clock = now.Add(30 * time.Second)
			run()
			clock = now.Add(time.Hour)
			run()
			done := r.lastRound("fleet")
			got := decideQueriesValid(done.report).Reason + " "
			if cell := done.report.Result.Row(0)[0]; cell.State.String() == "Omitted" {
				got += "none"
			} else {
				got += "-100"
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestQueriesStartAgainAtAnotherServer: the series of the other server have no cluster label that
// matches. The queries are wrong there, and the clusters are not.
func TestQueriesStartAgainAtAnotherServer(t *testing.T) {
	refer := func(r *Reconciler, policy *v1alpha1.ScoringPolicy) {
		policy.Spec.SourceRef.Name = "other"
		policy.Generation++
		if err := r.client.Update(t.Context(), policy); err != nil {
			t.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		change  func(r *Reconciler, policy *v1alpha1.ScoringPolicy, source query.Querier)
		want    string
		isReset bool // of the series behind complete responses
	}{
		"the same server": {func(r *Reconciler, _ *v1alpha1.ScoringPolicy, source query.Querier) {
			r.sources.Set(query.SourceInfo{Name: "prometheus", ClusterLabel: "cluster"}, source)
		}, "Valid Worst", false},
		"another URL": {func(r *Reconciler, _ *v1alpha1.ScoringPolicy, source query.Querier) {
			r.sources.Set(query.SourceInfo{Name: "prometheus", Settings: "other", ClusterLabel: "cluster"}, source)
		}, "NoClusterMatches Omitted", true},
		"another source": {func(r *Reconciler, policy *v1alpha1.ScoringPolicy, source query.Querier) {
			r.sources.Set(query.SourceInfo{Name: "other", ClusterLabel: "cluster"}, source)
			refer(r, policy)
		}, "NoClusterMatches Omitted", true},
		"another source that does not exist yet": {func(r *Reconciler, policy *v1alpha1.ScoringPolicy, source query.Querier) {
			refer(r, policy)
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil {
				t.Error(err)
			}
			r.sources.Set(query.SourceInfo{Name: "other", ClusterLabel: "cluster"}, source)
		}, "NoClusterMatches Omitted", true},
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
			contributions := r.lastRound("fleet").in.contributions
			policy := &v1alpha1.ScoringPolicy{}
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
				t.Fatal(err)
			}
			tc.change(r, policy, fakeFleet{values: map[string]map[string]float64{"free": {"other": 1}}})
			clock = now.Add(30 * time.Second)
			run()
			clock = now.Add(time.Hour)
			run()
			done := r.lastRound("fleet")
			if got := decideQueriesValid(done.report).Reason + " " + done.report.Result.Row(0)[0].State.String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if isReset := done.in.contributions != contributions; isReset != tc.isReset {
				t.Errorf("series counts of the last server are dropped: %t, want %t", isReset, tc.isReset)
			}
		})
	}
}

// TestUnchangedScoresAreKeptAfterARestart: equal values are written once in a third of the
// validity, here once in 1000 s. The last round is the last time at which they were fresh.
func TestUnchangedScoresAreKeptAfterARestart(t *testing.T) {
	const lastRound = 600 * time.Second
	freshness := func(policy *v1alpha1.ScoringPolicy) {
		policy.Spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 120}
	}
	for name, tc := range map[string]struct {
		spec   func(policy *v1alpha1.ScoringPolicy)
		values map[string]map[string]float64
		change func(s *sourceRestart)
		after  time.Duration // from the last round to the first one after the restart
		want   string
	}{
		"during the keep time":                {after: 270 * time.Second, want: "Kept"},
		"after the keep time":                 {after: 300 * time.Second, want: "Worst"},
		"samples at most 120 s old":           {spec: freshness, after: 150 * time.Second, want: "Kept"},
		"after the keep time of such samples": {spec: freshness, after: 180 * time.Second, want: "Worst"},
		"no series, as absent accepts":        {values: map[string]map[string]float64{"free": {"c2": 2, "c3": 3}}, after: 270 * time.Second, want: "Fixed"},
		"the spec changed meanwhile":          {change: func(s *sourceRestart) { s.refer("prometheus") }, after: 30 * time.Second, want: "Worst"},
		"another server behind the name":      {change: func(s *sourceRestart) { s.setSource("prometheus", "two", fakeFleet{failures: down}) }, after: 30 * time.Second, want: "Worst"},
		"the last round published nothing": {change: func(s *sourceRestart) {
			policy := s.policy()
			condition.Set(&policy.Status.Conditions, v1alpha1.ConditionPublished, condition.False("WriteFailed", "2 writes failed"), policy.Generation)
			if err := s.hub.Status().Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
		}, after: 30 * time.Second, want: "Worst"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := healthy
			if tc.values != nil {
				fleet.values = tc.values
			}
			fleet.values = maps.Clone(fleet.values)
			fleet.values["age"] = map[string]float64{"c1": 25, "c2": 25, "c3": 25}
			s := newSourceRestart(t, &fleet)
			policy := s.policy()
			policy.Spec.ValidForPeriods = 100
			policy.Spec.Scores[0].Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: ptr.To[int32](50)}
			if tc.spec != nil {
				tc.spec(policy)
			}
			if err := s.hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			for at := time.Duration(0); at <= lastRound; at += 30 * time.Second {
				s.round(at)
			}
			s.restart()
			fleet = fakeFleet{failures: down}
			if tc.change != nil {
				tc.change(s)
			}
			if got := s.round(lastRound + tc.after).report.Result.Row(0)[0].State.String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// down lets the queries of a fleet fail.
var down = map[string]error{"free": errors.New("down"), "age": errors.New("down")}
