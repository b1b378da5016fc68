package query

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"golang.org/x/time/rate"
)

// Config configures a Client. All limits must be positive.
type Config struct {
	// Name of the source, used as a metric label.
	Name string
	// URL is the base URL of a source with one endpoint for all clusters.
	URL string
	// URLTemplate and Clusters are set if each cluster has its own endpoint. Clusters
	// returns the names to put into URLTemplate.
	URLTemplate string
	Clusters    func(ctx context.Context) ([]string, error)
	// ClusterLabel is set on samples from the endpoint of a single cluster.
	ClusterLabel string

	HTTP config.HTTPClientConfig
	// Parameters are added to the URL of every request.
	Parameters url.Values

	// Timeout of one query, including its retries.
	Timeout          time.Duration
	MaxConcurrency   int
	QueriesPerSecond int
	MaxResponseBytes int64
	MaxSeries        int

	// Metrics records durations and failures. Nil disables them.
	Metrics *Metrics
	// OnFailure is called when a query fails after a successful one. It may be nil.
	OnFailure func()
}

// Client queries one source. It is safe for concurrent use.
type Client struct {
	cfg   Config
	http  *http.Client
	slots chan struct{} // holds one element per query in flight
	rate  *rate.Limiter

	mu        sync.Mutex
	endpoints map[string]api.Client // by base URL
	health    Health
	partial   map[string]partialResult // by expression
	redact    redactor
}

// Health summarizes the most recent queries.
type Health struct {
	LastSuccess time.Time
	LastFailure time.Time
	LastError   string
	// Partial is the warning of a recent partial result. It is empty if all stores
	// responded.
	Partial string
}

// New returns a client. It sends no request. An error means that the configuration is
// invalid.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.URLTemplate != "":
		if _, err := ExpandURL(cfg.URLTemplate, "cluster"); err != nil {
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
		slots:     make(chan struct{}, cfg.MaxConcurrency),
		rate:      rate.NewLimiter(rate.Limit(cfg.QueriesPerSecond), cfg.QueriesPerSecond),
		endpoints: map[string]api.Client{},
		partial:   map[string]partialResult{},
		redact:    newRedactor(cfg.HTTP),
	}, nil
}

// Query implements Querier.
func (c *Client) Query(ctx context.Context, expr string, at time.Time) (Result, error) {
	var (
		result Result
		err    error
	)
	if c.cfg.URLTemplate != "" {
		result, err = c.queryClusters(ctx, expr, at)
	} else {
		result, err = c.queryEndpoint(ctx, c.cfg.URL, expr, at)
	}
	if err == nil {
		c.cfg.Metrics.countAnnotations(c.cfg.Name, result)
	}
	return result, err
}

// Health returns a summary of the most recent queries.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	health := c.health
	health.Partial = c.partialWarning(time.Now())
	return health
}

// Close closes idle connections. Queries in flight continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check verifies that the source evaluates a constant expression, and returns the version
// of the server. The version is empty if the server does not report its build information
// or if each cluster has its own endpoint. With one endpoint per cluster, Check sends
// nothing if a query succeeded within the last minute.
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
		return "", nil //nolint:nilerr // the query succeeded, and not every server has build information
	}
	return info.Version, nil
}

// queryEndpoint runs an instant query against one base URL, within all limits, and
// records its outcome.
func (c *Client) queryEndpoint(ctx context.Context, base, expr string, at time.Time) (Result, error) {
	if err := c.acquire(ctx); err != nil {
		return Result{}, err
	}
	defer c.release()
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	start := time.Now()
	result, err := retry(ctx, c, func() (Result, time.Duration, *Error) { return c.send(ctx, base, expr, at) })
	if err != nil {
		result, err = c.queryPartial(caller, base, expr, at, err)
	}
	result.Duration = time.Since(start)
	c.cfg.Metrics.observe(c.cfg.Name, result.Duration, err)
	c.recordHealth(err)
	c.recordPartial(expr, result, err)
	if err != nil {
		return Result{Duration: result.Duration}, err
	}
	return result, nil
}

// acquire waits for a free slot within MaxConcurrency and for the rate limit. After a
// nil error, the caller must call release.
func (c *Client) acquire(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return transportError(ctx.Err())
	}
	if err := c.rate.Wait(ctx); err != nil {
		c.release()
		return &Error{Reason: ReasonTimeout, Message: "the query waited too long for limits.queriesPerSecond"}
	}
	return nil
}

func (c *Client) release() { <-c.slots }

// recordHealth updates the health of the source with the outcome of a query. A rejected
// expression or an oversized result is not a fault of the source.
func (c *Client) recordHealth(err error) {
	c.mu.Lock()
	firstFailure := false
	switch reason := ReasonOf(err); {
	case err == nil || reason == ReasonBadQuery || reason == ReasonTooLarge:
		c.health.LastSuccess, c.health.LastError = time.Now(), ""
	case reason != ReasonCanceled:
		firstFailure = c.health.LastError == ""
		c.health.LastFailure, c.health.LastError = time.Now(), err.Error()
	}
	c.mu.Unlock()
	if firstFailure && c.cfg.OnFailure != nil {
		c.cfg.OnFailure()
	}
}
