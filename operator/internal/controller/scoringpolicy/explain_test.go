package scoringpolicy

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
