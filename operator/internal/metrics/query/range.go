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
	queryRange := func(ctx context.Context, e *endpoint) (RangeResult, error) {
		return fetch(ctx, c, e, "/api/v1/query_range", form, (*decoder).decodeRange)
	}
	if c.single == nil {
		return c.rangeClusters(ctx, start.Before(end), queryRange)
	}
	result, err := queryRange(ctx, c.single)
	c.recordHealth(err)
	return result, err
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
	values, err := fetch(ctx, c, c.single, "/api/v1/label/"+url.PathEscape(label)+"/values", form, (*decoder).decodeStrings)
	c.recordHealth(err)
	return values, err
}

// fetch sends form to path and decodes the response, within the same limits and with the
// same retries as an instant query.
func fetch[T any](ctx context.Context, c *Client, e *endpoint, path string, form url.Values, decode func(*decoder, *http.Response) (T, *Error)) (T, error) {
	var none T
	if err := e.acquire(ctx); err != nil {
		return none, err
	}
	defer e.release()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return retry(ctx, c, func() (T, time.Duration, *Error) {
		var retryAfter time.Duration
		result, failure := request(ctx, c, e, http.MethodPost, path, form, func(d *decoder, resp *http.Response) (T, *Error) {
			retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
			return decode(d, resp)
		})
		return result, retryAfter, failure
	})
}
