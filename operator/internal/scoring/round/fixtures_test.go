package round

import (
	"context"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

var now = time.Unix(1_700_000_000, 0)

func sample(cluster string, v float64) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster}, Value: v}
}

// newSpec returns a policy with one Identity score per query, named a, b, ...
func newSpec(queries ...string) *v1alpha1.ScoringPolicySpec {
	s := &v1alpha1.ScoringPolicySpec{}
	for i, q := range queries {
		s.Scores = append(s.Scores, v1alpha1.ScoreSpec{
			Name: string(rune('a' + i)), Query: q, Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeIdentity},
		})
	}
	return s
}

func newRequest(spec *v1alpha1.ScoringPolicySpec, querier query.Querier, clusters ...string) Request {
	spec, policy, err := Compile(spec, "cluster")
	if err != nil {
		panic(err)
	}
	return Request{
		Spec: spec, Policy: policy, Querier: querier,
		Clusters: clustermap.FromNames("cluster", clusters), Now: now,
	}
}

// fakeSource returns responses by expression and records the queries that it gets.
// Every other expression fails.
type fakeSource struct {
	responses map[string]query.Result

	mu    sync.Mutex
	sent  map[string]int
	times map[time.Time]bool
}

func (f *fakeSource) Query(_ context.Context, expr string, at time.Time) (query.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent == nil {
		f.sent, f.times = map[string]int{}, map[time.Time]bool{}
	}
	f.sent[expr]++
	f.times[at] = true
	response, ok := f.responses[expr]
	if !ok {
		return query.Result{}, &query.Error{Reason: query.ReasonUnavailable, Message: "down"}
	}
	return response, nil
}

// runRound runs the first round of a policy for clusters c1 and c2.
func runRound(spec *v1alpha1.ScoringPolicySpec, source *fakeSource) *Report {
	return Run(context.Background(), newRequest(spec, source, "c1", "c2"))
}
