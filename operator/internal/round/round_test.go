package round

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

var now = time.Unix(1_700_000_000, 0)

func managed(name string, labels map[string]string, claims ...string) clusterv1.ManagedCluster {
	c := clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	c.Spec.HubAcceptsClient = true
	for i := 0; i+1 < len(claims); i += 2 {
		c.Status.ClusterClaims = append(c.Status.ClusterClaims, clusterv1.ManagedClusterClaim{Name: claims[i], Value: claims[i+1]})
	}
	return c
}

func TestFleet(t *testing.T) {
	leaving := managed("leaving", nil)
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	refused := managed("refused", nil)
	refused.Spec.HubAcceptsClient = false
	all := []clusterv1.ManagedCluster{
		managed("b", map[string]string{"gpu": "yes", "prom": "bee"}),
		managed("a", map[string]string{"gpu": "yes"}, "id.k8s.io", "uid-a"),
		managed("c", map[string]string{"gpu": "no"}), leaving, refused,
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		info     query.SourceInfo
		want     []Cluster
	}{
		{"all by name", nil, query.SourceInfo{}, []Cluster{{"a", "a"}, {"b", "b"}, {"c", "c"}}},
		{"selected", selector, query.SourceInfo{Match: "Name"}, []Cluster{{"a", "a"}, {"b", "b"}}},
		{"by label", selector, query.SourceInfo{Match: "Label", Key: "prom"}, []Cluster{{"a", ""}, {"b", "bee"}}},
		{"by claim", selector, query.SourceInfo{Match: "ClusterClaim", Key: "id.k8s.io"}, []Cluster{{"a", "uid-a"}, {"b", ""}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Fleet(all, tc.selector, tc.info)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func sample(cluster string, v float64) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster}, Value: v}
}

func TestMap(t *testing.T) {
	x := NewIndex([]Cluster{{"a", "a"}, {"b", "b"}, {"c", "c"}, {"d", "d"}, {"e", "e"}, {"s1", "same"}, {"s2", "same"}, {"z", ""}})
	m := Map(query.Result{Samples: []query.Sample{
		sample("a", 1), sample("b", math.NaN()), sample("c", math.Inf(1)), sample("d", 1), sample("d", 1),
		sample("same", 5), sample("elsewhere", 1), {Value: 3}, sample("", 3),
	}}, "cluster", x)
	want := []score.Input{
		{Value: 1}, {Outcome: score.NaN}, {Outcome: score.Infinite}, {Outcome: score.Duplicate}, {Outcome: score.Absent},
		{Outcome: score.Duplicate}, {Outcome: score.Duplicate}, {Outcome: score.Absent},
	}
	if d := cmp.Diff(want, m.Inputs); d != "" {
		t.Error(d)
	}
	if m.Others != 1 || m.Unlabeled != 2 {
		t.Errorf("others %d, unlabeled %d", m.Others, m.Unlabeled)
	}
	if p := m.Problem("cluster"); !strings.Contains(p, "2 series have no label \"cluster\"") {
		t.Error(p)
	}
}

// script answers expressions from a table and notes what it was asked.
type script struct {
	mu    sync.Mutex
	asked map[string]int
	times map[time.Time]bool
	say   map[string]query.Result
}

func (s *script) Query(_ context.Context, expr string, at time.Time) (query.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[expr]++
	s.times[at] = true
	a, ok := s.say[expr]
	if !ok {
		return query.Result{}, &query.Error{Reason: query.ReasonUnavailable, Message: "down"}
	}
	return a, nil
}

func spec(queries ...string) *v1alpha1.ScoringPolicySpec {
	s := &v1alpha1.ScoringPolicySpec{}
	for i, q := range queries {
		s.Scores = append(s.Scores, v1alpha1.ScoreSpec{
			Name: string(rune('a' + i)), Query: q, Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeIdentity},
		})
	}
	return s
}

func run(s *v1alpha1.ScoringPolicySpec, sc *script, previous *score.Result) *Report {
	sc.asked, sc.times = map[string]int{}, map[time.Time]bool{}
	return Run(context.Background(), Request{
		Spec: s, Policy: score.Compile(s), Querier: sc, Info: query.SourceInfo{ClusterLabel: "cluster"},
		Clusters: []Cluster{{"c1", "c1"}, {"c2", "c2"}}, Previous: previous, Now: now,
	})
}

