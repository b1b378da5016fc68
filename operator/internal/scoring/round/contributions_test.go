package round

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// fakeThanos returns the values of one query and the number of series behind them,
// both marked as partial while stores are down.
type fakeThanos struct {
	partial bool
	// partialCount means that stores are down only during counting queries.
	partialCount bool
	// countsAll means that the stores are back when the series are counted.
	countsAll bool
	values    map[string]float64
	series    map[string]float64
	mu        sync.Mutex
	counts    int // counting queries so far
}

func (f *fakeThanos) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	values, partial := f.values, f.partial
	if strings.Contains(expr, "count by (cluster) (x)") {
		values, partial = f.series, f.partial || f.partialCount
		f.mu.Lock()
		f.counts++
		f.mu.Unlock()
	}
	if strings.Contains(expr, "count by (cluster) (x)") && f.countsAll {
		partial = false
	}
	response := query.Result{Partial: partial}
	for cluster, v := range values {
		response.Samples = append(response.Samples, sample(cluster, v))
	}
	return response, nil
}

func TestContributionsKeepOnlyCompleteClustersOfPartialResponses(t *testing.T) {
	thanos := &fakeThanos{values: map[string]float64{"c1": 50, "c2": 60}, series: map[string]float64{"c1": 8, "c2": 8}}
	req := newRequest(newSpec("x"), thanos, "c1", "c2", "c3")
	req.Contributions = &Contributions{}
	req.Previous = Run(context.Background(), req).Result

	thanos.partial = true
	thanos.values = map[string]float64{"c1": 70, "c2": 5, "c3": 90}
	thanos.series = map[string]float64{"c1": 8, "c2": 3, "c3": 1}
	req.Now = now.Add(30 * time.Second)
	r := Run(context.Background(), req)
	for i, tc := range []struct {
		name  string
		value int32
		state score.State
	}{
		{"c1 has all its series", 70, score.Scored},
		{"c2 has lost series", 60, score.Kept},
		{"c3 was never complete", -100, score.Worst},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if cell := r.Result.Row(i)[0]; cell.Value != tc.value || cell.State != tc.state {
				t.Errorf("%d %s, want %d %s", cell.Value, cell.State, tc.value, tc.state)
			}
		})
	}
	if w := r.Scores[0].Warnings; len(w) != 1 || !strings.Contains(w[0], "2 of 3 series") {
		t.Errorf("warnings %v", w)
	}
}

// TestSeriesOfAStoreThatIsBackDoNotCompleteAResponse: the store responds again between the partial
// response and the counting query.
func TestSeriesOfAStoreThatIsBackDoNotCompleteAResponse(t *testing.T) {
	thanos := &fakeThanos{values: map[string]float64{"c1": 50}, series: map[string]float64{"c1": 8}}
	req := newRequest(newSpec("x"), thanos, "c1")
	req.Contributions = &Contributions{}
	req.Previous = Run(context.Background(), req).Result
	thanos.partial, thanos.countsAll, thanos.values = true, true, map[string]float64{"c1": 5}
	req.Now = now.Add(30 * time.Second)
	if cell := Run(context.Background(), req).Result.Row(0)[0]; cell.Value != 50 || cell.State != score.Kept {
		t.Errorf("%d %s, want 50 Kept", cell.Value, cell.State)
	}
}

// TestPartialResponsesOfOtherSourcesGiveNoScore: nothing says which clusters of the response are
// complete.
func TestPartialResponsesOfOtherSourcesGiveNoScore(t *testing.T) {
	source := &fakeThanos{values: map[string]float64{"c1": 50, "c2": 60}}
	req := newRequest(newSpec("x"), source, "c1", "c2")
	req.Previous = Run(context.Background(), req).Result
	source.partial, source.values = true, map[string]float64{"c1": 5}
	req.Now = now.Add(30 * time.Second)
	r := Run(context.Background(), req)
	for i, want := range []int32{50, 60} {
		if cell := r.Result.Row(i)[0]; cell.Value != want || cell.State != score.Kept || cell.Outcome != score.Failed {
			t.Errorf("%d %s %s, want %d kept", cell.Value, cell.State, cell.Outcome, want)
		}
	}
	if w := r.Scores[0].Warnings; len(w) != 1 || !strings.Contains(w[0], "1 of 1 series") || source.counts > 0 {
		t.Errorf("warnings %v, %d counting queries", w, source.counts)
	}
}

func TestContributionsCountSeriesEveryFiveMinutes(t *testing.T) {
	thanos := &fakeThanos{values: map[string]float64{"c1": 50}, series: map[string]float64{"c1": 8}}
	req := newRequest(newSpec("x"), thanos, "c1")
	req.Contributions = &Contributions{}
	for range 20 {
		Run(context.Background(), req)
		req.Now = req.Now.Add(30 * time.Second)
	}
	if thanos.counts != 2 {
		t.Errorf("counted %d times in ten minutes, want 2", thanos.counts)
	}
}

