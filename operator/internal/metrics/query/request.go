package query

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxAttempts  = 3
	initialDelay = 100 * time.Millisecond
	// maxRetryAfter bounds the delay in seconds that a Retry-After header can request.
	maxRetryAfter = 3600
)

// send sends an instant query once. retryAfter is the delay that the server requested
// before the next attempt.
func (c *Client) send(ctx context.Context, e *endpoint, expr string, at time.Time) (result Result, retryAfter time.Duration, failure *Error) {
	form := url.Values{"query": {expr}, "time": {formatTime(at)}, "timeout": {c.timeoutParameter()}}
	result, failure = request(ctx, c, e, http.MethodPost, "/api/v1/query", form, func(d *decoder, resp *http.Response) (Result, *Error) {
		retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
		return d.decodeInstant(resp)
	})
	return result, retryAfter, failure
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

// request sends form to a path of the endpoint and decodes the response. It repeats a POST
// request as a GET request if the server does not allow POST.
func request[T any](ctx context.Context, c *Client, e *endpoint, method, path string, form url.Values, decode func(*decoder, *http.Response) (T, *Error)) (T, *Error) {
	var none T
	resp, err := e.do(ctx, method, path, form)
	if err == nil && method == http.MethodPost && (resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusNotImplemented) {
		_ = resp.Body.Close()
		resp, err = e.do(ctx, http.MethodGet, path, form)
	}
	if err != nil {
		return none, e.redact.failure(transportError(err))
	}
	defer func() { _ = resp.Body.Close() }() // the rest of a body that exceeds a limit is not read
	d := c.decoder(ctx, e, resp)
	defer d.memory.release()
	result, failure := decode(d, resp)
	if failure != nil && failure.Reason == ReasonUnreachable && ctx.Err() != nil {
		failure = transportError(ctx.Err()) // the deadline closed the connection
	}
	return result, d.redact.failure(failure)
}

// do sends one request. After a nil error, the caller must close the body.
func (e *endpoint) do(ctx context.Context, method, path string, form url.Values) (*http.Response, error) {
	u, body := e.base.JoinPath(path), form.Encode()
	if method == http.MethodGet {
		u.RawQuery, body = body, ""
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return e.http.Do(req)
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
		wait := max(retryAfter, delay/2+c.jitter(delay))
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
