package query

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"golang.org/x/time/rate"
)

// Config of a client. Limits must be positive.
type Config struct {
	Name string // of the source, for metrics
	URL  string // base URL, when one endpoint answers for all
	// URLTemplate and Clusters are set when each cluster has its own endpoint.
	URLTemplate string
	Clusters    func(ctx context.Context) ([]string, error)
	// ClusterLabel is set on the samples of a cluster's own endpoint.
	ClusterLabel string

	HTTP       config.HTTPClientConfig
	Parameters url.Values // added to every request's URL

	Timeout          time.Duration // of one question, with its retries
	MaxConcurrency   int
	QueriesPerSecond int
	MaxResponseBytes int64
	MaxSeries        int

	Metrics *Metrics // nil: not measured
	// Failing is called when a question fails after one that was answered; nil: nobody.
	Failing func()
}

// Client asks one source. It is safe for concurrent use.
type Client struct {
	cfg   Config
	http  *http.Client
	turns chan struct{}
	rate  *rate.Limiter

	mu        sync.Mutex
	endpoints map[string]api.Client
	health    Health
	partial   map[string]partialAnswer // by expression
	hide      hider
}

// Health is what the last questions showed.
type Health struct {
	LastSuccess time.Time
	LastFailure time.Time
	LastError   string
	// Partial is why a current answer is not from all stores, empty when all are.
	Partial string
}

// New makes a client. It asks nothing yet: an error means that the configuration
// can't be used.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.URLTemplate != "":
		if _, err := Endpoint(cfg.URLTemplate, "cluster"); err != nil {
			return nil, err
		}
	default:
		if err := CheckURL(cfg.URL); err != nil {
			return nil, err
		}
	}
	httpClient, err := newHTTPClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{
		cfg:       cfg,
		http:      httpClient,
		turns:     make(chan struct{}, cfg.MaxConcurrency),
		rate:      rate.NewLimiter(rate.Limit(cfg.QueriesPerSecond), cfg.QueriesPerSecond),
		endpoints: map[string]api.Client{},
		partial:   map[string]partialAnswer{},
		hide:      newHider(cfg.HTTP),
	}, nil
}

// Query implements Querier.
func (c *Client) Query(ctx context.Context, expr string, at time.Time) (Answer, error) {
	var (
		answer Answer
		err    error
	)
	if c.cfg.URLTemplate != "" {
		answer, err = c.queryEach(ctx, expr, at)
	} else {
		answer, err = c.queryURL(ctx, c.cfg.URL, expr, at)
	}
	if err == nil {
		c.cfg.Metrics.annotations(c.cfg.Name, answer)
	}
	return answer, err
}

// Health returns what the last questions showed.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	health := c.health
	health.Partial = c.currentPartial(time.Now())
	return health
}

// Close frees idle connections. Questions under way go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check asks a constant, as a question of a policy would be asked, and for the
// server's version, which is empty where there is an endpoint per cluster and on
// servers that don't tell. Many endpoints are not asked while policies do.
func (c *Client) Check(ctx context.Context) (version string, err error) {
	if c.cfg.URLTemplate != "" && time.Since(c.Health().LastSuccess) < time.Minute {
		return "", nil
	}
	if _, err := c.Query(ctx, "vector(1)", time.Now()); err != nil || c.cfg.URLTemplate != "" {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	endpoint, err := c.endpoint(c.cfg.URL)
	if err != nil {
		return "", err
	}
	info, err := promv1.NewAPI(endpoint).Buildinfo(ctx)
	if err != nil {
		return "", nil //nolint:nilerr // not every server has build information
	}
	return info.Version, nil
}

func (c *Client) queryURL(ctx context.Context, base, expr string, at time.Time) (Answer, error) {
	if err := c.wait(ctx); err != nil {
		return Answer{}, err
	}
	defer func() { <-c.turns }()
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	start := time.Now()
	answer, err := c.retry(ctx, base, expr, at)
	if err != nil {
		answer, err = c.askPartial(caller, base, expr, at, err)
	}
	answer.Duration = time.Since(start)
	c.cfg.Metrics.observe(c.cfg.Name, answer.Duration, err)
	c.note(err)
	c.notePartial(expr, answer, err)
	if err != nil {
		return Answer{Duration: answer.Duration}, err
	}
	return answer, nil
}

// wait takes a turn within concurrency and rate.
func (c *Client) wait(ctx context.Context) error {
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return transportError(ctx.Err())
	}
	if err := c.rate.Wait(ctx); err != nil {
		<-c.turns
		return &Error{Reason: ReasonTimeout, Message: "waited too long for limits.queriesPerSecond"}
	}
	return nil
}

// ask sends the question once. After is when the server allows the next try.
func (c *Client) ask(ctx context.Context, base, expr string, at time.Time) (answer Answer, after time.Duration, failure *Error) {
	endpoint, err := c.endpoint(base)
	if err != nil {
		return Answer{}, 0, &Error{Reason: ReasonUnreachable, Message: clip(err.Error())}
	}
	form := url.Values{
		"query":   {expr},
		"time":    {unix(at)},
		"timeout": {strconv.FormatInt(c.cfg.Timeout.Milliseconds(), 10) + "ms"},
	}
	resp, body, failure := post(ctx, endpoint, "/api/v1/query", form) //nolint:bodyclose // api.Client reads and closes it
	if failure != nil {
		return Answer{}, 0, c.hide.failure(failure)
	}
	answer, failure = decode(resp.StatusCode, body, c.cfg.MaxSeries)
	answer.Warnings, answer.Infos = c.hide.texts(answer.Warnings), c.hide.texts(answer.Infos)
	return answer, retryAfter(resp.Header.Get("Retry-After"), time.Now()), c.hide.failure(failure)
}

// post, and get where the server does not let post.
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

// note keeps the source's health. A refused expression and one that asks too much
// are no fault of the source.
func (c *Client) note(err error) {
	c.mu.Lock()
	turns := false
	switch reason := ReasonOf(err); {
	case err == nil || reason == ReasonBadQuery || reason == ReasonTooLarge:
		c.health.LastSuccess, c.health.LastError = time.Now(), ""
	case reason != ReasonCanceled:
		turns = c.health.LastError == ""
		c.health.LastFailure, c.health.LastError = time.Now(), err.Error()
	}
	c.mu.Unlock()
	if turns && c.cfg.Failing != nil {
		c.cfg.Failing()
	}
}
