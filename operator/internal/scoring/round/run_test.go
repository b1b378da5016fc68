package round

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

func TestRunSendsEachQueryOnceAtOneTime(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}, "y": {}}}
	r := runRound(newSpec("x", "x", "y"), source)
	if d := cmp.Diff(map[string]int{"x": 1, "y": 1}, source.sent); d != "" {
		t.Error(d)
	}
	if len(source.times) != 1 || !source.times[now] || r.Sent != 2 {
		t.Errorf("times %v, sent %d", source.times, r.Sent)
	}
	if row := r.Result.Row(1); row[0].Value != 6 || row[1].Value != 6 || row[2].Outcome != score.Unmatched {
		t.Errorf("%+v", row)
	}
}

func TestRunIsolatesFailedQueries(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{sample("c1", 5)}}}}
	r := runRound(newSpec("sum(", "x", "unavailable"), source)
	row := r.Result.Row(0)
	if row[0].Outcome != score.Invalid || row[1].Value != 5 || row[2].Outcome != score.Failed {
		t.Errorf("%+v", row)
	}
	if r.Sent != 2 || r.Scores[1].Name != "b" {
		t.Errorf("sent %d, the second query is that of %s", r.Sent, r.Scores[1].Name)
	}
	if p := r.Scores[0].Problems; len(p) == 0 || p[0].Pos.Column != 5 {
		t.Errorf("problems %v", p)
	}
	if source.sent["sum("] != 0 {
		t.Error("sent an expression that does not parse")
	}
	var e *query.Error
	if !errors.As(r.Scores[2].Err, &e) || e.Reason != query.ReasonUnavailable {
		t.Error(r.Scores[2].Err)
	}
}

func TestRunMapsSamplesToInputs(t *testing.T) {
	clusters := []string{"absent", "duplicate", "infinite", "nan", "ok"}
	source := &fakeSource{responses: map[string]query.Result{"x": {Samples: []query.Sample{
		sample("ok", 1), sample("nan", math.NaN()), sample("infinite", math.Inf(1)), sample("duplicate", 1), sample("duplicate", 1), sample("elsewhere", 1),
	}}}}
	r := Run(context.Background(), newRequest(newSpec("x"), source, clusters...))
	want := []score.Outcome{score.Absent, score.Duplicate, score.Infinite, score.NaN, score.OK}
	for i, name := range clusters {
		if got := r.Result.Row(i)[0].Outcome; got != want[i] {
			t.Errorf("%s: outcome %s, want %s", name, got, want[i])
		}
	}
	if r.Scores[0].Series != 6 || r.Scores[0].Warnings != nil {
		t.Errorf("%+v", r.Scores[0])
	}
}

func TestRunWarnings(t *testing.T) {
	site := func(name, value string) clusterv1.ManagedCluster {
		return clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": value}}}
	}
	bySite := clustermap.New(
		[]clusterv1.ManagedCluster{site("c1", "one"), site("c2", "two"), site("c3", "two")},
		query.SourceInfo{ClusterLabel: "cluster", Match: "Label", Key: "site"},
	).Select([]string{"c1", "c2"})
	c1 := sample("one", 5)
	for _, tc := range []struct {
		name     string
		response query.Result
		want     []string
		c2       score.Outcome
	}{
		{"series of other clusters", query.Result{Samples: []query.Sample{c1, sample("elsewhere", 1)}}, nil, score.Absent},
		{
			"series without the label", query.Result{Samples: []query.Sample{c1, {Value: 3}, sample("", 3)}, Warnings: []string{"from the source"}},
			[]string{`2 series have no label "cluster": the query must keep it, as in sum by (cluster) (...)`, "from the source"}, score.Absent,
		},
		{
			"a value that a cluster shares with an unselected cluster", query.Result{Samples: []query.Sample{c1, sample("two", 3)}},
			[]string{`1 series are ignored because several ManagedClusters share their label value, such as cluster="two": c2, c3`}, score.Duplicate,
		},
		{
			"failed endpoints", query.Result{Samples: []query.Sample{c1}, Failed: map[string]string{"c2": "timeout", "c3": "connection refused"}},
			[]string{"the endpoints of 2 clusters failed, first c2: timeout"}, score.Failed,
		},
		{"some stores did not respond", query.Result{Samples: []query.Sample{c1}, Partial: true}, []string{"partial response: 1 of 1 series are discarded because data of their clusters may be missing"}, score.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := newRequest(newSpec("x"), &fakeSource{responses: map[string]query.Result{"x": tc.response}})
			req.Clusters = bySite
			r := Run(context.Background(), req)
			if d := cmp.Diff(tc.want, r.Scores[0].Warnings); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
			if got := r.Result.Row(slices.Index(r.Result.Clusters, "c2"))[0].Outcome; got != tc.c2 {
				t.Errorf("outcome of c2: %s, want %s", got, tc.c2)
			}
		})
	}
}

