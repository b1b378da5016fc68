package round

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// TestWrongQueryPublishesNothing: the most frequent mistakes in a first policy.
func TestWrongQueryPublishesNothing(t *testing.T) {
	byClaim := clustermap.New([]clusterv1.ManagedCluster{{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}},
		query.SourceInfo{ClusterLabel: "cluster", Match: "ClusterClaim", Key: "id"})
	series := func(labels ...string) query.Sample {
		s := query.Sample{Labels: map[string]string{}, Value: 1}
		for i := 0; i < len(labels); i += 2 {
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	for _, tc := range []struct {
		name     string
		samples  []query.Sample
		clusters *clustermap.Mapping
		want     string
	}{
		{
			"no by (cluster)", []query.Sample{{Value: 5}}, nil,
			`matches no cluster: seen 1 series, such as {}; expected one series each for {cluster="c1"} and {cluster="c2"}. ` +
				`1 series have no label "cluster": the query must keep it, as in sum by (cluster) (...)`,
		},
		{
			"the label has another name", []query.Sample{series("k8s_cluster", "c1")}, nil,
			`matches no cluster: seen 1 series, such as {k8s_cluster="c1"}; expected one series each for {cluster="c1"} and {cluster="c2"}. ` +
				`These series carry your clusters in the label k8s_cluster: set --cluster-label k8s_cluster, or clusterMapping.label: k8s_cluster in the MetricsSource`,
		},
		{
			"the label has other values, and another label those of the clusters",
			[]query.Sample{series("cluster", "prod", "cluster_id", "c1", "pool", "c1"), series("cluster", "prod", "cluster_id", "c2", "pool", "a")}, nil,
			`matches no cluster: seen 2 series, such as {cluster="prod", cluster_id="c1", pool="c1"} and {cluster="prod", cluster_id="c2", pool="a"}; ` +
				`expected one series each for {cluster="c1"} and {cluster="c2"}. ` +
				`These series carry your clusters in the label cluster_id: set --cluster-label cluster_id, or clusterMapping.label: cluster_id in the MetricsSource`,
		},
		{
			"the label has other values", []query.Sample{series("cluster", "prod-1"), series("cluster", "prod-2")}, nil,
			`matches no cluster: seen 2 series, such as {cluster="prod-1"} and {cluster="prod-2"}; expected one series each for {cluster="c1"} and {cluster="c2"}. ` +
				`The label cluster must name selected ManagedClusters: check clusterMapping of the MetricsSource`,
		},
		{
			"a misspelled metric, or native histograms", nil, nil,
			`matches no cluster: seen no series; expected one series each for {cluster="c1"} and {cluster="c2"}. ` +
				`Check the names of the metric and its labels. A native histogram has no value of its own: use histogram_count or histogram_quantile`,
		},
		{
			"several series per cluster", []query.Sample{series("cluster", "c1", "pod", "a"), series("cluster", "c1", "pod", "b")}, nil,
			`matches no cluster: seen 2 series, such as {cluster="c1", pod="a"} and {cluster="c1", pod="b"}; expected one series each for {cluster="c1"} and {cluster="c2"}. ` +
				`The query must return one series per cluster, as in sum by (cluster) (...)`,
		},
		{
			"no cluster has the claim", []query.Sample{series("cluster", "x\x1b[31m")}, byClaim,
			`matches no cluster: seen 1 series, such as {cluster="x\x1b[31m"}; expected none: no selected ManagedCluster has the label or claim of clusterMapping. ` +
				`The label cluster must name selected ManagedClusters: check clusterMapping of the MetricsSource`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := newSpec("good", "x")
			spec.Scores[1].Missing.Absent = "Worst" // accepts absent values, but not a wrong query
			spec.Total = &v1alpha1.TotalSpec{}
			source := &fakeSource{responses: map[string]query.Result{
				"good": {Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}, "x": {Samples: tc.samples},
			}}
			req := newRequest(spec, source, "c1", "c2")
			if tc.clusters != nil {
				req.Clusters = tc.clusters
			}
			r := Run(context.Background(), req)
			if n := r.Scores[1].NoMatch; n == nil || n.String() != tc.want {
				t.Errorf("\n got %s\nwant %s", n, tc.want)
			}
			if w := r.Scores[1].Warnings; len(w) != 1 || w[0] != "the query "+tc.want {
				t.Errorf("warnings %q", w)
			}
			for i := range r.Result.Clusters {
				if row := r.Result.Row(i); row[1].State != score.Omitted || row[2].State != score.Omitted {
					t.Errorf("%s: score %s, total %s", r.Result.Clusters[i], row[1].State, row[2].State)
				}
			}
		})
	}
}

func TestSeriesTextIsBounded(t *testing.T) {
	if text := seriesText(map[string]string{"x": strings.Repeat("é", 500)}); len(text) > maxSeriesText || !strings.HasSuffix(text, "...}") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// TestUnmatchedOnlyBeforeTheFirstMatch: a query that has matched before is right. If it
// returns nothing, the clusters lack their metrics. A changed query starts again.
func TestUnmatchedOnlyBeforeTheFirstMatch(t *testing.T) {
	matching := query.Result{Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}
	source := &fakeSource{responses: map[string]query.Result{"x": matching, "typo": {}}}
	req := newRequest(newSpec("x"), source, "c1", "c2")
	req.Previous = Run(context.Background(), req).Result

	source.responses["x"] = query.Result{}
	req.Now = req.Now.Add(time.Hour)
	r := Run(context.Background(), req)
	if cell := r.Result.Row(0)[0]; cell.State != score.Worst || cell.Outcome != score.Absent || r.Scores[0].NoMatch != nil {
		t.Errorf("after a match: %s %s", cell.State, cell.Outcome)
	}

	changed := newRequest(newSpec("typo"), source)
	req.Spec, req.Policy, req.Previous = changed.Spec, changed.Policy, req.Previous.SkipDamping()
	req.Now = now.Add(30 * time.Second)
	r = Run(context.Background(), req)
	if cell := r.Result.Row(0)[0]; cell.State != score.Kept || cell.Outcome != score.Unmatched || r.Scores[0].NoMatch == nil {
		t.Errorf("changed query: %s %s", cell.State, cell.Outcome)
	}
	req.Previous, req.Now = r.Result, now.Add(time.Hour)
	if cell := Run(context.Background(), req).Result.Row(0)[0]; cell.State != score.Omitted {
		t.Errorf("changed query after the keep time: %d %s", cell.Value, cell.State)
	}
}

// TestAbsentOutcomes: c2 has none of what the query measures, or its exporter is silent.
func TestAbsentOutcomes(t *testing.T) {
	only1 := query.Result{Samples: []query.Sample{sample("c1", 5)}}
	both := query.Result{Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}
	seven := int32(7)
	for _, tc := range []struct {
		name    string
		missing v1alpha1.Missing
		ages    *query.Result
		before  bool // c2 had a value 30 s ago
		value   int32
		state   score.State
		outcome score.Outcome
	}{
		{"default", v1alpha1.Missing{}, nil, false, -100, score.Worst, score.Absent},
		{"worst", v1alpha1.Missing{Absent: "Worst"}, nil, false, -100, score.Worst, score.None},
		{"omit", v1alpha1.Missing{Absent: "Omit"}, nil, false, 0, score.Omitted, score.None},
		{"fixed", v1alpha1.Missing{Absent: "Fixed", FixedValue: &seven}, nil, false, 7, score.Fixed, score.None},
		{"had a value before", v1alpha1.Missing{Absent: "Worst"}, nil, true, 6, score.Kept, score.Absent},
		{"no exporter", v1alpha1.Missing{Absent: "Worst"}, &only1, false, -100, score.Worst, score.None},
		{"an exporter with old samples", v1alpha1.Missing{Absent: "Omit"}, &query.Result{Samples: []query.Sample{sample("c1", 1), sample("c2", 500)}}, false, -100, score.Worst, score.Stale},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := newSpec("x")
			spec.Scores[0].Missing = tc.missing
			source := &fakeSource{responses: map[string]query.Result{"x": both}}
			if tc.ages != nil {
				spec.Freshness = &v1alpha1.Freshness{Query: "age"}
				source.responses["age"] = *tc.ages
			}
			req := newRequest(spec, source, "c1", "c2")
			if tc.before {
				req.Previous = Run(context.Background(), req).Result
				req.Now = now.Add(30 * time.Second)
			}
			source.responses["x"] = only1
			cell := Run(context.Background(), req).Result.Row(1)[0]
			if cell.Value != tc.value || cell.State != tc.state || cell.Outcome != tc.outcome {
				t.Errorf("%d %s %s, want %d %s %s", cell.Value, cell.State, cell.Outcome, tc.value, tc.state, tc.outcome)
			}
		})
	}
}

