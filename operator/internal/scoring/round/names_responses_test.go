package round

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// TestNameFromWithoutResponse: the scores of a query that fails, or does not parse, are kept. The
// clusters are not without the models, and the report has the reason.
func TestNameFromWithoutResponse(t *testing.T) {
	for _, tc := range []struct {
		name, expr string
		want       score.Outcome
	}{{"the query fails", "down", score.Failed}, {"the query does not parse", "sum(", score.Invalid}} {
		t.Run(tc.name, func(t *testing.T) {
			source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{modelSample("c1", "A100", 10)}}}}
			req := newRequest(modelSpec(), source, "c1", "c2")
			req.Previous = Run(context.Background(), req).Result
			req.Spec.Scores[0].Query, req.Now = tc.expr, now.Add(30*time.Second)
			r := Run(context.Background(), req)
			if got := values(r.Result); got != "c1/fit-A100=10 c2/fit-A100=-100" {
				t.Errorf("got %s", got)
			}
			if got := r.Result.Row(0)[0]; got.Outcome != tc.want || got.State != score.Kept {
				t.Errorf("%s %s", got.State, got.Outcome)
			}
			q := r.Scores[0]
			if q.NoMatch != nil || q.Name != "fit" || q.Query != tc.expr || (q.Err != nil) != (tc.want == score.Failed) || (q.Problems != nil) != (tc.want == score.Invalid) {
				t.Errorf("report %+v", q)
			}
		})
	}
}

// TestNameFromOfAPartialResponse: the stores that did not respond may have the series.
func TestNameFromOfAPartialResponse(t *testing.T) {
	for partial, want := range map[bool]bool{true: false, false: true} {
		t.Run(fmt.Sprint("partial ", partial), func(t *testing.T) {
			q := runRound(modelSpec(), &fakeSource{responses: map[string]query.Result{"x": {Partial: partial}}}).Scores[0]
			if (q.NoMatch != nil) != want {
				t.Errorf("reports that no cluster matches: %t, want %t", q.NoMatch != nil, want)
			}
		})
	}
}

// TestNameFromReportsTheResponse: explain shows the number of series and the infos of the source.
func TestNameFromReportsTheResponse(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{modelSample("c1", "A100", 10)}, Duration: time.Second, Infos: []string{"info"}}}}
	if q := runRound(modelSpec(), source).Scores[0]; q.Series != 1 || q.Duration != time.Second || !slices.Equal(q.Infos, []string{"info"}) {
		t.Errorf("report %+v", q)
	}
}

// TestNameFromOfASilentCluster: the policy accepts that a cluster lacks a model. A cluster whose
// endpoint fails does not lack it.
func TestNameFromOfASilentCluster(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{"x": {
		Samples: []query.Sample{modelSample("c1", "A100", 10)}, Failed: map[string]string{"c2": "connection refused"},
	}}}
	r := runRound(modelSpec(), source)
	if got := values(r.Result); got != "c1/fit-A100=10" {
		t.Errorf("got %s", got)
	}
	if got := r.Result.Row(1)[0].Outcome; got != score.Failed {
		t.Errorf("outcome %s", got)
	}
}

// TestNameFromOfPartialResponses: a name that a partial response lacks stays after its keep time.
func TestNameFromOfPartialResponses(t *testing.T) {
	a, h := modelSample("c1", "A100", 10), modelSample("c2", "H100", 20)
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{a, h}}}}
	req := newRequest(modelSpec(), source, "c1", "c2")
	req.Contributions = &Contributions{}
	for _, at := range []int{0, 330, 360} {
		req.Now = now.Add(time.Duration(at) * time.Second)
		r := Run(context.Background(), req)
		if names := r.Scores[0].Names; !slices.Equal(names, []string{"fit-A100", "fit-H100"}) {
			t.Errorf("at %d s: names %v", at, names)
		}
		req.Previous = r.Result
		source.responses["x"] = query.Result{Samples: []query.Sample{a}, Partial: true}
	}
}

// TestNameFromLimits: 16 names by default. If the limit is lowered, names in use go, too, and the
// warning names the first of the response that has no place.
func TestNameFromLimits(t *testing.T) {
	var samples []query.Sample
	for i := range 18 {
		samples = append(samples, modelSample("c1", fmt.Sprintf("M%02d", i), 1))
	}
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: samples}}}
	req := newRequest(modelSpec(), source, "c1")
	r := Run(context.Background(), req)
	if q := r.Scores[0]; len(q.Names) != 16 || len(q.Warnings) != 1 || !strings.Contains(q.Warnings[0], "has 2 names more than nameFrom.limit, the first of which is fit-M16") {
		t.Errorf("%d names, warnings %q", len(q.Names), q.Warnings)
	}
	req.Previous, req.Spec.Scores[0].NameFrom.Limit = r.Result, 3
	if q := Run(context.Background(), req).Scores[0]; !slices.Equal(q.Names, []string{"fit-M00", "fit-M01", "fit-M02"}) || len(q.LeftOut) != 15 {
		t.Errorf("names %v, left out %v", q.Names, q.LeftOut)
	}
}

func TestSeveralCollisions(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{
		modelSample("c1", "A 1", 1), modelSample("c1", "A-1", 1), modelSample("c1", "B 1", 1), modelSample("c1", "B-1", 1),
	}}}}
	if q := runRound(modelSpec(), source).Scores[0]; len(q.Warnings) != 1 || !strings.Contains(q.Warnings[0], "give the name fit-A-1, and 1 more names collide; such a score") {
		t.Errorf("warnings %q", q.Warnings)
	}
}

// TestNameFromReadsAllSeries: clients drop the labels after the first series of a response, but not
// those of a query that names scores. Other policies don't use its result.
func TestNameFromReadsAllSeries(t *testing.T) {
	const series = 12
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var list []string
		for i := range series {
			list = append(list, fmt.Sprintf(`{"metric":{"cluster":"c1","model":"M%d"},"value":[1700000000,"%d"]}`, i, i))
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(list, ","))
	}))
	defer server.Close()
	client, err := query.New(query.Config{URL: server.URL, ClusterLabel: "cluster", AllowLoopback: true,
		Timeout: time.Minute, MaxConcurrency: 1, QueriesPerSecond: 100, MaxResponseBytes: 1 << 20, MaxSeries: 100})
	if err != nil {
		t.Fatal(err)
	}
	spec := modelSpec()
	spec.Scores = append(spec.Scores, v1alpha1.ScoreSpec{Name: "power", Query: "power"})
	r := Run(context.Background(), newRequest(spec, client, "c1"))
	if q := r.Scores[0]; len(q.Names) != series || q.Err != nil {
		t.Errorf("names %v, error %v, warnings %q", q.Names, q.Err, q.Warnings)
	}
	if got := SharedExpressions(spec); !slices.Equal(got, []string{"power"}) {
		t.Errorf("shared %q", got)
	}
}
