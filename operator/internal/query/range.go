package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// MaxPoints is how many points of one series Prometheus answers at most.
const MaxPoints = 11000

// History is what a source said of a range of time.
type History struct {
	Series          []Series
	Warnings, Infos []string
}

// Series is one series of a range query.
type Series struct {
	Labels map[string]string
	Points []Point // in order of time
}

// Point is a value at a time, in milliseconds since the Unix epoch.
type Point struct {
	At    int64
	Value float64
}

// Range evaluates expr at start and every step after it up to end, as Query would
// at each of these times. A failure is an *Error. Where each cluster has its own
// endpoint, those that don't answer are told in Warnings.
func (c *Client) Range(ctx context.Context, expr string, start, end time.Time, step time.Duration) (History, error) {
	form := url.Values{
		"query": {expr}, "start": {unix(start)}, "end": {unix(end)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', 3, 64)},
		"timeout": {strconv.FormatInt(c.cfg.Timeout.Milliseconds(), 10) + "ms"},
	}
	ask := func(base string) (History, error) { return tell(ctx, c, base, "/api/v1/query_range", form, c.history) }
	if c.cfg.URLTemplate != "" {
		return c.rangeEach(ctx, start.Before(end), ask)
	}
	return ask(c.cfg.URL)
}

// Divisible says that a shorter range may be answered: it is too large, or can't be
// evaluated at some time in it.
func Divisible(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Reason == ReasonTooLarge || e.Reason == ReasonBadQuery && e.Status != http.StatusBadRequest)
}

// LabelValues of the series that any of the selectors matched between start and end,
// from a source with one endpoint.
func (c *Client) LabelValues(ctx context.Context, label string, selectors []string, start, end time.Time) ([]string, error) {
	return tell(ctx, c, c.cfg.URL, "/api/v1/label/"+url.PathEscape(label)+"/values",
		url.Values{"match[]": selectors, "start": {unix(start)}, "end": {unix(end)}},
		func(status int, body []byte) ([]string, *Error) {
			e, failure := open[[]string](status, body)
			return e.Data, failure
		})
}

// tell asks one path, with turns, time-out and retries as for instant queries.
func tell[T any](ctx context.Context, c *Client, base, path string, form url.Values, decode func(status int, body []byte) (T, *Error)) (T, error) {
	var none T
	if err := c.wait(ctx); err != nil {
		return none, err
	}
	defer func() { <-c.turns }()
	endpoint, err := c.endpoint(base)
	if err != nil {
		return none, &Error{Reason: ReasonUnreachable, Message: clip(err.Error())}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answer, err := attempt(ctx, c, func() (T, time.Duration, *Error) {
		resp, body, failure := post(ctx, endpoint, path, form) //nolint:bodyclose // api.Client reads and closes it
		if failure != nil {
			return none, 0, c.hide.failure(failure)
		}
		answer, failure := decode(resp.StatusCode, body)
		return answer, retryAfter(resp.Header.Get("Retry-After"), time.Now()), c.hide.failure(failure)
	})
	c.note(err)
	return answer, err
}

// opened is an answer of Prometheus's API.
type opened[T any] struct {
	Status   string   `json:"status"`
	Data     T        `json:"data"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Infos    []string `json:"infos"`
}

func open[T any](status int, body []byte) (e opened[T], failure *Error) {
	err := json.Unmarshal(body, &e)
	switch {
	case status/100 != 2 && e.Status == "":
		return e, statusError(status, start(body))
	case status/100 != 2:
		return e, statusError(status, e.Error)
	case err != nil:
		return e, &Error{ReasonBadResponse, status, "the answer is not Prometheus's JSON: " + start(body)}
	case e.Status != "success":
		return e, statusError(http.StatusUnprocessableEntity, e.Error)
	}
	return e, nil
}

type matrix struct {
	ResultType string `json:"resultType"`
	Result     []struct {
		Metric map[string]string `json:"metric"`
		Values []Point           `json:"values"` // none where there are native histograms only
	} `json:"result"`
}

func (c *Client) history(status int, body []byte) (History, *Error) {
	e, failure := open[matrix](status, body)
	switch {
	case failure != nil:
		return History{}, failure
	case e.Data.ResultType != "matrix":
		return History{}, &Error{ReasonBadResponse, status, fmt.Sprintf("a range query must answer a matrix, answers a %q", e.Data.ResultType)}
	case len(e.Data.Result) > c.cfg.MaxSeries:
		return History{}, &Error{ReasonTooLarge, status, fmt.Sprintf("%d series, limits.maxSeries allows %d", len(e.Data.Result), c.cfg.MaxSeries)}
	}
	h := History{Warnings: c.hide.texts(e.Warnings), Infos: c.hide.texts(e.Infos)}
	for _, s := range e.Data.Result {
		h.Series = append(h.Series, Series{Labels: s.Metric, Points: s.Values})
	}
	return h, nil
}

// UnmarshalJSON reads [time, "value"].
func (p *Point) UnmarshalJSON(b []byte) error {
	var v point
	if err := v.UnmarshalJSON(b); err != nil {
		return err
	}
	at, err := strconv.ParseFloat(string(bytes.TrimSpace(b[1:bytes.IndexByte(b, ',')])), 64)
	if err != nil {
		return fmt.Errorf("a time must be a number, is %.40s", b)
	}
	p.At, p.Value = int64(at*1000+0.5), v.value
	return nil
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
