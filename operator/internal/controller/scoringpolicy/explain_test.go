package scoringpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

func TestExplanationEndpoints(t *testing.T) {
	w := fakeFleet{clusters: []string{"c1", "c2"}, values: map[string]map[string]float64{"free": {"c1": 4}}}
	elected := make(chan struct{})
	r := &Reconciler{elected: elected, policies: map[string]*policyState{}}
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
	for _, path := range []string{"/explain/cluster/c2", "/explain/policy/fleet"} {
		if code, body := get(path); code != 421 || body != notLeading+"\n" {
			t.Errorf("a replica that is not the leader responds to %s with %d %s", path, code, body)
		}
	}
	close(elected)
	r.policies["fleet"] = &policyState{last: w.round(newSpec("free"), nil, now)}
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
	if code, body = get("/explain/policy/none"); code != 404 || !strings.Contains(body, "no round has scored none") {
		t.Error(code, body)
	}
}

// TestExplainedPoints: points are shown if they are known, and only then.
func TestExplainedPoints(t *testing.T) {
	spec := newSpec("free", "power")
	fixed, minimum, keepLast := int32(50), resource.MustParse("3"), int32(60)
	spec.Scores[0].Minimum = &minimum
	spec.Scores[1].Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: &fixed, KeepLastSeconds: &keepLast}
	w := fakeFleet{clusters: []string{"c1", "c2", "c3"}, values: map[string]map[string]float64{
		"free": {"c1": 4, "c2": 4, "c3": 1}, "power": {"c1": 6, "c3": 6},
	}}
	show := func(done *completedRound) map[string]string {
		shown := map[string]string{}
		for _, c := range explainPolicy("fleet", done).Clusters {
			for _, s := range c.Scores {
				text := s.State + " points"
				if s.Points != nil {
					text += fmt.Sprintf(" %g", *s.Points)
				}
				if s.Raw != nil {
					text += fmt.Sprintf(" raw %g", *s.Raw)
				}
				shown[c.Cluster+" "+s.Name] = text
			}
		}
		return shown
	}
	first := w.round(spec, nil, now)
	want := map[string]string{
		"c1 a": "Scored points 40 raw 4", "c1 b": "Scored points 60 raw 6", "c1 total": "Scored points 50",
		"c2 a": "Scored points 40 raw 4", "c2 b": "Fixed points", "c2 total": "Scored points 45",
		"c3 a": "Vetoed points 10 raw 1", "c3 b": "Scored points 60 raw 6", "c3 total": "Vetoed points",
	}
	if d := cmp.Diff(want, show(first)); d != "" {
		t.Error(d)
	}
	// The value of a total from before its veto is no value of it now.
	w.values["free"]["c1"] = 1
	if got := show(w.round(spec, first.report.Result, now.Add(30*time.Second)))["c1 total"]; got != "Vetoed points" {
		t.Errorf("a total that is vetoed now: %s", got)
	}
	// A restart restores the published scores, and not what they come from.
	_, compiled, err := round.Compile(&spec, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	w.failures = map[string]error{"free": errors.New("down"), "power": errors.New("down")}
	restored := score.FromSeeds(compiled, []score.Seed{
		{Cluster: "c1", Scores: map[string]score.SeedScore{"a": {Value: 40, SampleTime: now}, "b": {Value: 60, SampleTime: now}}},
		{Cluster: "c3", Scores: map[string]score.SeedScore{"a": {Value: -100, State: score.Vetoed, SampleTime: now}}},
	}, now)
	shown := show(w.round(spec, restored, now.Add(30*time.Second)))
	for name, want := range map[string]string{"c1 a": "Kept points 40", "c1 total": "Kept points 50", "c3 a": "Vetoed points"} {
		if shown[name] != want {
			t.Errorf("after a restart, %s: %s, want %s", name, shown[name], want)
		}
	}
}
