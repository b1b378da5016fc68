package query

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/prometheus/common/config"
)

var errTooLarge = errors.New("the answer is larger than limits.maxResponseBytes")

// parameters adds URL parameters to every request: what Thanos understands beside
// Prometheus's own.
type parameters struct {
	values url.Values
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (p *parameters) RoundTrip(req *http.Request) (*http.Response, error) {
	if extra := p.forRequest(req); len(extra) > 0 {
		req = req.Clone(req.Context())
		q := req.URL.Query()
		maps.Copy(q, extra)
		req.URL.RawQuery = q.Encode()
	}
	return p.next.RoundTrip(req)
}

func (p *parameters) forRequest(req *http.Request) url.Values {
	if partial, _ := req.Context().Value(partialAllowed{}).(bool); !partial || p.values.Get("partial_response") == "" {
		return p.values
	}
	values := maps.Clone(p.values)
	values.Set("partial_response", "true")
	return values
}

// partialAllowed in a context asks Thanos for what the reachable stores hold.
type partialAllowed struct{}

// bounded refuses bodies beyond max bytes instead of reading on.
type bounded struct {
	max  int64
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.ContentLength > b.max {
		_ = resp.Body.Close()
		return nil, errTooLarge
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: b.max}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

func newHTTPClient(cfg Config) (*http.Client, error) {
	if err := cfg.HTTP.Validate(); err != nil {
		return nil, fmt.Errorf("authentication and TLS: %w", err)
	}
	client, err := config.NewClientFromConfig(cfg.HTTP, "metricssource/"+cfg.Name, config.WithUserAgent("plimsoll"))
	if err != nil {
		return nil, fmt.Errorf("authentication and TLS: %w", err)
	}
	client.Transport = &bounded{max: cfg.MaxResponseBytes, next: client.Transport}
	if len(cfg.Parameters) > 0 {
		client.Transport = &parameters{values: cfg.Parameters, next: client.Transport}
	}
	return client, nil
}
