package scoringpolicy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeFleet is the input of one round: the clusters and the values of each query.
type fakeFleet struct {
	clusters []string
	values   map[string]map[string]float64 // by expression and cluster
	failures map[string]error              // by expression
	shadow   bool
	partial  bool // responses lack the data of some stores
}

// Query implements query.Querier.
func (f fakeFleet) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	if err := f.failures[expr]; err != nil {
		return query.Result{}, err
	}
	response := query.Result{Partial: f.partial}
	for cluster, v := range f.values[expr] {
		response.Samples = append(response.Samples, query.Sample{Labels: map[string]string{"cluster": cluster}, Value: v})
	}
	return response, nil
}

// round runs a round of a policy without a reconciler.
func (f fakeFleet) round(spec v1alpha1.ScoringPolicySpec, previous *score.Result, at time.Time) *completedRound {
	in := &roundInput{name: "fleet", period: 30 * time.Second, valid: 90 * time.Second, shadow: f.shadow}
	expanded, policy, err := round.Compile(&spec, "cluster")
	if err != nil {
		panic(err)
	}
	in.request = round.Request{
		Spec: expanded, Policy: policy, Querier: f, Clusters: clustermap.FromNames("cluster", f.clusters), Previous: previous, Now: at,
	}
	return &completedRound{in: in, report: round.Run(context.Background(), in.request), published: &publish.Report{}, took: 12 * time.Millisecond}
}

// healthy has a value for each of its clusters.
var healthy = fakeFleet{clusters: []string{"c1", "c2", "c3"}, values: map[string]map[string]float64{"free": {"c1": 1, "c2": 2, "c3": 3}}}

// newSpec returns a policy with a total and one score per query, named a, b, ... Each
// score maps 0..10 to 0..100.
func newSpec(queries ...string) v1alpha1.ScoringPolicySpec {
	s := v1alpha1.ScoringPolicySpec{Total: &v1alpha1.TotalSpec{}}
	for i, q := range queries {
		s.Scores = append(s.Scores, v1alpha1.ScoreSpec{Name: string(rune('a' + i)), Query: q, Normalize: v1alpha1.Normalize{
			Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse("0"), To: resource.MustParse("10")},
		}})
	}
	return s
}
