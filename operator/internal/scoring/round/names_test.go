package round

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// modelSpec returns a policy with one score for each model.
func modelSpec() *v1alpha1.ScoringPolicySpec {
	spec := newSpec("x")
	spec.Scores[0].Name, spec.Scores[0].NameFrom = "fit", &v1alpha1.NameFrom{Label: "model"}
	spec.Scores[0].Missing.Absent = "Worst"
	return spec
}

func modelSample(cluster, model string, v float64) query.Sample {
	s := sample(cluster, v)
	s.Labels["model"] = model
	return s
}

// values returns the published scores as CLUSTER/NAME=VALUE.
func values(r *score.Result) string {
	var all []string
	for i, cluster := range r.Clusters {
		for j, cell := range r.Row(i) {
			if cell.State != score.Omitted {
				all = append(all, fmt.Sprintf("%s/%s=%d", cluster, r.Names[j], cell.Value))
			}
		}
	}
	return strings.Join(all, " ")
}

// TestNameFrom: the scores follow the models in the response. A model that no cluster has any
// more goes after its keep time; if the whole response is empty, it goes after a day.
func TestNameFrom(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{}}
	req := newRequest(modelSpec(), source, "c1", "c2")
	for _, step := range []struct {
		name    string
		at      int
		samples []query.Sample
		want    string
	}{
		{"two models", 0, []query.Sample{modelSample("c1", "A100", 10), modelSample("c1", "H100", 20), modelSample("c2", "H100", 30)},
			"c1/fit-A100=10 c1/fit-H100=20 c2/fit-A100=-100 c2/fit-H100=30"},
		{"a new model, and one is kept", 30, []query.Sample{modelSample("c1", "H100", 20), modelSample("c2", "L4", 40)},
			"c1/fit-A100=10 c1/fit-H100=20 c1/fit-L4=-100 c2/fit-A100=-100 c2/fit-H100=30 c2/fit-L4=40"},
		{"the keep time has ended", 330, []query.Sample{modelSample("c1", "H100", 20), modelSample("c2", "L4", 40)},
			"c1/fit-A100=-100 c1/fit-H100=20 c1/fit-L4=-100 c2/fit-A100=-100 c2/fit-H100=-100 c2/fit-L4=40"},
		{"a model that no cluster has is gone", 360, []query.Sample{modelSample("c1", "H100", 20), modelSample("c2", "L4", 40)},
			"c1/fit-H100=20 c1/fit-L4=-100 c2/fit-H100=-100 c2/fit-L4=40"},
		{"an empty response removes no name", 1000, nil,
			"c1/fit-H100=-100 c1/fit-L4=-100 c2/fit-H100=-100 c2/fit-L4=-100"},
		{"still empty", 1030, nil,
			"c1/fit-H100=-100 c1/fit-L4=-100 c2/fit-H100=-100 c2/fit-L4=-100"},
		{"empty for a day", 360 + 86400 + 1, nil, ""},
	} {
		source.responses["x"] = query.Result{Samples: step.samples}
		req.Now = now.Add(time.Duration(step.at) * time.Second)
		r := Run(context.Background(), req)
		if got := values(r.Result); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
		req.Previous = r.Result
	}
}

func TestNameFromLimitKeepsKnownNames(t *testing.T) {
	spec := modelSpec()
	spec.Scores[0].NameFrom.Limit = 2
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{modelSample("c1", "H100", 1), modelSample("c1", "L4", 2)}}}}
	req := newRequest(spec, source, "c1")
	req.Previous = Run(context.Background(), req).Result
	source.responses["x"] = query.Result{Samples: []query.Sample{modelSample("c1", "A100", 3), modelSample("c1", "H100", 1), modelSample("c1", "L4", 2)}}
	r := Run(context.Background(), req)
	if !slices.Equal(r.Scores[0].Names, []string{"fit-H100", "fit-L4"}) || !slices.Equal(r.Scores[0].LeftOut, []string{"fit-A100"}) {
		t.Errorf("names %v, left out %v", r.Scores[0].Names, r.Scores[0].LeftOut)
	}
}

