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

var errTooLarge = errors.New("the response is larger than limits.maxResponseBytes")

// partialResponseParameter is the URL parameter with which Thanos returns the data of the
// stores that respond, instead of an error.
const partialResponseParameter = "partial_response"

// allowPartialKey marks a context whose requests accept partial results.
type allowPartialKey struct{}

// parameterTransport adds URL parameters to every request, such as those of Thanos.
type parameterTransport struct {
	values url.Values
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *parameterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if extra := t.forRequest(req); len(extra) > 0 {
		req = req.Clone(req.Context())
		q := req.URL.Query()
		maps.Copy(q, extra)
		req.URL.RawQuery = q.Encode()
	}
	return t.next.RoundTrip(req)
}

func (t *parameterTransport) forRequest(req *http.Request) url.Values {
	if allowed, _ := req.Context().Value(allowPartialKey{}).(bool); !allowed || t.values.Get(partialResponseParameter) == "" {
		return t.values
	}
	values := maps.Clone(t.values)
	values.Set(partialResponseParameter, "true")
	return values
}

// limitTransport fails on response bodies of more than max bytes.
type limitTransport struct {
	max  int64
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *limitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.ContentLength > t.max {
		_ = resp.Body.Close()
		return nil, errTooLarge
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, remaining: t.max}
	return resp, nil
}

type limitedBody struct {
	io.ReadCloser
	remaining int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.remaining+1 {
		p = p[:b.remaining+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
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
	client.Transport = &limitTransport{max: cfg.MaxResponseBytes, next: client.Transport}
	if len(cfg.Parameters) > 0 {
		client.Transport = &parameterTransport{values: cfg.Parameters, next: client.Transport}
	}
	return client, nil
}