// TestAbsentWhileTheQueryFails: c2 has none of what the query measures. A query that fails says
// nothing else, until the keep time ends.
func TestAbsentWhileTheQueryFails(t *testing.T) {
	spec, seven := newSpec("x"), int32(7)
	spec.Scores[0].Missing, spec.Total = v1alpha1.Missing{Absent: "Fixed", FixedValue: &seven}, &v1alpha1.TotalSpec{}
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{sample("c1", 5)}}}}
	req := newRequest(spec, source, "c1", "c2")
	for _, tc := range []struct {
		after time.Duration
		fails bool
		value int32
		state score.State
	}{
		{0, false, 7, score.Fixed},
		{30 * time.Second, true, 7, score.Fixed},
		{299 * time.Second, true, 7, score.Fixed},
		{300 * time.Second, true, -100, score.Worst},
		{330 * time.Second, false, 7, score.Fixed},
	} {
		if delete(source.responses, "x"); !tc.fails {
			source.responses["x"] = query.Result{Samples: []query.Sample{sample("c1", 5)}}
		}
		req.Now = now.Add(tc.after)
		req.Previous = Run(context.Background(), req).Result
		row := req.Previous.Row(1)
		if row[0].Value != tc.value || row[0].State != tc.state || row[1].Value != tc.value {
			t.Errorf("after %s: %d %s and the total %d, want %d %s", tc.after, row[0].Value, row[0].State, row[1].Value, tc.value, tc.state)
		}
	}
}
