package query

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var at = time.UnixMilli(1700000000250)

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	cfg.Name, cfg.AllowLoopback = "test", true
	if cfg.ClusterLabel == "" {
		cfg.ClusterLabel = "cluster"
	}
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
