package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestQueryDecodesSamplesWarningsAndInfos(t *testing.T) {
	c := newClient(t, Config{URL: serve(t, reply(200, `{"status":"success","warnings":["PromQL warning: w"],"infos":["i"],"data":{"resultType":"vector","result":[
		{"metric":{"cluster":"a"},"value":[1700000000.25,"1.5"]},
		{"metric":{"cluster":"b"},"value":[1700000000.25,"NaN"]},
		{"metric":{"cluster":"c"},"value":[1700000000.25,"-Inf"]},
		{"metric":{"cluster":"h"},"histogram":[1700000000.25,{"count":"1"}]}]}}`))})
	got, err := c.Query(context.Background(), "up", at)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{
		Samples: []Sample{
			{Labels: map[string]string{"cluster": "a"}, Cluster: "a", Value: 1.5},
			{Labels: map[string]string{"cluster": "b"}, Cluster: "b", Value: math.NaN()},
			{Labels: map[string]string{"cluster": "c"}, Cluster: "c", Value: math.Inf(-1)},
		},
		Warnings: []string{"PromQL warning: w", "1 series are native histograms, which have no single value: use histogram_quantile or histogram_count"}, Infos: []string{"i"},
	}
	if d := gocmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.IgnoreFields(Result{}, "Duration")); d != "" {
		t.Error(d)
	}
}

func TestQuerySendsExpressionTimeAndParameters(t *testing.T) {
	var got url.Values
	var path, agent string
	c := newClient(t, Config{
		URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			got, path, agent = r.Form, r.URL.Path, r.UserAgent()
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`)
		}) + "/prefix/",
		Parameters: url.Values{"dedup": {"true"}, "partial_response": {"false"}},
	})
	a, err := c.Query(context.Background(), `up{a="b&c"}`, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Samples) != 1 || a.Samples[0].Value != 7 {
		t.Errorf("scalar: %v", a.Samples)
	}
	want := url.Values{"query": {`up{a="b&c"}`}, "time": {"1700000000.250"}, "timeout": {"5000ms"}, "dedup": {"true"}, "partial_response": {"false"}}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if path != "/prefix/api/v1/query" || agent != "plimsoll" {
		t.Errorf("path %q, agent %q", path, agent)
	}
}

func TestQueryFailures(t *testing.T) {
	for _, tc := range []struct {
		name   string
		serve  http.HandlerFunc
		tries  int32
		reason Reason
		text   string
	}{
		{"bad data", reply(400, `{"status":"error","errorType":"bad_data","error":"1:3: parse error"}`), 1, ReasonBadQuery, "1:3: parse error"},
		{"evaluation fails", reply(422, `{"status":"error","errorType":"execution","error":"many-to-many"}`), 1, ReasonBadQuery, "many-to-many"},
		{"unauthorized", reply(401, `no`), 1, ReasonUnauthorized, "Unauthorized"},
		{"rate limited", reply(429, ``), 3, ReasonRateLimited, "Too Many Requests"},
		{"unavailable", reply(503, `<html>down</html>`), 3, ReasonUnavailable, "Service Unavailable"},
		{"html", reply(200, `<html><body>Log in</body></html>`), 1, ReasonBadResponse, "HTML page"},
		{"garbage", reply(200, "\x00\x01"), 1, ReasonBadResponse, "not Prometheus JSON"},
		{"empty", reply(200, ``), 1, ReasonBadResponse, ""},
		{"matrix", reply(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), 1, ReasonBadQuery, "returns a matrix"},
		{"no data", reply(200, `{"status":"success"}`), 1, ReasonBadResponse, "no resultType"},
		{"bad value", reply(200, vector(`{"metric":{},"value":[1,"x"]}`)), 1, ReasonBadResponse, "must be a number"},
		{"short value", reply(200, vector(`{"metric":{},"value":[1]}`)), 1, ReasonBadResponse, ""},
		{"too many series", reply(200, vector(strings.Repeat(`{"metric":{},"value":[1,"1"]},`, 100)+`{"metric":{},"value":[1,"1"]}`)), 1, ReasonTooLarge, "more than 100 series"},
		{"too long", reply(200, strings.Repeat(" ", 2<<20)), 1, ReasonTooLarge, "maxResponseBytes"},
		{"success with an error status", reply(500, vector()), 3, ReasonUnavailable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tries atomic.Int32
			c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) { tries.Add(1); tc.serve(w, r) })})
			_, err := c.Query(context.Background(), "up", at)
			var e *Error
			if !errors.As(err, &e) || e.Reason != tc.reason || !strings.Contains(e.Message, tc.text) {
				t.Errorf("got %v, want %s with %q", err, tc.reason, tc.text)
			}
			if tries.Load() != tc.tries {
				t.Errorf("sent %d requests, want %d", tries.Load(), tc.tries)
			}
			healthy := tc.reason == ReasonBadQuery || tc.reason == ReasonTooLarge
			if h := c.Health(); (h.LastError == "") != healthy {
				t.Errorf("health %+v", h)
			}
		})
	}
}

func TestQueryRetriesTransientFailures(t *testing.T) {
	var n atomic.Int32
	reg := prometheus.NewRegistry()
	c := newClient(t, Config{Metrics: NewMetrics(reg), URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		reply(200, vector(`{"metric":{},"value":[1,"4"]}`))(w, r)
	})})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil || len(a.Samples) != 1 {
		t.Fatal(a, err)
	}
	want := `# HELP plimsoll_query_retries_total Retries of queries to a metrics source, by reason of the preceding failure.
# TYPE plimsoll_query_retries_total counter
plimsoll_query_retries_total{reason="unavailable",source="test"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "plimsoll_query_retries_total", "plimsoll_query_failures_total"); err != nil {
		t.Error(err)
	}
}

func TestQueryDoesNotRetryAfterItsTimeout(t *testing.T) {
	var n atomic.Int32
	c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})})
	if _, err := c.Query(context.Background(), "up", at); ReasonOf(err) != ReasonRateLimited {
		t.Error(err)
	}
	if n.Load() != 1 {
		t.Errorf("sent %d requests, want 1: Retry-After exceeds the timeout", n.Load())
	}
}

