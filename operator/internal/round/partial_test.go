package round

import (
	"context"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// thanos answers free and its count, and partially while stores are gone.
type thanos struct {
	partial bool
	free    map[string]float64
	series  map[string]float64
	counted int
}

func (th *thanos) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	from := th.free
	if strings.Contains(expr, "count by (cluster) (x)") {
		from = th.series
		th.counted++
	}
	a := query.Result{Partial: th.partial}
	for c, v := range from {
		a.Samples = append(a.Samples, sample(c, v))
	}
	return a, nil
}

func TestPartialAnswersCountForWholeClustersOnly(t *testing.T) {
	th := &thanos{free: map[string]float64{"c1": 50, "c2": 60}, series: map[string]float64{"c1": 8, "c2": 8}}
	s := spec("x")
	var known Contributions
	req := Request{
		Spec: s, Policy: score.Compile(s), Querier: th, Info: query.SourceInfo{ClusterLabel: "cluster", Partial: true},
		Clusters: []Cluster{{"c1", "c1"}, {"c2", "c2"}, {"c3", "c3"}}, Now: now, Contributions: &known,
	}
	req.Previous = Run(context.Background(), req).Result

	th.partial = true
	th.free = map[string]float64{"c1": 70, "c2": 5, "c3": 90}
	th.series = map[string]float64{"c1": 8, "c2": 3, "c3": 1}
	req.Now = now.Add(30 * time.Second)
	r := Run(context.Background(), req)
	for i, want := range []struct {
		value int32
		state score.State
	}{{70, score.Scored}, {60, score.Held}, {-100, score.Worst}} {
		if cell := r.Result.Row(i)[0]; cell.Value != want.value || cell.State != want.state {
			t.Errorf("c%d: %d %s, want %d %s", i+1, cell.Value, cell.State, want.value, want.state)
		}
	}
	if w := r.Scores[0].Warnings; len(w) != 1 || !strings.Contains(w[0], "2 of 3 series") {
		t.Errorf("warnings %v", w)
	}
}

func TestFullAnswersAreCountedSeldom(t *testing.T) {
	th := &thanos{free: map[string]float64{"c1": 50}, series: map[string]float64{"c1": 8}}
	s := spec("x")
	req := Request{
		Spec: s, Policy: score.Compile(s), Querier: th, Info: query.SourceInfo{ClusterLabel: "cluster"},
		Clusters: []Cluster{{"c1", "c1"}}, Now: now, Contributions: &Contributions{},
	}
	for range 20 {
		Run(context.Background(), req)
		req.Now = req.Now.Add(30 * time.Second)
	}
	if th.counted != 2 {
		t.Errorf("counted %d times in ten minutes, want 2", th.counted)
	}
}