func TestRunAsksEachExpressionOnceAtOneTime(t *testing.T) {
	sc := &script{say: map[string]query.Result{"x": {Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}, "y": {}}}
	r := run(spec("x", "x", "y"), sc, nil)
	if d := cmp.Diff(map[string]int{"x": 1, "y": 1}, sc.asked); d != "" {
		t.Error(d)
	}
	if len(sc.times) != 1 || !sc.times[now] || r.Sent != 2 {
		t.Errorf("times %v, sent %d", sc.times, r.Sent)
	}
	if row := r.Result.Row(1); row[0].Value != 6 || row[1].Value != 6 || row[2].Outcome != score.Absent {
		t.Errorf("%+v", row)
	}
}

func TestRunLeavesOtherScoresAloneWhenOneIsWrong(t *testing.T) {
	sc := &script{say: map[string]query.Result{"x": {Samples: []query.Sample{sample("c1", 5)}}}}
	r := run(spec("sum(", "x", "unanswered"), sc, nil)
	row := r.Result.Row(0)
	if row[0].Outcome != score.Invalid || row[1].Value != 5 || row[2].Outcome != score.Failed {
		t.Errorf("%+v", row)
	}
	if p := r.Scores[0].Problems; len(p) == 0 || p[0].Pos.Column != 5 {
		t.Errorf("problems %v", p)
	}
	if sc.asked["sum("] != 0 {
		t.Error("asked an expression that does not parse")
	}
	var e *query.Error
	if !errors.As(r.Scores[2].Err, &e) || e.Reason != query.ReasonUnavailable {
		t.Error(r.Scores[2].Err)
	}
}

func TestRunJudgesFreshness(t *testing.T) {
	s := spec("x")
	s.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
	x := query.Result{Samples: []query.Sample{sample("c1", 5), sample("c2", 6)}}
	for _, tc := range []struct {
		name   string
		age    *query.Result
		c1, c2 score.Outcome
	}{
		{"both young", &query.Result{Samples: []query.Sample{sample("c1", 60), sample("c2", -3)}}, score.OK, score.OK},
		{"one old", &query.Result{Samples: []query.Sample{sample("c1", 61), sample("c2", 1)}}, score.Stale, score.OK},
		{"one unknown", &query.Result{Samples: []query.Sample{sample("c2", 1)}}, score.Stale, score.OK},
		{"one not a number", &query.Result{Samples: []query.Sample{sample("c1", math.NaN()), sample("c2", 1)}}, score.Stale, score.OK},
		{"no answer", nil, score.Failed, score.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sc := &script{say: map[string]query.Result{"x": x}}
			if tc.age != nil {
				sc.say["age"] = *tc.age
			}
			r := run(s, sc, nil)
			if got := [2]score.Outcome{r.Result.Row(0)[0].Outcome, r.Result.Row(1)[0].Outcome}; got != [2]score.Outcome{tc.c1, tc.c2} {
				t.Errorf("got %v, want %v %v", got, tc.c1, tc.c2)
			}
		})
	}
}

func TestRunTakesTheSampleTimeFromFreshness(t *testing.T) {
	s := spec("x")
	s.Freshness = &v1alpha1.Freshness{Query: "age"}
	r := run(s, &script{say: map[string]query.Result{
		"x": {Samples: []query.Sample{sample("c1", 5)}}, "age": {Samples: []query.Sample{sample("c1", 40)}},
	}}, nil)
	if got := r.Result.Row(0)[0].SampleTime.Time(); !got.Equal(now.Add(-40 * time.Second)) {
		t.Errorf("sample time %v", got)
	}
}

func FuzzMap(f *testing.F) {
	f.Add("cluster", "a", 1.0, false)
	f.Add("cluster", "d", math.NaN(), true)
	f.Add("cluster", "d", math.Inf(1), false)
	f.Add("", "", 0.0, true)
	x := NewIndex([]Cluster{{"a", "a"}, {"b", "a"}, {"c", ""}, {"d", "d"}})
	f.Fuzz(func(t *testing.T, label, value string, v float64, twice bool) {
		samples := []query.Sample{{Labels: map[string]string{label: value}, Value: v}}
		if twice {
			samples = append(samples, samples[0])
		}
		m := Map(query.Result{Samples: samples}, "cluster", x)
		for i, in := range m.Inputs {
			named := label == "cluster" && value == "d" && i == 3
			if in.Outcome == score.OK && (!named || twice || in.Value != v || math.IsNaN(v) || math.IsInf(v, 0)) {
				t.Fatalf("cluster %d got %v from %q=%q %v (twice: %t)", i, in.Value, label, value, v, twice)
			}
			if named && !twice && in.Outcome == score.Absent {
				t.Fatalf("%v got lost", v)
			}
		}
	})
}