func TestQueryClassifiesTransportErrors(t *testing.T) {
	block := make(chan struct{})
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	defer close(block)
	c := newClient(t, Config{URL: slow})
	c.cfg.Timeout = 50 * time.Millisecond
	if _, err := c.Query(context.Background(), "up", at); ReasonOf(err) != ReasonTimeout {
		t.Errorf("slow: %v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c = newClient(t, Config{URL: gone.URL})
	if _, err := c.Query(context.Background(), "up", at); ReasonOf(err) != ReasonUnreachable {
		t.Errorf("gone: %v", err)
	}
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	c = newClient(t, Config{URL: tls.URL})
	if _, err := c.Query(context.Background(), "up", at); ReasonOf(err) != ReasonBadTLS {
		t.Errorf("unknown authority: %v", err)
	}
}

// The message is written to the status of every pending workload. A different message in each
// attempt would cause a write each time.
func TestQueryReportsTheSameErrorForTheSameFault(t *testing.T) {
	c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})})
	_, first := c.Query(t.Context(), "up", at)
	_, second := c.Query(t.Context(), "up", at)
	if ReasonOf(first) != ReasonUnreachable || first.Error() != second.Error() || !strings.Contains(first.Error(), "reset") {
		t.Errorf("two resets of a connection have different errors:\n%v\n%v", first, second)
	}
}

func TestQueryFallsBackToGET(t *testing.T) {
	c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		reply(200, vector(fmt.Sprintf(`{"metric":{"q":%q},"value":[1,"1"]}`, r.FormValue("query"))))(w, r)
	})})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil || a.Samples[0].Labels["q"] != "up" {
		t.Errorf("%v %v", a, err)
	}
}

func TestQueryLimitsConcurrency(t *testing.T) {
	var now, most atomic.Int32
	gate := make(chan struct{})
	c := newClient(t, Config{MaxConcurrency: 2, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		gate <- struct{}{}
		now.Add(-1)
		reply(200, vector())(w, r)
	})})
	errs := make(chan error)
	for range 6 {
		go func() { _, err := c.Query(context.Background(), "up", at); errs <- err }()
	}
	for range 6 {
		<-gate
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if most.Load() > 2 {
		t.Errorf("%d concurrent requests, want at most 2", most.Load())
	}
}

func TestCheckReturnsTheVersion(t *testing.T) {
	c := newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/status/buildinfo" {
			reply(200, `{"status":"success","data":{"version":"3.1.0"}}`)(w, r)
			return
		}
		reply(200, vector())(w, r)
	})})
	if v, err := c.Check(context.Background()); v != "3.1.0" || err != nil {
		t.Errorf("%q %v", v, err)
	}
	c = newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			reply(503, "")(w, r)
			return
		}
		reply(200, `{"status":"success","data":{"version":"3.1.0"}}`)(w, r)
	})})
	if _, err := c.Check(context.Background()); ReasonOf(err) != ReasonUnavailable {
		t.Errorf("queries fail although build information is available: %v", err)
	}
	c = newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			reply(200, vector())(w, r)
			return
		}
		http.NotFound(w, r)
	})})
	if v, err := c.Check(context.Background()); v != "" || err != nil {
		t.Errorf("without build information: %q %v", v, err)
	}
}

// A query whose caller gave up did not time out: the source would be reported as too slow.
func TestCanceledWhileALimitKeepsTheQuery(t *testing.T) {
	for _, limit := range []string{"maxConcurrency", "queriesPerSecond"} {
		t.Run(limit, func(t *testing.T) {
			c := newClient(t, Config{URL: serve(t, reply(200, vector()))})
			if e := c.single; limit == "maxConcurrency" {
				for range cap(e.slots) {
					e.slots <- struct{}{}
				}
			} else {
				e.rate.SetLimit(0)
				e.rate.SetBurst(0)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.Query(ctx, "up", at); ReasonOf(err) != ReasonCanceled {
				t.Errorf("%v, want %s", err, ReasonCanceled)
			}
			if failed := c.Health().LastError; failed != "" {
				t.Errorf("the source is reported as %s", failed)
			}
		})
	}
}
