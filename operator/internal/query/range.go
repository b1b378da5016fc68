package query

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// MaxPointsPerSeries is the largest number of points per series that Prometheus returns
// for a range query.
const MaxPointsPerSeries = 11000

// RangeResult is the result of a range query.
type RangeResult struct {
	Series          []Series
	Warnings, Infos []string
}

// Series is one series of a range query.
type Series struct {
	Labels map[string]string
	Points []Point // sorted by time
}

// Point is a value at a time in milliseconds since the Unix epoch.
type Point struct {
	At    int64
	Value float64
}

// Range evaluates expr at start and at every step up to end, as Query does at each of
// these times. Every error is an *Error. If each cluster has its own endpoint, Warnings
// names the clusters whose endpoint failed.
func (c *Client) Range(ctx context.Context, expr string, start, end time.Time, step time.Duration) (RangeResult, error) {
	form := url.Values{
		"query": {expr}, "start": {formatTime(start)}, "end": {formatTime(end)},
		"step":    {strconv.FormatFloat(step.Seconds(), 'f', 3, 64)},
		"timeout": {c.timeoutParameter()},
	}
	queryRange := func(base string) (RangeResult, error) {
		return fetch(ctx, c, base, "/api/v1/query_range", form, func(status int, body []byte) (RangeResult, *Error) {
			result, failure := decodeRange(status, body, c.cfg.MaxSeries)
			result.Warnings, result.Infos = c.redact.texts(result.Warnings), c.redact.texts(result.Infos)
			return result, failure
		})
	}
	if c.cfg.URLTemplate != "" {
		return c.rangeClusters(ctx, start.Before(end), queryRange)
	}
	return queryRange(c.cfg.URL)
}

// CanSplitRange reports whether a range query that failed with err can succeed over a
// shorter range: the result is too large, or the expression can't be evaluated at some
// time of the range.
func CanSplitRange(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Reason == ReasonTooLarge || e.Reason == ReasonBadQuery && e.Status != http.StatusBadRequest)
}

// LabelValues returns the values of label in the series that match any of the selectors
// between start and end. The source must have one endpoint for all clusters.
func (c *Client) LabelValues(ctx context.Context, label string, selectors []string, start, end time.Time) ([]string, error) {
	form := url.Values{"match[]": selectors, "start": {formatTime(start)}, "end": {formatTime(end)}}
	return fetch(ctx, c, c.cfg.URL, "/api/v1/label/"+url.PathEscape(label)+"/values", form, func(status int, body []byte) ([]string, *Error) {
		resp, failure := decodeResponse[[]string](status, body)
		return resp.Data, failure
	})
}

// fetch sends form to path and decodes the response, within the same limits and with the
// same retries as an instant query.
func fetch[T any](ctx context.Context, c *Client, base, path string, form url.Values, decode func(status int, body []byte) (T, *Error)) (T, error) {
	var none T
	if err := c.acquire(ctx); err != nil {
		return none, err
	}
	defer c.release()
	endpoint, err := c.endpoint(base)
	if err != nil {
		return none, &Error{Reason: ReasonUnreachable, Message: clip(err.Error())}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	result, err := retry(ctx, c, func() (T, time.Duration, *Error) {
		resp, body, failure := post(ctx, endpoint, path, form) //nolint:bodyclose // api.Client reads and closes it
		if failure != nil {
			return none, 0, c.redact.failure(failure)
		}
		result, failure := decode(resp.StatusCode, body)
		return result, parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()), c.redact.failure(failure)
	})
	c.recordHealth(err)
	return result, err
}