// TestNameFromWithSilentEndpoints: a name whose clusters do not respond stays for a day, other
// names go. Names of the response take the places of such names.
func TestNameFromWithSilentEndpoints(t *testing.T) {
	spec := modelSpec()
	spec.Scores[0].NameFrom.Limit = 3
	source := &fakeSource{responses: map[string]query.Result{}}
	req := newRequest(spec, source, "c1", "c2", "c3")
	down := map[string]string{"c3": "connection refused"}
	first := []query.Sample{modelSample("c1", "A100", 10), modelSample("c2", "H100", 20), modelSample("c3", "L4", 30)}
	for _, step := range []struct {
		name     string
		at       int
		response query.Result
		names    []string
	}{
		{"all respond", 0, query.Result{Samples: first}, []string{"fit-A100", "fit-H100", "fit-L4"}},
		{"c3 is silent and c1 has no A100", 30, query.Result{Samples: first[1:2], Failed: down}, []string{"fit-A100", "fit-H100", "fit-L4"}},
		{"both keep times have ended", 330, query.Result{Samples: first[1:2], Failed: down}, []string{"fit-A100", "fit-H100", "fit-L4"}},
		{"a response without A100 removes it", 360, query.Result{Samples: first[1:2], Failed: down}, []string{"fit-H100", "fit-L4"}},
		{"c3 is silent for almost a day", 86400, query.Result{Samples: first[1:2], Failed: down}, []string{"fit-H100", "fit-L4"}},
		{"names of the response come first", 86400, query.Result{Samples: []query.Sample{modelSample("c1", "B200", 1), modelSample("c2", "H100", 2), modelSample("c2", "T4", 3)}, Failed: down},
			[]string{"fit-B200", "fit-H100", "fit-T4"}},
	} {
		source.responses["x"] = step.response
		req.Now = now.Add(time.Duration(step.at) * time.Second)
		r := Run(context.Background(), req)
		if q := r.Scores[0]; !slices.Equal(q.Names, step.names) || len(q.LeftOut) > 0 {
			t.Errorf("%s: names %v, left out %v", step.name, q.Names, q.LeftOut)
		}
		req.Previous = r.Result
	}
}

// TestNameOfASilentEndpointEnds: after a day without a response, the name goes. The time
// continues after a restart.
func TestNameOfASilentEndpointEnds(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{"x": {
		Samples: []query.Sample{modelSample("c1", "H100", 20)}, Failed: map[string]string{"c2": "connection refused"},
	}}}
	req := newRequest(modelSpec(), source, "c1", "c2")
	lost := now.Add(-time.Hour)
	req.Previous = score.FromSeeds(req.Policy, []score.Seed{
		{Cluster: "c1", Scores: map[string]score.SeedScore{"fit-H100": {Value: 20, SampleTime: now}, "fit-L4": {Value: -100, State: score.Worst}}},
		{Cluster: "c2", Scores: map[string]score.SeedScore{"fit-L4": {Value: -100, State: score.Worst, MissingSince: lost}}},
	}, now)
	for _, step := range []struct {
		at    time.Time
		names []string
	}{
		{now, []string{"fit-H100", "fit-L4"}},
		{lost.Add(24 * time.Hour), []string{"fit-H100", "fit-L4"}},
		{lost.Add(24*time.Hour + time.Second), []string{"fit-H100"}},
	} {
		req.Now = step.at
		r := Run(context.Background(), req)
		if q := r.Scores[0]; !slices.Equal(q.Names, step.names) {
			t.Errorf("at %s: names %v", step.at, q.Names)
		}
		req.Previous = r.Result
	}
}