func TestRunAppliesFreshness(t *testing.T) {
	s := newSpec("x")
	s.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
	x := query.Result{Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}
	for _, tc := range []struct {
		name   string
		age    *query.Result
		c1, c2 score.Outcome
	}{
		{"both fresh", &query.Result{Samples: []query.Sample{sample("c1", 60), sample("c2", -3)}}, score.OK, score.OK},
		{"one too old", &query.Result{Samples: []query.Sample{sample("c1", 61), sample("c2", 1)}}, score.Stale, score.OK},
		{"one from the future", &query.Result{Samples: []query.Sample{sample("c1", -61), sample("c2", -60)}}, score.Stale, score.OK},
		{"one of unknown age", &query.Result{Samples: []query.Sample{sample("c2", 1)}}, score.Stale, score.OK},
		{"one not a number", &query.Result{Samples: []query.Sample{sample("c1", math.NaN()), sample("c2", 1)}}, score.Stale, score.OK},
		{"freshness query fails", nil, score.Failed, score.Failed},
		{"freshness query matches no cluster", &query.Result{Samples: []query.Sample{{Value: 1}}}, score.Unmatched, score.Unmatched},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source := &fakeSource{responses: map[string]query.Result{"x": x}}
			if tc.age != nil {
				source.responses["age"] = *tc.age
			}
			r := runRound(s, source)
			for i, want := range []score.Outcome{tc.c1, tc.c2} {
				cell := r.Result.Row(i)[0]
				if cell.Outcome != want {
					t.Errorf("outcome of c%d: %s, want %s", i+1, cell.Outcome, want)
				}
				if want == score.OK && cell.Value != int32(5+i) {
					t.Errorf("score of c%d: %d", i+1, cell.Value)
				}
			}
			if r.Freshness == nil || r.Freshness.Query != "age" {
				t.Errorf("report %+v", r.Freshness)
			}
		})
	}
}

func TestRunTakesTheSampleTimeFromFreshness(t *testing.T) {
	s := newSpec("x")
	s.Freshness = &v1alpha1.Freshness{Query: "age"}
	r := runRound(s, &fakeSource{responses: map[string]query.Result{
		"x": {Samples: []query.Sample{sample("c1", 5)}}, "age": {Samples: []query.Sample{sample("c1", 40)}},
	}})
	if got := r.Result.Row(0)[0].SampleTime.Time(); !got.Equal(now.Add(-40 * time.Second)) {
		t.Errorf("sample time %v", got)
	}
}

