package scoringpolicy

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// TestChangedQueryStartsAgainAfterARestart: published scores count as matches of the query that
// gave them, and not of a query that replaced it while no round ran.
func TestChangedQueryStartsAgainAfterARestart(t *testing.T) {
	const misspelled = "fre"
	for name, tc := range map[string]struct {
		change func(t *testing.T, r *Reconciler, hub client.Client, policy *v1alpha1.ScoringPolicy)
		want   string // valid condition, and score after the hold
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
