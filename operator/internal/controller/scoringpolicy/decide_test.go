package scoringpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/publish"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is one round: what each expression answers, by cluster.
type world struct {
	clusters []string
	say      map[string]map[string]float64
	fail     map[string]error
	shadow   bool
}

func (w world) Query(_ context.Context, expr string, _ time.Time) (query.Answer, error) {
	if err := w.fail[expr]; err != nil {
		return query.Answer{}, err
	}
	var a query.Answer
	for c, v := range w.say[expr] {
		a.Samples = append(a.Samples, query.Sample{Labels: map[string]string{"cluster": c}, Value: v})
	}
	return a, nil
}

func (w world) round(spec v1alpha1.ScoringPolicySpec, previous *score.Result, at time.Time) *outcome {
	in := &gathered{name: "fleet", period: 30 * time.Second, valid: 90 * time.Second, shadow: w.shadow}
	in.request = round.Request{
		Spec: &spec, Policy: score.Compile(&spec), Querier: w, Clusters: clustermap.FromNames("cluster", w.clusters), Previous: previous, Now: at,
	}
	return &outcome{in: in, report: round.Run(context.Background(), in.request), published: &publish.Report{}, took: 12 * time.Millisecond}
}

func spec(queries ...string) v1alpha1.ScoringPolicySpec {
	s := v1alpha1.ScoringPolicySpec{Total: &v1alpha1.TotalSpec{}}
	for i, q := range queries {
		s.Scores = append(s.Scores, v1alpha1.ScoreSpec{Name: string(rune('a' + i)), Query: q, Normalize: v1alpha1.Normalize{
			Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse("0"), To: resource.MustParse("10")},
		}})
	}
	return s
}

var healthy = world{clusters: []string{"c1", "c2", "c3"}, say: map[string]map[string]float64{"free": {"c1": 1, "c2": 2, "c3": 3}}}

func TestConditions(t *testing.T) {
	down := &query.Error{Reason: query.ReasonTimeout, Message: "too slow"}
	refused := &query.Error{Reason: query.ReasonBadQuery, Status: 422, Message: "many-to-many"}
	good := healthy.round(spec("free"), nil, now).report.Result
	stale := spec("free")
	stale.Freshness = &v1alpha1.Freshness{Query: "age"}
	for _, tc := range []struct {
		name                string
		done                func() *outcome
		valid, fresh, ready string
	}{
		{"well", func() *outcome { return healthy.round(spec("free"), nil, now) },
			"Valid: every expression parses and is answered", "Fresh: all 3 clusters have fresh values", "Ready: scores are fresh and published"},
		{"does not parse", func() *outcome { return healthy.round(spec("free", "rate(free)"), nil, now) },
			`ParseError: scores[b].query 1:6: expected type range vector in call to function "rate", got instant vector`,
			"Missing: 3 of 3 clusters lack a fresh value: c1, c2, c3", ""},
		{"refused by the source", func() *outcome {
			w := healthy
			w.fail = map[string]error{"x": refused}
			return w.round(spec("free", "x"), nil, now)
		}, "Refused: scores[b].query BadQuery: many-to-many", "Missing: 3 of 3 clusters lack a fresh value: c1, c2, c3", ""},
		{"down, held", func() *outcome {
			return world{clusters: healthy.clusters, fail: map[string]error{"free": down}}.round(spec("free"), good, now.Add(time.Minute))
		}, "Valid: every expression parses and is answered",
			"Timeout: scores[a].query got no answer: Timeout: too slow; 3 of 3 clusters are held", ""},
		{"one missing", func() *outcome {
			w := world{clusters: []string{"c1", "c2"}, say: healthy.say}
			w.clusters = append(w.clusters, "c9")
			return w.round(spec("free"), nil, now)
		}, "Valid: every expression parses and is answered", "Missing: 1 of 3 clusters lack a fresh value: c9", ""},
		{"too few", func() *outcome {
			return world{clusters: healthy.clusters, say: map[string]map[string]float64{"free": {"c1": 9}}}.round(spec("free"), good, now.Add(time.Minute))
		}, "Valid: every expression parses and is answered",
			"TooFewFresh: only 1 of 3 known clusters answer fresh, below minHealthyPercent: the round is held", ""},
		{"old", func() *outcome {
			w := healthy
			w.say = map[string]map[string]float64{"free": healthy.say["free"], "age": {"c1": 1, "c2": 1, "c3": 500}}
			return w.round(stale, nil, now)
		}, "Valid: every expression parses and is answered", "Stale: 1 of 3 clusters lack a fresh value: c3", ""},
		{"source not there", func() *outcome {
			d := world{}.round(spec("free"), nil, now)
			d.in.sourceErr = errors.Join(query.ErrNoSource)
			return d
		}, "", "NotFound: not found", ""},
		{"no clusters", func() *outcome { return world{}.round(spec("free"), nil, now) }, "",
			"NoClusters: clusterSelector picks no accepted ManagedCluster", ""},
		{"shadow", func() *outcome {
			w := healthy
			w.shadow = true
			return w.round(spec("free"), nil, now)
		}, "", "Fresh: all 3 clusters have fresh values", "Shadow: evaluates, and writes nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			done := tc.done()
			valid, fresh, out := queriesValid(done.report), dataFresh(done), published(done)
			all := ready(done, valid, fresh, out)
			for _, pair := range []struct {
				want string
				got  decision
			}{{tc.valid, valid}, {tc.fresh, fresh}, {tc.ready, all}} {
				if got := pair.got.reason + ": " + pair.got.message; pair.want != "" && got != pair.want {
					t.Errorf("\n got %q\nwant %q", got, pair.want)
				}
			}
		})
	}
}

