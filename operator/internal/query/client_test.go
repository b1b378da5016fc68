package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
)

var at = time.UnixMilli(1700000000250)

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	cfg.Name = "test"
	cfg.Timeout = max(cfg.Timeout, 5*time.Second)
	cfg.MaxConcurrency = max(cfg.MaxConcurrency, 2)
	cfg.QueriesPerSecond = 1000
	if cfg.MaxResponseBytes == 0 {
		cfg.MaxResponseBytes = 1 << 20
	}
	if cfg.MaxSeries == 0 {
		cfg.MaxSeries = 100
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func vector(results ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(results, ",") + `]}}`
}

func TestQueryReadsSamplesWarningsAndInfosApart(t *testing.T) {
	c := newClient(t, Config{URL: serve(t, reply(200, `{"status":"success","warnings":["w"],"infos":["i"],"data":{"resultType":"vector","result":[
		{"metric":{"cluster":"a"},"value":[1700000000.25,"1.5"]},
		{"metric":{"cluster":"b"},"value":[1700000000.25,"NaN"]},
		{"metric":{"cluster":"c"},"value":[1700000000.25,"-Inf"]},
		{"metric":{"cluster":"h"},"histogram":[1700000000.25,{"count":"1"}]}]}}`))})
	got, err := c.Query(context.Background(), "up", at)
	if err != nil {
		t.Fatal(err)
	}
	want := Answer{
		Samples: []Sample{
			{map[string]string{"cluster": "a"}, 1.5},
			{map[string]string{"cluster": "b"}, math.NaN()},
			{map[string]string{"cluster": "c"}, math.Inf(-1)},
		},
		Warnings: []string{"w"}, Infos: []string{"i"},
	}
	if d := gocmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.IgnoreFields(Answer{}, "Duration")); d != "" {
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
		{"can't evaluate", reply(422, `{"status":"error","errorType":"execution","error":"many-to-many"}`), 1, ReasonBadQuery, "many-to-many"},
		{"unauthorized", reply(401, `no`), 1, ReasonUnauthorized, "no"},
		{"rate limited", reply(429, ``), 3, ReasonRateLimited, "Too Many Requests"},
		{"unavailable", reply(503, `<html>down</html>`), 3, ReasonUnavailable, "down"},
		{"html", reply(200, `<html><body>Log in</body></html>`), 1, ReasonBadResponse, "Log in"},
		{"garbage", reply(200, "\x00\x01"), 1, ReasonBadResponse, "not Prometheus's JSON"},
		{"empty", reply(200, ``), 1, ReasonBadResponse, ""},
		{"matrix", reply(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), 1, ReasonBadQuery, "answers a matrix"},
		{"no data", reply(200, `{"status":"success"}`), 1, ReasonBadResponse, "no resultType"},
		{"bad value", reply(200, vector(`{"metric":{},"value":[1,"x"]}`)), 1, ReasonBadResponse, "must be a number"},
		{"short value", reply(200, vector(`{"metric":{},"value":[1]}`)), 1, ReasonBadResponse, ""},
		{"too many series", reply(200, vector(strings.Repeat(`{"metric":{},"value":[1,"1"]},`, 100)+`{"metric":{},"value":[1,"1"]}`)), 1, ReasonTooLarge, "101 series"},
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
				t.Errorf("asked %d times, want %d", tries.Load(), tc.tries)
			}
			healthy := tc.reason == ReasonBadQuery || tc.reason == ReasonTooLarge
			if h := c.Health(); (h.LastError == "") != healthy {
				t.Errorf("health %+v", h)
			}
		})
	}
}

