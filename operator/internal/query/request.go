package query

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
)

const (
	maxAttempts  = 3
	initialDelay = 100 * time.Millisecond
	// maxRetryAfter bounds the delay in seconds that a Retry-After header can request.
	maxRetryAfter = 3600
)

// send sends an instant query once. retryAfter is the delay that the server requested
// before the next attempt.
func (c *Client) send(ctx context.Context, base, expr string, at time.Time) (result Result, retryAfter time.Duration, failure *Error) {
	endpoint, err := c.endpoint(base)
	if err != nil {
		return Result{}, 0, &Error{Reason: ReasonUnreachable, Message: clip(err.Error())}
	}
	form := url.Values{"query": {expr}, "time": {formatTime(at)}, "timeout": {c.timeoutParameter()}}
	resp, body, failure := post(ctx, endpoint, "/api/v1/query", form) //nolint:bodyclose // api.Client reads and closes it
	if failure != nil {
		return Result{}, 0, c.redact.failure(failure)
	}
	result, failure = decodeInstant(resp.StatusCode, body, c.cfg.MaxSeries)
	result.Warnings, result.Infos = c.redact.texts(result.Warnings), c.redact.texts(result.Infos)
	return result, parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()), c.redact.failure(failure)
}

// timeoutParameter is the value of the URL parameter timeout. It makes the server stop
// the evaluation when the client stops waiting.
func (c *Client) timeoutParameter() string {
	return strconv.FormatInt(c.cfg.Timeout.Milliseconds(), 10) + "ms"
}

// formatTime returns seconds since the Unix epoch with milliseconds.
func formatTime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// post sends form as a POST request, and as a GET request if the server does not allow
// POST.
func post(ctx context.Context, endpoint api.Client, path string, form url.Values) (*http.Response, []byte, *Error) {
	resp, body, failure := do(ctx, endpoint, http.MethodPost, path, form)
	if resp != nil && (resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusNotImplemented) {
		return do(ctx, endpoint, http.MethodGet, path, form)
	}
	return resp, body, failure
}

func do(ctx context.Context, endpoint api.Client, method, path string, form url.Values) (*http.Response, []byte, *Error) {
	u := endpoint.URL(path, nil)
	body := form.Encode()
	if method == http.MethodGet {
		u.RawQuery, body = body, ""
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	if err != nil {
		return nil, nil, transportError(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, raw, err := endpoint.Do(ctx, req)
	if err != nil {
		return nil, nil, transportError(err)
	}
	return resp, raw, nil
}

// endpoint returns the API client of a base URL and creates it on first use.
func (c *Client) endpoint(base string) (api.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.endpoints[base]; ok {
		return e, nil
	}
	e, err := api.NewClient(api.Config{Address: base, Client: c.http})
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	c.endpoints[base] = e
	return e, nil
}

// retry calls attempt up to maxAttempts times while the failure is transient and the
// deadline of ctx allows another attempt. Delays double, have jitter, and are at least as
// long as the Retry-After that attempt returns.
func retry[T any](ctx context.Context, c *Client, attempt func() (T, time.Duration, *Error)) (T, error) {
	var none T
	delay := initialDelay
	for n := 1; ; n++ {
		result, retryAfter, failure := attempt()
		if failure == nil {
			return result, nil
		}
		if n == maxAttempts || !failure.isTransient() {
			return none, failure
		}
		wait := max(retryAfter, delay/2+rand.N(delay))
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return none, failure
		}
		c.cfg.Metrics.countRetry(c.cfg.Name, failure.Reason)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return none, failure
		}
		delay *= 2
	}
}

// parseRetryAfter parses a Retry-After header, which holds seconds or an HTTP date. It
// returns 0 for an absent or invalid header.
func parseRetryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 {
		return time.Duration(min(seconds, maxRetryAfter)) * time.Second
	}
	if t, err := http.ParseTime(header); err == nil && t.After(now) {
		return t.Sub(now)
	}
	return 0
}