// A cluster that dies loses its series at once, and its sample time when the range of the freshness query
// ends. It is not one that has none of it.
func TestRunKeepsLostClusterStale(t *testing.T) {
	fifty := int32(50)
	for _, missing := range []v1alpha1.Missing{{Absent: "Fixed", FixedValue: &fifty}, {Absent: "Omit"}, {Absent: "Worst"}} {
		t.Run(string(missing.Absent), func(t *testing.T) {
			s := newSpec("x")
			s.Scores[0].Missing, s.Freshness = missing, &v1alpha1.Freshness{Query: "age"}
			source := &fakeSource{responses: map[string]query.Result{
				"x":   {Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}},
				"age": {Samples: []query.Sample{sample("c1", 1), sample("c2", 1)}},
			}}
			req := newRequest(s, source, "c1", "c2", "without")
			// outcomes returns those of c2 and of the cluster that never had a value, after a time.
			outcomes := func(after time.Duration) [2]score.Outcome {
				req.Now = now.Add(after)
				req.Previous = Run(context.Background(), req).Result
				return [2]score.Outcome{req.Previous.Row(1)[0].Outcome, req.Previous.Row(2)[0].Outcome}
			}
			outcomes(0)
			source.responses["x"] = query.Result{Samples: []query.Sample{sample("c1", 5)}}
			source.responses["age"] = query.Result{Samples: []query.Sample{sample("c1", 1), sample("c2", 3570)}}
			if got := outcomes(3570 * time.Second); got != [2]score.Outcome{score.Stale, score.None} {
				t.Errorf("while the sample time is known: %s", got)
			}
			source.responses["age"] = query.Result{Samples: []query.Sample{sample("c1", 1)}}
			for _, after := range []time.Duration{time.Hour, 2 * time.Hour, 24*time.Hour - time.Second} {
				if got := outcomes(after); got != [2]score.Outcome{score.Stale, score.None} {
					t.Errorf("after %s: %s", after, got)
				}
			}
			if got := outcomes(24*time.Hour + time.Second); got != [2]score.Outcome{score.None, score.None} {
				t.Errorf("after more than a day: %s", got)
			}
		})
	}
}

// The same after a restart of the operator, which knows from the published score that the value is missing,
// and from the reason of DataFresh that the cluster had one.
func TestRunKeepsLostClusterStaleAfterRestart(t *testing.T) {
	fifty := int32(50)
	s := newSpec("x")
	s.Scores[0].Missing, s.Freshness = v1alpha1.Missing{Absent: "Fixed", FixedValue: &fifty}, &v1alpha1.Freshness{Query: "age"}
	req := newRequest(s, &fakeSource{responses: map[string]query.Result{
		"x": {Samples: []query.Sample{sample("c1", 5)}}, "age": {Samples: []query.Sample{sample("c1", 1)}},
	}}, "c1", "c2", "without")
	req.Previous = score.FromSeeds(req.Policy, []score.Seed{
		{Cluster: "c2", Stale: true, Scores: map[string]score.SeedScore{"a": {Value: score.Lowest, State: score.Worst, MissingSince: now.Add(-2 * time.Hour)}}},
		{Cluster: "without", Scores: map[string]score.SeedScore{"a": {Value: 50, State: score.Fixed, MissingSince: now.Add(-time.Minute)}}}, // the query failed
	}, now)
	r := Run(context.Background(), req).Result
	if lost, without := r.Row(1)[0].Outcome, r.Row(2)[0].Outcome; lost != score.Stale || without != score.None {
		t.Errorf("lost cluster: %s, cluster without: %s", lost, without)
	}
}

// A cluster that an autoscaler scaled to zero has a sample time, but no series. It is not a lost one.
func TestRunAcceptsClusterScaledToZero(t *testing.T) {
	fifty := int32(50)
	s := newSpec("x")
	s.Scores[0].Missing, s.Freshness = v1alpha1.Missing{Absent: "Fixed", FixedValue: &fifty}, &v1alpha1.Freshness{Query: "age"}
	source := &fakeSource{responses: map[string]query.Result{
		"x":   {Samples: []query.Sample{sample("c1", 5), sample("zero", 6)}},
		"age": {Samples: []query.Sample{sample("c1", 1), sample("zero", 1)}},
	}}
	req := newRequest(s, source, "c1", "zero")
	req.Previous = Run(context.Background(), req).Result
	source.responses["x"] = query.Result{Samples: []query.Sample{sample("c1", 5)}}
	for _, after := range []time.Duration{time.Hour, 2 * time.Hour} {
		req.Now = now.Add(after)
		req.Previous = Run(context.Background(), req).Result
		if c := req.Previous.Row(1)[0]; c.Outcome != score.None || c.Value != 50 {
			t.Errorf("after %s: %s %d", after, c.Outcome, c.Value)
		}
	}
}
