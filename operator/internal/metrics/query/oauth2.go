package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/prometheus/common/config"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"
)

// tokenTransport authenticates requests with an OAuth 2.0 token. The transport of
// prometheus/common follows redirects of the token endpoint and has no time limit for its
// requests.
type tokenTransport struct {
	source   oauth2.TokenSource
	requests singleflight.Group
	next     http.RoundTripper
}

// newTokenTransport returns the transport. Requests to the token endpoint have the same
// limits as queries.
func newTokenTransport(cfg Config, o *config.OAuth2, dial config.HTTPClientOption, next http.RoundTripper) (http.RoundTripper, error) {
	tokens, err := config.NewClientFromConfig(config.HTTPClientConfig{TLSConfig: o.TLSConfig, EnableHTTP2: true}, "metricssource/"+cfg.Name+"/token", config.WithUserAgent("plimsoll"), dial)
	if err != nil {
		return nil, err
	}
	tokens.Transport, tokens.Timeout = &noRedirectTransport{next: tokens.Transport}, cfg.Timeout
	params := url.Values{}
	for key, value := range o.EndpointParams {
		params.Set(key, value)
	}
	credentials := clientcredentials.Config{
		ClientID: o.ClientID, ClientSecret: string(o.ClientSecret), TokenURL: o.TokenURL, Scopes: o.Scopes, EndpointParams: params,
	}
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, tokens)
	return &tokenTransport{source: credentials.TokenSource(ctx), next: next}, nil
}

// RoundTrip implements http.RoundTripper. Concurrent requests wait for the same token, each
// until its own deadline.
func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case result := <-t.requests.DoChan("", func() (any, error) { return t.source.Token() }):
		if result.Err != nil {
			return nil, &tokenError{result.Err}
		}
		req = req.Clone(req.Context())
		result.Val.(*oauth2.Token).SetAuthHeader(req)
		return t.next.RoundTrip(req)
	case <-req.Context().Done():
		return nil, &tokenError{req.Context().Err()}
	}
}

// tokenError is the error of a token request.
type tokenError struct{ err error }

// Unwrap returns the cause.
func (e *tokenError) Unwrap() error { return e.err }

// Error returns a message without the body of the response.
func (e *tokenError) Error() string {
	var rejected *oauth2.RetrieveError
	switch {
	case errors.Is(e.err, context.DeadlineExceeded):
		return "no token from auth.oauth2.tokenURL in time"
	case !errors.As(e.err, &rejected):
		return "no token from auth.oauth2.tokenURL: " + transportMessage(e.err)
	}
	message := fmt.Sprintf("auth.oauth2.tokenURL rejects the request for a token with status %d", rejected.Response.StatusCode)
	if slices.Contains(tokenErrorCodes, rejected.ErrorCode) {
		message += ", error " + rejected.ErrorCode
	}
	return message
}

// tokenErrorCodes are the errors of RFC 6749, section 5.2.
var tokenErrorCodes = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
