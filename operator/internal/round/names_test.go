package round

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
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
// more goes after its hold, unless the whole response is empty.
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
		{"a new model, and one is held", 30, []query.Sample{modelSample("c1", "H100", 20), modelSample("c2", "L4", 40)},
			"c1/fit-A100=10 c1/fit-H100=20 c1/fit-L4=-100 c2/fit-A100=-100 c2/fit-H100=30 c2/fit-L4=40"},
		{"the hold has ended", 330, []query.Sample{modelSample("c1", "H100", 20), modelSample("c2", "L4", 40)},
			"c1/fit-A100=-100 c1/fit-H100=20 c1/fit-L4=-100 c2/fit-A100=-100 c2/fit-H100=-100 c2/fit-L4=40"},
		{"a model that no cluster has is gone", 360, []query.Sample{modelSample("c1", "H100", 20), modelSample("c2", "L4", 40)},
			"c1/fit-H100=20 c1/fit-L4=-100 c2/fit-H100=-100 c2/fit-L4=40"},
		{"an empty response removes no name", 1000, nil,
			"c1/fit-H100=-100 c1/fit-L4=-100 c2/fit-H100=-100 c2/fit-L4=-100"},
		{"still empty", 1030, nil,
			"c1/fit-H100=-100 c1/fit-L4=-100 c2/fit-H100=-100 c2/fit-L4=-100"},
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
		{"two values with one name", []query.Sample{modelSample("c1", "H100 80GB", 1), modelSample("c2", "H100-80GB", 1)}, `the values "H100 80GB" and "H100-80GB" of the label model give the same score fit-H100-80GB`, false},
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