func TestManyNamesAreCut(t *testing.T) {
	w := world{say: map[string]map[string]float64{"free": {}}}
	for _, c := range "abcdefgh" {
		w.clusters = append(w.clusters, "c-"+string(c))
	}
	got := dataFresh(w.round(spec("free"), nil, now)).message
	if want := "8 of 8 clusters lack a fresh value: c-a, c-b, c-c, c-d, c-e, and 3 more"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestMetricsShowWhatIsPublished(t *testing.T) {
	w := world{clusters: []string{"c1", "c2"}, say: map[string]map[string]float64{"free": {"c1": 4}}}
	done := w.round(spec("free"), nil, now)
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg, func() map[string]*outcome { return map[string]*outcome{"fleet": done} })
	m.observe("fleet", done)
	want := `# HELP plimsoll_score Score as it is published, or would be in Shadow mode: -100..100.
# TYPE plimsoll_score gauge
plimsoll_score{cluster="c1",policy="fleet",score="a"} 40
plimsoll_score{cluster="c1",policy="fleet",score="total"} 40
plimsoll_score{cluster="c2",policy="fleet",score="a"} -100
plimsoll_score{cluster="c2",policy="fleet",score="total"} -100
# HELP plimsoll_score_raw Last usable value of a score's query, as the source answered it.
# TYPE plimsoll_score_raw gauge
plimsoll_score_raw{cluster="c1",policy="fleet",score="a"} 4
# HELP plimsoll_round_timestamp_seconds Unix time at which a policy's last round began.
# TYPE plimsoll_round_timestamp_seconds gauge
plimsoll_round_timestamp_seconds{policy="fleet"} 1.767323045e+09
# HELP plimsoll_round_valid_until_timestamp_seconds Unix time until which what a policy's last round published is valid.
# TYPE plimsoll_round_valid_until_timestamp_seconds gauge
plimsoll_round_valid_until_timestamp_seconds{policy="fleet"} 1.767323135e+09
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "plimsoll_score", "plimsoll_score_raw", "plimsoll_round_timestamp_seconds",
		"plimsoll_round_valid_until_timestamp_seconds"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	m.forget("fleet")
	if n := testutil.CollectAndCount(m.last); n != 0 {
		t.Errorf("%d series of a policy that is gone", n)
	}
}

func TestMetricsCountWhatGotNoAnswer(t *testing.T) {
	s := spec("free", "sum(")
	s.Freshness = &v1alpha1.Freshness{Query: "age"}
	w := world{clusters: []string{"c1"}, fail: map[string]error{"age": &query.Error{Reason: query.ReasonTimeout}}}
	done := w.round(s, nil, now)
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg, func() map[string]*outcome { return map[string]*outcome{"fleet": done} })
	m.observe("fleet", done)
	want := `# HELP plimsoll_score_query_duration_seconds Duration of a score's query in the last round, with retries; score="(freshness)" is the policy's freshness.
# TYPE plimsoll_score_query_duration_seconds gauge
plimsoll_score_query_duration_seconds{policy="fleet",score="(freshness)"} 0
plimsoll_score_query_duration_seconds{policy="fleet",score="a"} 0
plimsoll_score_query_duration_seconds{policy="fleet",score="b"} 0
# HELP plimsoll_score_query_failures_total Rounds in which a score's query got no usable answer, by reason; ParseError: it was not asked.
# TYPE plimsoll_score_query_failures_total counter
plimsoll_score_query_failures_total{policy="fleet",reason="ParseError",score="b"} 1
plimsoll_score_query_failures_total{policy="fleet",reason="Timeout",score="(freshness)"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "plimsoll_score_query_duration_seconds", "plimsoll_score_query_failures_total"); err != nil {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	w := world{clusters: []string{"c1", "c2"}, say: map[string]map[string]float64{"free": {"c1": 4}}}
	r := &Reconciler{memories: map[string]*memory{"fleet": {last: w.round(spec("free"), nil, now)}}}
	get := func(path string) (int, string) {
		for prefix, h := range r.handlers() {
			if strings.HasPrefix(path, prefix) {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
				return rec.Code, rec.Body.String()
			}
		}
		return 0, ""
	}
	code, body := get("/explain/cluster/c2")
	var list []ClusterExplanation
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 {
		t.Fatal(code, body, err)
	}
	worst := int32(-100)
	want := []ClusterExplanation{{Policy: "fleet", Cluster: "c2", Scores: []ScoreExplanation{
		{Name: "a", Value: &worst, State: "Worst", Outcome: "Absent", Since: &now},
		{Name: "total", Value: &worst, State: "Worst", Outcome: "Absent", Since: &now},
	}}}
	if d := cmp.Diff(want, list); d != "" {
		t.Error(d)
	}
	code, body = get("/explain/policy/fleet")
	if code != 200 || !strings.Contains(body, `"query": "free"`) || !strings.Contains(body, `"raw": 4`) {
		t.Error(code, body)
	}
	if code, body = get("/explain/policy/none"); code != 404 || !strings.Contains(body, "no round has spoken of none") {
		t.Error(code, body)
	}
}
