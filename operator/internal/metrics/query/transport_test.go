package query

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/common/config"
)

// roundTripper is a network of one function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Config.Transport replaces the network only: parameters, compression, limits and the rule against
// redirects still apply.
func TestTransportReplacesTheNetwork(t *testing.T) {
	const body = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"a"},"value":[1,"3"]}]}}`
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		status int
		header http.Header
		body   string
		reason Reason
	}{
		{"plain", 200, nil, body, ""},
		{"compressed", 200, http.Header{"Content-Encoding": {"gzip"}}, compressed.String(), ""},
		{"too large", 200, nil, strings.Repeat(" ", 2000) + body, ReasonTooLarge},
		{"redirect", 302, http.Header{"Location": {"https://elsewhere.example.com"}}, "", ReasonRedirected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requests := 0
			c := newClient(t, Config{
				// No host has this name: a request that reached the network would fail.
				URL: "https://prometheus.invalid", Parameters: url.Values{"dedup": {"true"}}, MaxResponseBytes: 1000,
				HTTP: config.HTTPClientConfig{OAuth2: &config.OAuth2{ClientID: "id", ClientSecret: "secret", TokenURL: "https://tokens.invalid"}},
				Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
					requests++
					if req.URL.Query().Get("dedup") != "true" || req.Header.Get("Accept-Encoding") != "gzip" || req.URL.Host != "prometheus.invalid" {
						t.Errorf("request to %s with the header %v", req.URL, req.Header)
					}
					return &http.Response{StatusCode: tc.status, Header: tc.header, Body: io.NopCloser(strings.NewReader(tc.body)), ContentLength: -1, Request: req}, nil
				}),
			})
			got, err := c.Query(context.Background(), "up", at)
			if tc.reason != "" && ReasonOf(err) != tc.reason || tc.reason == "" && (err != nil || len(got.Samples) != 1 || got.Samples[0].Value != 3) {
				t.Errorf("got %v, %v; want the reason %q", got, err, tc.reason)
			}
			if requests != 1 {
				t.Errorf("%d requests, want 1", requests)
			}
		})
	}
}
