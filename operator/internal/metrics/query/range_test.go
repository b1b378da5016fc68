package query

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/config"
)

func TestRangeDecodesSeries(t *testing.T) {
	var request string
	tries := 0
	c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		request = fmt.Sprint(r.URL.Path, " ", r.FormValue("query"), " ", r.FormValue("start"), " ", r.FormValue("end"), " ", r.FormValue("step"))
		_, _ = io.WriteString(w, `{"status":"success","warnings":["w"],"infos":["i"],"data":{"resultType":"matrix","result":[
			{"metric":{"cluster":"a"},"values":[[1700000000.25,"1.5"],[1700000030.25,"NaN"]]},
			{"metric":{"cluster":"h"},"histograms":[[1700000000.25,{"count":"1"}]]}]}}`)
	})})
	got, err := c.Range(context.Background(), "up", at, at.Add(time.Minute), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if want := "/api/v1/query_range up 1700000000.250 1700000060.250 30.000"; request != want {
		t.Errorf("got request %s, want %s", request, want)
	}
	want := RangeResult{Warnings: []string{"w"}, Infos: []string{"i"}, Series: []Series{
		{Labels: map[string]string{"cluster": "a"}, Points: []Point{{1700000000250, 1.5}, {1700000030250, math.NaN()}}},
		{Labels: map[string]string{"cluster": "h"}},
	}}
	if d := gocmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
		t.Error(d)
	}
}

func TestLabelValuesFallsBackToGET(t *testing.T) {
	c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if r.URL.Path != "/api/v1/label/cluster/values" || strings.Join(r.Form["match[]"], " ") != "" || strings.Join(r.URL.Query()["match[]"], " ") != `a{x="y"} b` {
			t.Errorf("unexpected request %s", r.URL)
		}
		_, _ = io.WriteString(w, `{"status":"success","data":["c1","c2"]}`)
	})})
	got, err := c.LabelValues(context.Background(), "cluster", []string{`a{x="y"}`, "b"}, at, at)
	if d := gocmp.Diff([]string{"c1", "c2"}, got); err != nil || d != "" {
		t.Error(err, d)
	}
}

func TestRangeFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   Reason
	}{
		"refused":      {400, `{"status":"error","errorType":"bad_data","error":"parse error"}`, ReasonBadQuery},
		"too much":     {422, `{"status":"error","errorType":"execution","error":"too many samples"}`, ReasonBadQuery},
		"html":         {200, "<html>sign in</html>", ReasonBadResponse},
		"cut off":      {200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric"`, ReasonBadResponse},
		"odd time":     {200, `{"status":"success","data":{"resultType":"matrix","result":[{"values":[["x","1"]]}]}}`, ReasonBadResponse},
		"vector":       {200, vector(), ReasonBadResponse},
		"forbidden":    {403, "no", ReasonUnauthorized},
		"many series":  {200, `{"status":"success","data":{"resultType":"matrix","result":[{},{},{}]}}`, ReasonTooLarge},
		"error in 200": {200, `{"status":"error","error":"what"}`, ReasonBadQuery},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{URL: serve(t, reply(tc.status, tc.body)), MaxSeries: 2})
			if _, err := c.Range(context.Background(), "up", at, at, time.Second); ReasonOf(err) != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func TestRangeRedactsSecrets(t *testing.T) {
	cfg := config.HTTPClientConfig{BasicAuth: &config.BasicAuth{Username: "ann", Password: "secret-word"}}
	c := newClient(t, Config{HTTP: cfg, URL: serve(t, reply(401, "wrong password secret-word"))})
	_, err := c.Range(context.Background(), "up", at, at, time.Second)
	if err == nil || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("%v", err)
	}
}

func TestRangeJoinsTheResultsOfAllClusters(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/down"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/small") && r.FormValue("start") != r.FormValue("end"):
			reply(422, `{"status":"error","errorType":"execution","error":"too many samples"}`)(w, r)
		default:
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}`)
		}
	})
	c := newClient(t, Config{URLTemplate: url + "/{cluster}", ClusterLabel: "cluster"})
	queryRange := func(end time.Time, clusters ...string) (RangeResult, error) {
		return c.Range(ForClusters(context.Background(), clusters), "up", at, end, time.Second)
	}
	h, err := queryRange(at.Add(time.Minute), "up", "down")
	if err != nil || len(h.Series) != 1 || h.Series[0].Labels["cluster"] != "up" || len(h.Warnings) != 1 || !strings.HasPrefix(h.Warnings[0], "down: Unauthorized") {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := queryRange(at.Add(time.Minute), "up", "small"); !CanSplitRange(err) {
		t.Errorf("one endpoint can't return the whole range: %v", err)
	}
	if h, err := queryRange(at, "up", "small"); err != nil || len(h.Series) != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := queryRange(at, "down"); ReasonOf(err) != ReasonUnauthorized {
		t.Errorf("all endpoints failed: %v", err)
	}
}