// TestCollidingNames: values with the same name are not published, in whatever order they
// come, also if they belong to different clusters. A score from before is kept.
func TestCollidingNames(t *testing.T) {
	a, b := modelSample("c1", "H100 80GB", 10), modelSample("c2", "H100-80GB", 20)
	source := &fakeSource{responses: map[string]query.Result{}}
	for _, tc := range []struct {
		name    string
		samples []query.Sample
	}{
		{"different clusters", []query.Sample{a, b}},
		{"other order", []query.Sample{b, a}},
		{"same cluster", []query.Sample{b, modelSample("c2", "H100 80GB", 30)}},
	} {
		source.responses["x"] = query.Result{Samples: append(tc.samples, modelSample("c1", "L4", 5))}
		r := Run(context.Background(), newRequest(modelSpec(), source, "c1", "c2"))
		if got, want := values(r.Result), "c1/fit-L4=5 c2/fit-L4=-100"; got != want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, want)
		}
		want := []string{`2 values of the label model, such as "H100 80GB" and "H100-80GB", give the name fit-H100-80GB`}
		if got := r.Scores[0].Collisions; !slices.Equal(got, want) {
			t.Errorf("%s: %q", tc.name, got)
		}
	}

	source.responses["x"] = query.Result{Samples: []query.Sample{a}}
	req := newRequest(modelSpec(), source, "c1", "c2")
	req.Previous = Run(context.Background(), req).Result
	source.responses["x"] = query.Result{Samples: []query.Sample{a, b}}
	for _, step := range []struct {
		at   int
		want string
	}{{30, "c1/fit-H100-80GB=10"}, {330, ""}} {
		req.Now = now.Add(time.Duration(step.at) * time.Second)
		r := Run(context.Background(), req)
		if got := values(r.Result); got != step.want {
			t.Errorf("after %d s: got %s, want %s", step.at, got, step.want)
		}
		req.Previous = r.Result
	}
}

func TestNameFromReportsUnusableLabels(t *testing.T) {
	for _, tc := range []struct {
		name    string
		samples []query.Sample
		want    string // in the warnings
		noMatch bool
	}{
		{"without the label", []query.Sample{sample("c1", 1)}, `1 series give no score because their label model is empty or too long, such as ""`, true},
		{"without the label, hint", []query.Sample{sample("c1", 1)}, "The query must return one series per cluster and value of the label model, as in sum by (cluster, model) (...)", true},
		{"too long", []query.Sample{modelSample("c1", strings.Repeat("x", 70), 1), modelSample("c1", "ok", 1)}, "1 series give no score", false},
		{"two values with one name", []query.Sample{modelSample("c1", "H100 80GB", 1), modelSample("c2", "H100-80GB", 1)}, `the query has colliding names: 2 values of the label model, such as "H100 80GB" and "H100-80GB", give the name fit-H100-80GB; such a score`, false},
		{"wrong clusters", []query.Sample{modelSample("x1", "H100", 1)}, "The label cluster must name selected ManagedClusters", true},
	} {
		source := &fakeSource{responses: map[string]query.Result{"x": {Samples: tc.samples}}}
		r := Run(context.Background(), newRequest(modelSpec(), source, "c1", "c2"))
		if q := r.Scores[0]; !strings.Contains(strings.Join(q.Warnings, "\n"), tc.want) || (q.NoMatch != nil) != tc.noMatch {
			t.Errorf("%s: no match %v, warnings %q", tc.name, q.NoMatch, q.Warnings)
		}
	}
}

func TestClusterLabelVariable(t *testing.T) {
	spec := newSpec("sum by ($cluster_label) (x)")
	spec.Freshness = &v1alpha1.Freshness{Query: "max by ($cluster_label) (age)"}
	expanded, _, err := Compile(spec, "site")
	if err != nil {
		t.Fatal(err)
	}
	if got := Expressions(expanded); !slices.Equal(got, []string{"sum by (site) (x)", "max by (site) (age)"}) {
		t.Errorf("%q", got)
	}
	if spec.Scores[0].Query != "sum by ($cluster_label) (x)" {
		t.Error("the spec has changed")
	}
}
