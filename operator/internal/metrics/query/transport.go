package query

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/common/config"
)

var (
	errTooLarge = errors.New("the response has too many bytes: query fewer series or labels")
	errEncoding = errors.New("the response has a Content-Encoding other than gzip, which was not requested: check the proxies before the source")
)

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

// bodyTransport requests compressed responses and fails on bodies of more than max bytes,
// before and after their decompression.
type bodyTransport struct {
	max  int64
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *bodyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.ContentLength > t.max {
		_ = resp.Body.Close()
		return nil, errTooLarge
	}
	resp.Body = &limitedBody{Reader: resp.Body, Closer: resp.Body, remaining: t.max}
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "gzip", "x-gzip":
		resp.Body = &limitedBody{Reader: &gzipBody{compressed: resp.Body}, Closer: resp.Body, remaining: t.max}
	case "", "identity":
	default:
		_ = resp.Body.Close()
		return nil, errEncoding
	}
	return resp, nil
}

// gzipBody decompresses a body. It reads nothing before the first Read.
type gzipBody struct {
	compressed io.Reader
	reader     *gzip.Reader
}

// Read implements io.Reader.
func (b *gzipBody) Read(p []byte) (n int, err error) {
	if b.reader == nil {
		if b.reader, err = gzip.NewReader(b.compressed); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return 0, errBadJSON // shorter than a gzip header
			}
			return 0, decompressionError(err)
		}
	}
	n, err = b.reader.Read(p)
	return n, decompressionError(err)
}

// decompressionError keeps the errors of the connection and its limits. Any other error
// means that the body is not in the format that its header states.
func decompressionError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return errBadJSON
	}
	return err
}

type limitedBody struct {
	io.Reader
	io.Closer
	remaining int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.remaining+1 {
		p = p[:b.remaining+1]
	}
	n, err := b.Reader.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// redirectError is the error of a response that redirects. Following it would send the
// credentials of the source to a host that its author did not name.
type redirectError struct {
	status int
	target string // scheme and host; empty if unknown
}

// Error returns a message without any other text of the response.
func (e *redirectError) Error() string {
	target := "another address"
	if e.target != "" {
		target = e.target
	}
	return fmt.Sprintf("the server redirects to %s (status %d); redirects are not followed: set the URL to its final address", target, e.status)
}

// noRedirectTransport turns redirects into errors.
type noRedirectTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *noRedirectTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	_ = resp.Body.Close()
	return nil, &redirectError{status: resp.StatusCode, target: redirectTarget(req.URL, resp.Header.Get("Location"))}
}

// redirectTarget returns the scheme and the host of a Location header. The path and the
// query may contain credentials of the request.
func redirectTarget(from *url.URL, location string) string {
	u, err := from.Parse(location)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || len(u.Host) > 253 || !hostPart.MatchString(strings.ToLower(u.Hostname())) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

func isHTML(h http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && mediaType == "text/html"
}

// newHTTPClient returns the client for the endpoints of a source with the credentials and
// TLS settings of auth.
func newHTTPClient(cfg Config, auth config.HTTPClientConfig) (*http.Client, error) {
	if err := auth.Validate(); err != nil {
		return nil, fmt.Errorf("authentication and TLS: %w", err)
	}
	dial := config.WithDialContextFunc(newDialer(cfg.AllowLoopback).DialContext)
	oauth := auth.OAuth2
	auth.OAuth2, auth.FollowRedirects = nil, false
	client, err := config.NewClientFromConfig(auth, "metricssource/"+cfg.Name, config.WithUserAgent("plimsoll"), dial)
	if err == nil && cfg.Transport != nil {
		client.Transport = cfg.Transport
	} else if err == nil && oauth != nil {
		client.Transport, err = newTokenTransport(cfg, oauth, dial, client.Transport)
	}
	if err != nil {
		return nil, fmt.Errorf("authentication and TLS: %w", err)
	}
	client.Transport = &noRedirectTransport{next: client.Transport}
	client.Transport = &bodyTransport{max: cfg.MaxResponseBytes, next: client.Transport}
	if len(cfg.Parameters) > 0 {
		client.Transport = &parameterTransport{values: cfg.Parameters, next: client.Transport}
	}
	return client, nil
}
