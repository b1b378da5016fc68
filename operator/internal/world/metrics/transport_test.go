package metrics_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// newClient returns the operator's client of a store, whose responses intercept decides.
func newClient(t *testing.T, s *metrics.Store, parameters url.Values, intercept func(*http.Request, string) metrics.Response) *query.Client {
	t.Helper()
	c, err := query.New(query.Config{
		Name: "test", URL: "https://prometheus.example.com/base", ClusterLabel: "cluster", AllLabels: true, Parameters: parameters,
		Timeout: 10 * time.Second, MaxConcurrency: 4, QueriesPerSecond: 100, MaxResponseBytes: 1 << 20, MaxSeries: 1000,
		Transport: &metrics.Transport{Store: s, Intercept: intercept},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// twoClusters has 6 free devices in c1 and 8 in c2 as of the given time.
func twoClusters(t *testing.T, at time.Time) *metrics.Store {
	t.Helper()
	s := newStore(t, metrics.Options{})
	for _, cluster := range []string{"c1", "c2"} {
		n := metrics.Node{Name: "n1", Model: h100, Resource: gpu, Devices: 8, Ready: true}
		snap := metrics.Snapshot{Cluster: cluster}
		if cluster == "c1" {
			n.Allocated = 2
			snap.Extra = []metrics.Sample{{Name: "lie", Value: math.Inf(1)}, {Name: "lie", Labels: map[string]string{"kind": `a "quoted" \ text`}, Value: math.NaN()}, {Name: "lie", Labels: map[string]string{"kind": "small"}, Value: -1e-9}}
		}
		snap.Nodes = []metrics.Node{n}
		if err := s.Scrape(at, snap); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Evaluate(at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	return s
}

const freeDevices = `cluster_resource_model:plimsoll_free_devices:sum`

func TestClientDecodesResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoClusters(t, time.Now())
		time.Sleep(2 * time.Second)
		c := newClient(t, s, nil, nil)
		for _, expr := range []string{freeDevices, "lie", "lie{kind=~'a.*'}", "vector(0)", "1.5", "nothing", "sum by (cluster) (up)", "plimsoll_node_devices"} {
			want, err := s.Query(t.Context(), expr, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Query(t.Context(), expr, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if !maps.EqualFunc(byLabels(want), byLabels(got), same) || got.Partial {
				t.Errorf("%s: got %v, want %v", expr, got, want)
			}
		}
		if version, err := c.Check(t.Context()); err != nil || version == "" {
			t.Errorf("Check returned %q, %v", version, err)
		}
		r, err := c.Range(t.Context(), freeDevices, time.Now(), time.Now().Add(2*time.Minute), time.Minute)
		if err != nil || len(r.Series) != 2 || len(r.Series[0].Points) != 3 || r.Series[0].Points[2].Value != 6 {
			t.Errorf("Range returned %v, %v", r, err)
		}
	})
}

func TestGetRequest(t *testing.T) {
	s := twoClusters(t, start)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://prometheus/api/v1/query?time=1700000002.5&query="+url.QueryEscape(`sum(`+freeDevices+`)`), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&metrics.Transport{Store: s}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body := new(strings.Builder)
	if err := errors.Join(resp.Write(body), resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if want := `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000002.5,"14"]}]}}`; !strings.HasSuffix(body.String(), want) {
		t.Errorf("response %q, want %s", body, want)
	}
}

// lostStore hides a cluster, with a warning.
func lostStore(warning string) func(*http.Request, string) metrics.Response {
	return func(*http.Request, string) metrics.Response {
		return metrics.Response{HideClusters: []string{"c2", "c.x"}, Warnings: slices.DeleteFunc([]string{warning}, func(s string) bool { return s == "" })}
	}
}

func TestPartialResponses(t *testing.T) {
	thanos := url.Values{"partial_response": {"false"}}
	for name, tc := range map[string]struct {
		warning    string
		parameters url.Values
		partial    bool
	}{
		"Prometheus":            {metrics.PrometheusWarning("c2"), nil, true},
		"Thanos":                {metrics.ThanosWarning("c2"), thanos, true},
		"Thanos without stores": {"No StoreAPIs matched for this query", thanos, true},
		"without a warning":     {"", thanos, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := twoClusters(t, time.Now())
				time.Sleep(2 * time.Second)
				var sent []string
				c := newClient(t, s, tc.parameters, func(req *http.Request, expr string) metrics.Response {
					sent = append(sent, req.URL.Query().Get("partial_response"))
					return lostStore(tc.warning)(req, expr)
				})
				got, err := c.Query(t.Context(), `sum(`+freeDevices+`)`, time.Now())
				if err != nil || got.Partial != tc.partial || got.PartialReason != tc.warning || len(got.Samples) != 1 || got.Samples[0].Value != 6 {
					t.Errorf("got %+v, %v; want 6 devices, partial %v with %q", got, err, tc.partial, tc.warning)
				}
				c = newClient(t, s, tc.parameters, nil)
				if got, err := c.Query(t.Context(), `sum(`+freeDevices+`)`, time.Now()); err != nil || got.Partial || got.Samples[0].Value != 14 {
					t.Errorf("with all stores: got %+v, %v; want 14 devices", got, err)
				}
				want := map[string][]string{"Prometheus": {""}, "Thanos": {"false", "true"}, "Thanos without stores": {"false", "true"}, "without a warning": {"false"}}[name]
				if !slices.Equal(sent, want) {
					t.Errorf("requests with partial_response %q, want %q", sent, want)
				}
			})
		})
	}
}

func TestFailures(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		expr     string
		response metrics.Response
		reason   query.Reason
		message  string
		took     time.Duration // 0 = any time
	}{
		"internal error":        {response: metrics.Response{Status: 500, Body: `{"status":"error","errorType":"internal","error":"the disk is full"}`}, reason: query.ReasonUnavailable, message: "the disk is full"},
		"unavailable":           {response: metrics.Response{Status: 503, Body: "no healthy upstream"}, reason: query.ReasonUnavailable, message: "Service Unavailable"},
		"too many requests":     {response: metrics.Response{Status: 429}, reason: query.ReasonRateLimited},
		"unauthorized":          {response: metrics.Response{Status: 401}, reason: query.ReasonUnauthorized},
		"connection refused":    {response: metrics.Response{Drop: refused}, reason: query.ReasonUnreachable, message: "connection refused"},
		"invalid JSON":          {response: metrics.Response{Body: `{"status":"success","data":{`}, reason: query.ReasonBadResponse},
		"HTML":                  {response: metrics.Response{Body: `<html>Log in</html>`}, reason: query.ReasonBadResponse},
		"slow":                  {response: metrics.Response{Latency: time.Minute}, reason: query.ReasonTimeout, took: 10 * time.Second},
		"slow, then refused":    {response: metrics.Response{Latency: 11 * time.Second, Drop: refused}, reason: query.ReasonTimeout, took: 10 * time.Second},
		"syntax":                {expr: "sum(", reason: query.ReasonBadQuery, message: "parse error"},
		"evaluation":            {expr: "up * on (cluster) up", reason: query.ReasonBadQuery, message: "many-to-many"},
		"range vector":          {expr: "up[5m]", reason: query.ReasonBadQuery},
		"error with status 200": {response: metrics.Response{Body: `{"status":"error","error":"x"}`}, reason: query.ReasonBadQuery},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := twoClusters(t, time.Now())
				time.Sleep(2 * time.Second)
				c := newClient(t, s, nil, func(*http.Request, string) metrics.Response { return tc.response })
				began := time.Now()
				if tc.expr == "" {
					tc.expr = freeDevices
				}
				_, err := c.Query(t.Context(), tc.expr, time.Now())
				if query.ReasonOf(err) != tc.reason || err == nil || !strings.Contains(err.Error(), tc.message) {
					t.Errorf("got %v, want %s with %q", err, tc.reason, tc.message)
				}
				if took := time.Since(began); tc.took > 0 && took != tc.took {
					t.Errorf("the query took %v, want %v", took, tc.took)
				}
			})
		})
	}
}

func TestLatencyPassesAndEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoClusters(t, time.Now())
		time.Sleep(2 * time.Second)
		c := newClient(t, s, nil, func(*http.Request, string) metrics.Response { return metrics.Response{Latency: 3 * time.Second} })
		began := time.Now()
		if r, err := c.Query(t.Context(), freeDevices, began); err != nil || len(r.Samples) != 2 || time.Since(began) != 3*time.Second {
			t.Errorf("got %v, %v after %v", r, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Query(ctx, freeDevices, began); query.ReasonOf(err) != query.ReasonTimeout || time.Since(began) != 4*time.Second {
			t.Errorf("got %v after %v, want a timeout after one second", err, time.Since(began)-3*time.Second)
		}
	})
}

// A lie changes one response, and not the samples that other responses have.
func TestLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoClusters(t, time.Now())
		time.Sleep(2 * time.Second)
		lies := true
		c := newClient(t, s, nil, func(*http.Request, string) metrics.Response {
			if !lies {
				return metrics.Response{}
			}
			return metrics.Response{Lie: func(r *query.Result) {
				for i := range r.Samples {
					r.Samples[i].Value = 100
					r.Samples[i].Labels["cluster"] = "c" + r.Samples[i].Labels["cluster"]
				}
			}}
		})
		want := map[string]float64{"cc1": 100, "cc2": 100}
		for range 2 {
			got, err := c.Query(t.Context(), `sum by (cluster) (`+freeDevices+`)`, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]float64{}
			for _, s := range got.Samples {
				values[s.Cluster] = s.Value
			}
			if !maps.Equal(values, want) {
				t.Errorf("got %v, want %v", values, want)
			}
			lies, want = false, map[string]float64{"c1": 6, "c2": 8}
		}
	})
}

func TestUnknownPath(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://prometheus/api/v1/series", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&metrics.Transport{Store: newStore(t, metrics.Options{})}).RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %v, %v, want the status 404", resp, err)
	}
	_ = resp.Body.Close()
}
