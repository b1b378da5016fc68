package scoringpolicy

import (
	"errors"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/condition"
	"plimsoll.dev/plimsoll/operator/internal/query"
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
		{"source down, scores held", func() *completedRound {
			return fakeFleet{clusters: healthy.clusters, failures: map[string]error{"free": down}}.round(newSpec("free"), good, now.Add(time.Minute))
		}, "Valid: all queries are valid",
			"Timeout: scores[a].query failed: Timeout: too slow; the last scores of 3 of 3 clusters are held", ""},
		{"one missing", func() *completedRound {
			w := fakeFleet{clusters: []string{"c1", "c2"}, values: healthy.values}
			w.clusters = append(w.clusters, "c9")
			return w.round(newSpec("free"), nil, now)
		}, "Valid: all queries are valid", "Missing: 1 of 3 clusters lack a fresh value: c9", ""},
		{"too few fresh clusters", func() *completedRound {
			return fakeFleet{clusters: healthy.clusters, values: map[string]map[string]float64{"free": {"c1": 9}}}.round(newSpec("free"), good, now.Add(time.Minute))
		}, "Valid: all queries are valid",
			"TooFewFresh: only 1 of 3 recently healthy clusters have a fresh value, below minHealthyPercent: the last scores are held", ""},
		{"samples too old", func() *completedRound {
			w := healthy
			w.values = map[string]map[string]float64{"free": healthy.values["free"], "age": {"c1": 1, "c2": 1, "c3": 500}}
			return w.round(stale, nil, now)
		}, "Valid: all queries are valid", "Stale: 1 of 3 clusters lack a fresh value: c3", ""},
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

func TestDecideDataFreshListsAtMostFiveClusters(t *testing.T) {
	w := fakeFleet{values: map[string]map[string]float64{"free": {}}}
	for _, c := range "abcdefgh" {
		w.clusters = append(w.clusters, "c-"+string(c))
	}
	got := decideDataFresh(w.round(newSpec("free"), nil, now)).Message
	if want := "8 of 8 clusters lack a fresh value: c-a, c-b, c-c, c-d, c-e, and 3 more"; got != want {
		t.Errorf("got %q", got)
	}
}