func TestQueryRecoversWithinItsTries(t *testing.T) {
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
	want := `# HELP plimsoll_query_retries_total Questions sent again, by the reason of the failure before.
# TYPE plimsoll_query_retries_total counter
plimsoll_query_retries_total{reason="Unavailable",source="test"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "plimsoll_query_retries_total", "plimsoll_query_failures_total"); err != nil {
		t.Error(err)
	}
}

func TestQueryDoesNotWaitLongerThanItsTime(t *testing.T) {
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
		t.Errorf("asked %d times although Retry-After is beyond the time-out", n.Load())
	}
}

func TestQuerySlowDownAndUnreachable(t *testing.T) {
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

// The message stands in the status of every workload that waits.
func TestErrorsOfOneFaultAreTheSame(t *testing.T) {
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
		t.Errorf("a connection that is reset is said as\n%v\n%v", first, second)
	}
}

func TestQueryGoesBackToGETWherePOSTIsRefused(t *testing.T) {
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

func TestQueryKeepsToItsConcurrency(t *testing.T) {
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
		t.Errorf("%d at a time, want 2", most.Load())
	}
}

func TestAuthenticationIsSentAndNeverShown(t *testing.T) {
	secret := func(s string) *config.Headers {
		return &config.Headers{Headers: map[string]config.Header{"X-Key": {Secrets: []config.Secret{config.Secret(s)}}}}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("short-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		http config.HTTPClientConfig
		sent string // what the server repeats
	}{
		"bearer":      {config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", Credentials: "s3cret"}}, "Bearer s3cret"},
		"bearer file": {config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: file}}, "Bearer short-one"},
		"basic":       {config.HTTPClientConfig{BasicAuth: &config.BasicAuth{Username: "u", Password: "s3cret"}}, "Basic dTpzM2NyZXQ="},
		"header":      {config.HTTPClientConfig{HTTPHeaders: secret("s3cret")}, "s3cret"},
	} {
		for _, status := range []int{200, 401, 422, 503} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				var sent string
				c := newClient(t, Config{HTTP: tc.http, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
					sent = cmp.Or(r.Header.Get("Authorization"), r.Header.Get("X-Key"))
					reply(status, strings.Repeat(" ", 290)+"you said "+sent)(w, r)
				})})
				_, err := c.Query(context.Background(), "up", at)
				if sent != tc.sent {
					t.Errorf("sent %q, want %q", sent, tc.sent)
				}
				if err == nil || !strings.Contains(err.Error(), "you said") {
					t.Fatalf("the error leaves out what the server says: %v", err)
				}
				if shown := strings.Fields(tc.sent); strings.Contains(err.Error(), shown[len(shown)-1]) {
					t.Errorf("the error shows the secret: %v", err)
				}
			})
		}
	}
}

func TestWarningsHideSecrets(t *testing.T) {
	c := newClient(t, Config{
		HTTP: config.HTTPClientConfig{BasicAuth: &config.BasicAuth{Username: "u", Password: "s3cret"}},
		URL:  serve(t, reply(200, `{"status":"success","warnings":["w s3cret"],"infos":["i s3cret"],"data":{"resultType":"vector","result":[]}}`)),
	})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil || a.Warnings[0] != "w (hidden)" || a.Infos[0] != "i (hidden)" {
		t.Errorf("%+v %v", a, err)
	}
}

func TestCheckSaysTheVersion(t *testing.T) {
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
		t.Errorf("build information, but no answers: %v", err)
	}
	c = newClient(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			reply(200, vector())(w, r)
			return
		}
		http.NotFound(w, r)
	})})
	if v, err := c.Check(context.Background()); v != "" || err != nil {
		t.Errorf("without buildinfo: %q %v", v, err)
	}
}

func TestSources(t *testing.T) {
	var s Sources
	if _, _, err := s.For("a"); !errors.Is(err, ErrNoSource) {
		t.Error(err)
	}
	s.Refuse("a", errors.New("secret x not found"))
	if _, _, err := s.For("a"); err == nil || err.Error() != `MetricsSource "a" can't be used: secret x not found` {
		t.Error(err)
	}
	s.Set(SourceInfo{Name: "a", ClusterLabel: "cluster"}, Func(func(context.Context, string, time.Time) (Answer, error) { return Answer{}, nil }))
	if q, info, err := s.For("a"); q == nil || info.ClusterLabel != "cluster" || err != nil {
		t.Error(q, info, err)
	}
	s.Delete("a")
	if _, _, err := s.For("a"); !errors.Is(err, ErrNoSource) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(vector(`{"metric":{"cluster":"a"},"value":[1,"1"]}`)))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`))
	f.Add([]byte(`{"status":"error"}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]},{"metric":{},"histogram":[1,{}]}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decode(200, body, 10)
		switch {
		case err != nil && (len(a.Samples) > 0 || err.Message == "" || err.Reason == ""):
			t.Fatalf("%+v with %+v", err, a)
		case err == nil && !json.Valid(body):
			t.Fatalf("%q is not JSON", body)
		case len(a.Samples) > 10:
			t.Fatalf("%d samples, allowed were 10", len(a.Samples))
		}
	})
}

func tenThousand() []byte {
	one := `{"metric":{"cluster":"cluster-%05d"},"value":[1700000000.25,"%d.5"]}`
	results := make([]string, 10000)
	for i := range results {
		results[i] = fmt.Sprintf(one, i, i)
	}
	return []byte(vector(results...))
}

// canned is client_golang's client with an answer at hand.
type canned struct{ body []byte }

func (canned) URL(string, map[string]string) *url.URL { return &url.URL{} }

func (c canned) Do(context.Context, *http.Request) (*http.Response, []byte, error) {
	return &http.Response{StatusCode: http.StatusOK}, c.body, nil
}

// BenchmarkDecodeClientGolang10000 is what Decode is measured against.
func BenchmarkDecodeClientGolang10000(b *testing.B) {
	api := promv1.NewAPI(canned{tenThousand()})
	b.ReportAllocs()
	for b.Loop() {
		if v, _, err := api.Query(context.Background(), "up", at); err != nil || len(v.(model.Vector)) != 10000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode10000(b *testing.B) {
	body := tenThousand()
	b.ReportAllocs()
	for b.Loop() {
		if a, err := decode(200, body, 10000); err != nil || len(a.Samples) != 10000 {
			b.Fatal(err)
		}
	}
}

func TestThanosIsAskedForAPartialAnswerOnlyAfterARefusal(t *testing.T) {
	var asked []string
	down := true
	c := newClient(t, Config{Parameters: url.Values{"partial_response": {"false"}}, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.FormValue("partial_response"))
		switch {
		case !down:
			reply(200, vector())(w, r)
		case r.FormValue("partial_response") == "false":
			reply(422, `{"status":"error","errorType":"execution","error":"no store matched"}`)(w, r)
		default:
			reply(200, `{"status":"success","warnings":["store c2 is down"],"data":{"resultType":"vector","result":[]}}`)(w, r)
		}
	})})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil || !a.Partial || c.Health().Partial != "store c2 is down" {
		t.Errorf("%+v %v %+v", a, err, c.Health())
	}
	down = false
	if _, err := c.Query(context.Background(), "vector(1)", at); err != nil || c.Health().Partial == "" {
		t.Errorf("an answer that no store gave ends the partial one: %v %+v", err, c.Health())
	}
	if a, err = c.Query(context.Background(), "up", at); err != nil || a.Partial || c.Health().Partial != "" {
		t.Errorf("%+v %v %+v", a, err, c.Health())
	}
	if d := gocmp.Diff([]string{"false", "true", "false", "false"}, asked); d != "" {
		t.Error(d)
	}
}
