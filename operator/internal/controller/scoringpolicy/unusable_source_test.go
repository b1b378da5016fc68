package scoringpolicy

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// TestUnusableSourceKeepsMatchedQueries: a source with another cluster label can't be used for a
// while, and first returns nothing after its repair. The query has matched before, so that the
// clusters lack their metrics.
func TestUnusableSourceKeepsMatchedQueries(t *testing.T) {
	info := query.SourceInfo{Name: "prometheus", ClusterLabel: "site"}
	for name, lose := range map[string]func(*query.Sources){
		"its Secret is deleted": func(s *query.Sources) { s.SetUnusable(info, errors.New("no Secret")) },
		"it is deleted":         func(s *query.Sources) { s.Delete(info.Name) },
	} {
		t.Run(name, func(t *testing.T) {
			fleet, clock := healthy, now
			r, hub := newReconciler(t, &fleet, &clock)
			policy := &v1alpha1.ScoringPolicy{}
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
				t.Fatal(err)
			}
			policy.Spec.Scores[0].Query = "sum by ($cluster_label) (free)"
			if err := hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			respond := func(samples ...query.Sample) {
				r.sources.Set(info, query.QuerierFunc(func(_ context.Context, expr string, _ time.Time) (query.Result, error) {
					if expr != "sum by (site) (free)" {
						t.Errorf("query %s", expr)
					}
					return query.Result{Samples: samples}, nil
				}))
			}
			for _, tc := range []struct {
				after   time.Duration
				prepare func()
				state   score.State
				outcome score.Outcome
				valid   string
			}{
				{0, func() { respond(query.Sample{Labels: map[string]string{"site": "c1"}, Value: 5}) }, score.Scored, score.OK, "Valid"},
				{30 * time.Second, func() { lose(r.sources) }, score.Kept, score.Failed, "Valid"},
				{60 * time.Second, func() { respond() }, score.Kept, score.Absent, "Valid"},
				{5 * time.Minute, func() {}, score.Worst, score.Absent, "Valid"},
			} {
				clock = now.Add(tc.after)
				tc.prepare()
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}}); err != nil {
					t.Fatal(err)
				}
				done := r.lastRound("fleet")
				cell, valid := done.report.Result.Row(0)[0], decideQueriesValid(done.report).Reason
				if cell.State != tc.state || cell.Outcome != tc.outcome || valid != tc.valid {
					t.Errorf("after %s: %s %s and QueriesValid %s, want %s %s and %s", tc.after, cell.State, cell.Outcome, valid, tc.state, tc.outcome, tc.valid)
				}
			}
		})
	}
}
