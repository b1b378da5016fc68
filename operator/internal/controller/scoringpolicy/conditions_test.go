package scoringpolicy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestDecideConditions(t *testing.T) {
	down := &query.Error{Reason: query.ReasonTimeout, Message: "too slow"}
	rejected := &query.Error{Reason: query.ReasonBadQuery, Status: 422, Message: "many-to-many"}
	good := healthy.round(newSpec("free"), nil, now).report.Result
	stale := newSpec("free")
	stale.Freshness = &v1alpha1.Freshness{Query: "age"}
	for _, tc := range []struct {
		name                string
		done                func() *completedRound
		valid, fresh, ready string
	}{
		{"healthy", func() *completedRound { return healthy.round(newSpec("free"), nil, now) },
			"Valid: all queries are valid", "Fresh: all 3 clusters have fresh values", "Ready: scores are fresh and published"},
		{"does not parse", func() *completedRound { return healthy.round(newSpec("free", "rate(free)"), nil, now) },
			`ParseError: scores[b].query 1:6: expected type range vector in call to function "rate", got instant vector`,
			"Missing: 3 of 3 clusters lack a fresh value: c1, c2, c3", ""},
		{"rejected by the source", func() *completedRound {
			w := healthy
			w.failures = map[string]error{"x": rejected}
			return w.round(newSpec("free", "x"), nil, now)
		}, "QueryRejected: scores[b].query BadQuery: many-to-many", "Missing: 3 of 3 clusters lack a fresh value: c1, c2, c3", ""},
		{"source down, scores kept", func() *completedRound {
			return fakeFleet{clusters: healthy.clusters, failures: map[string]error{"free": down}}.round(newSpec("free"), good, now.Add(time.Minute))
		}, "Valid: all queries are valid",
			"Timeout: scores[a].query failed: Timeout: too slow; the last scores of 3 of 3 clusters are kept", ""},
		{"one missing", func() *completedRound {
			w := fakeFleet{clusters: []string{"c1", "c2"}, values: healthy.values}
			w.clusters = append(w.clusters, "c9")
			return w.round(newSpec("free"), nil, now)
		}, "Valid: all queries are valid", "Missing: 1 of 3 clusters lack a fresh value: c9", ""},
		{"too few fresh clusters", func() *completedRound {
			return fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": {"c1": 9}}}.round(newSpec("free"), good, now.Add(time.Minute))
		}, "Valid: all queries are valid",
			"TooFewFresh: only 1 of 3 recently healthy clusters have a fresh value, below minHealthyPercent: the last scores are kept", ""},
		{"too few fresh clusters, and clusters that joined", func() *completedRound {
			w := fakeFleet{clusters: []string{"c1", "c2", "c3", "c4", "c5", "c6"}, values: map[string]map[string]float64{"free": {"c1": 9, "c4": 9, "c5": 9, "c6": 9}}}
			return w.round(newSpec("free"), good, now.Add(time.Minute))
		}, "Valid: all queries are valid",
			"TooFewFresh: only 1 of 3 recently healthy clusters have a fresh value, below minHealthyPercent: the last scores are kept", ""},
		{"samples too old", func() *completedRound {
			w := healthy
			w.values = map[string]map[string]float64{"free": healthy.values["free"], "age": {"c1": 1, "c2": 1, "c3": 500}}
			return w.round(stale, nil, now)
		}, "Valid: all queries are valid", "Stale: 1 of 3 clusters lack a fresh value: c3", ""},
		{"no cluster matches", func() *completedRound {
			w := healthy
			w.values = map[string]map[string]float64{"free": {"prod-1": 4}}
			return w.round(newSpec("free"), nil, now)
		}, `NoClusterMatches: scores[a].query matches no cluster: seen 1 series, such as {cluster="prod-1"}; ` +
			`expected one series each for {cluster="c1"} and {cluster="c2"} and {cluster="c3"}. The label cluster must name selected ManagedClusters: check clusterMapping of the MetricsSource`,
			"", `NoClusterMatches: scores[a].query matches no cluster: seen 1 series, such as {cluster="prod-1"}; ` +
				`expected one series each for {cluster="c1"} and {cluster="c2"} and {cluster="c3"}. The label cluster must name selected ManagedClusters: check clusterMapping of the MetricsSource`},
		{"the source has never responded", func() *completedRound {
			return fakeFleet{clusters: healthy.clusters, failures: map[string]error{"free": down}}.round(newSpec("free"), nil, now)
		}, "NoResponse: the source has not responded to scores[a].query yet", "Timeout: scores[a].query failed: Timeout: too slow", "Timeout: scores[a].query failed: Timeout: too slow"},
		{"the only response lacks the data of some stores", func() *completedRound {
			w := healthy
			w.partial, w.values = true, nil
			return w.round(newSpec("free"), nil, now)
		}, "NoResponse: the source has not responded to scores[a].query completely yet", "", ""},
		{"a cluster has none of it", func() *completedRound {
			w := healthy
			w.clusters = append(slices.Clone(w.clusters), "cpu-only")
			s := newSpec("free")
			s.Scores[0].Missing.Absent = "Worst"
			return w.round(s, nil, now)
		}, "Valid: all queries are valid", "Fresh: all 4 clusters have fresh values, or are absent as missing.absent accepts (1)", "Ready: scores are fresh and published"},
		{"colliding names", func() *completedRound {
			d := healthy.round(newSpec("free"), nil, now)
			d.report.Scores[0].Collisions = []string{`2 values of the label model, such as "A 1" and "A-1", give the name a-A-1`}
			d.report.Scores[0].LeftOut = []string{"a-Z"}
			return d
		}, `CollidingNames: scores[a].query has colliding names: 2 values of the label model, such as "A 1" and "A-1", give the name a-A-1; ` +
			"such a score is not published after its keep time: change one of the values with label_replace, or select one in the query; " +
			"has 1 names more than nameFrom.limit, the first of which is a-Z: raise the limit, or select fewer values in the query", "", ""},
		{"source does not exist", func() *completedRound {
			d := fakeFleet{}.round(newSpec("free"), nil, now)
			d.in.sourceErr = errors.Join(query.ErrNoSource)
			return d
		}, "", "NotFound: not found", ""},
		{"no clusters", func() *completedRound { return fakeFleet{}.round(newSpec("free"), nil, now) }, "",
			"NoClusters: clusterSelector matches no accepted ManagedCluster", ""},
		{"shadow", func() *completedRound {
			w := healthy
			w.shadow = true
			return w.round(newSpec("free"), nil, now)
		}, "", "Fresh: all 3 clusters have fresh values", "Shadow: scores are fresh, but not published"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			done := tc.done()
			decisions := map[string]condition.Decision{}
			for _, d := range decideConditions(done) {
				decisions[d.conditionType] = d.Decision
			}
			for _, pair := range []struct {
				want, conditionType string
			}{{tc.valid, v1alpha1.ConditionQueriesValid}, {tc.fresh, v1alpha1.ConditionDataFresh}, {tc.ready, v1alpha1.ConditionReady}} {
				d := decisions[pair.conditionType]
				if got := d.Reason + ": " + d.Message; pair.want != "" && got != pair.want {
					t.Errorf("\n got %q\nwant %q", got, pair.want)
				}
			}
		})
	}
}