// TestPartialCountIsNoReference: the response is complete, but a store is silent while its series are
// counted. The next partial response may lack as many.
func TestPartialCountIsNoReference(t *testing.T) {
	thanos := &fakeThanos{values: map[string]float64{"c1": 50}, series: map[string]float64{"c1": 3}, partialCount: true}
	req := newRequest(newSpec("x"), thanos, "c1")
	req.Contributions = &Contributions{}
	req.Previous = Run(context.Background(), req).Result
	thanos.partial, thanos.values, req.Now = true, map[string]float64{"c1": 20}, now.Add(30*time.Second)
	if cell := Run(context.Background(), req).Result.Row(0)[0]; cell.Value != 50 || cell.State != score.Kept {
		t.Errorf("%d %s, want 50 Kept", cell.Value, cell.State)
	}
}

// TestContributionsOfSeveralQueries: each query has a reference of its own.
func TestContributionsOfSeveralQueries(t *testing.T) {
	thanos := &fakeThanos{values: map[string]float64{"c1": 50}, series: map[string]float64{"c1": 8}}
	req := newRequest(newSpec("x", "2 * x"), thanos, "c1")
	req.Contributions = &Contributions{}
	req.Previous = Run(context.Background(), req).Result
	thanos.partial, thanos.values, req.Now = true, map[string]float64{"c1": 70}, now.Add(30*time.Second)
	for i, cell := range Run(context.Background(), req).Result.Row(0) {
		if cell.Value != 70 || cell.State != score.Scored {
			t.Errorf("query %d: %d %s, want 70 Scored", i, cell.Value, cell.State)
		}
	}
}

// TestCountsDoNotCompleteResponsesWithOtherGaps: store x fails during the query, and store y while
// its series are counted. The count of c1 is full, and its value lacks a half.
func TestCountsDoNotCompleteResponsesWithOtherGaps(t *testing.T) {
	for _, tc := range []struct {
		name           string
		values, counts []uint64
		want           string
	}{
		{"the same store", []uint64{1}, []uint64{1}, "5 OK"},
		{"another store", []uint64{1}, []uint64{2}, "50 Failed"},
		{"one more store", []uint64{1}, []uint64{1, 2}, "5 OK"},
		{"one store less", []uint64{1, 2}, []uint64{1}, "50 Failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			partial := false
			source := query.QuerierFunc(func(_ context.Context, expr string, _ time.Time) (query.Result, error) {
				switch isCount := strings.Contains(expr, "count by"); {
				case !partial:
					return query.Result{Samples: []query.Sample{sample("c1", 50)}}, nil
				case isCount:
					return query.Result{Samples: []query.Sample{sample("c1", 50)}, Partial: true, Gaps: tc.counts}, nil
				}
				return query.Result{Samples: []query.Sample{sample("c1", 5)}, Partial: true, Gaps: tc.values}, nil
			})
			req := newRequest(newSpec("x"), source, "c1")
			req.Contributions = &Contributions{}
			req.Previous = Run(context.Background(), req).Result
			partial, req.Now = true, now.Add(30*time.Second)
			cell := Run(context.Background(), req).Result.Row(0)[0]
			if got := fmt.Sprintf("%d %s", cell.Value, cell.Outcome); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestValuesAndAgesCoverTheCluster: a cluster has a fresh value only if the responses to both
// queries cover it, whichever parts the two lack.
func TestValuesAndAgesCoverTheCluster(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value query.Result
		age   query.Result
		want  string // outcomes of c1 and c2
	}{
		{"both cover both", query.Result{}, query.Result{}, "OK OK"},
		{"endpoints fail", query.Result{Failed: map[string]string{"c1": "down"}}, query.Result{Failed: map[string]string{"c2": "down"}}, "Failed Failed"},
		{"an endpoint fails for the age alone", query.Result{}, query.Result{Failed: map[string]string{"c1": "down"}}, "Failed OK"},
		{"the age is partial", query.Result{}, query.Result{Partial: true}, "Failed Failed"},
		{"the value is partial", query.Result{Partial: true}, query.Result{}, "Failed Failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source := query.QuerierFunc(func(_ context.Context, expr string, _ time.Time) (query.Result, error) {
				result := tc.value
				if expr == "age" {
					result = tc.age
				}
				for _, c := range []string{"c1", "c2"} {
					if _, failed := result.Failed[c]; !failed {
						result.Samples = append(result.Samples, sample(c, 5))
					}
				}
				return result, nil
			})
			spec := newSpec("x")
			spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
			r := Run(context.Background(), newRequest(spec, source, "c1", "c2")).Result
			if got := r.Row(0)[0].Outcome.String() + " " + r.Row(1)[0].Outcome.String(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