// TestDecidePublished: the condition is True only if there are scores.
func TestDecidePublished(t *testing.T) {
	for _, tc := range []struct {
		name     string
		unscored int
		want     condition.Decision
	}{
		{"all", 0, condition.True("Published", `AddOnPlacementScore "fleet" is up to date in the namespace of every cluster`)},
		{"some", 2, condition.True("Published", `AddOnPlacementScore "fleet" is up to date in the namespace of every cluster with a score; 2 of 3 clusters have none`)},
		{"none", 3, condition.False("NoScores", "no cluster has a score to publish")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			done := healthy.round(newSpec("free"), nil, now)
			done.published.Unscored = tc.unscored
			if got := decidePublished(done); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDecideDataFreshListsAtMostFiveClusters(t *testing.T) {
	w := fakeFleet{clusters: []string{"a-fresh"}, values: map[string]map[string]float64{"free": {"a-fresh": 1}}}
	for _, c := range "abcdefgh" {
		w.clusters = append(w.clusters, "c-"+string(c))
	}
	got := decideDataFresh(w.round(newSpec("free"), nil, now)).Message
	if want := "8 of 9 clusters lack a fresh value: c-a, c-b, c-c, c-d, c-e, and 3 more"; got != want {
		t.Errorf("got %q", got)
	}
}
