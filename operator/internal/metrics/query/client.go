package query

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/common/config"
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
	// HTTPFor returns the credentials and TLS settings of the endpoint of a cluster. If it
	// is nil, HTTP applies to every endpoint.
	HTTPFor func(ctx context.Context, cluster string) (config.HTTPClientConfig, error)
	// Transport replaces the network: by the proxy of an API server, or in tests and simulations.
	// Authentication and TLS settings then have no effect. Nil means HTTP.
	Transport http.RoundTripper
	// AllowLoopback permits connections to loopback addresses. Link-local and metadata
	// addresses are never permitted.
	AllowLoopback bool
	// AllLabels keeps all labels of all samples. Otherwise, samples after the first few
	// have only ClusterLabel.
	AllLabels bool
	// Parameters are added to the URL of every request.
	Parameters url.Values

	// Timeout of one query, including its retries.
	Timeout time.Duration
	// MaxConcurrency and QueriesPerSecond limit the load on each endpoint.
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
	turns turns
	// jitter spreads the retries of several clients over a duration.
	jitter func(time.Duration) time.Duration

	mu      sync.Mutex
	http    *http.Client         // for cfg.HTTP
	single  *endpoint            // nil if each cluster has its own endpoint
	cluster map[string]*endpoint // by cluster
	health  Health
	partial map[partialKey]partialResult
}

// Health summarizes the most recent queries.
type Health struct {
	LastSuccess time.Time
	LastFailure time.Time
	LastError   string
	// Partial is the reason of a recent partial result. It is empty if all stores
	// responded.
	Partial string
}

// New returns a client. It sends no request. An error means that the configuration is
// invalid.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, turns: newTurns(), jitter: rand.N[time.Duration], cluster: map[string]*endpoint{}, partial: map[partialKey]partialResult{}}
	if cfg.Transport != nil { // a simulation repeats exactly
		c.jitter = func(d time.Duration) time.Duration { return d / 2 }
	}
	base := cfg.URL
	if cfg.URLTemplate != "" {
		var err error
		if base, err = ExpandURL(cfg.URLTemplate, "cluster"); err != nil {
			return nil, err
		}
	}
	var err error
	if c.http, err = newHTTPClient(cfg, cfg.HTTP); err != nil {
		return nil, err
	}
	endpoint, err := newEndpoint(cfg, base, c.http, cfg.HTTP)
	if err != nil {
		return nil, err
	}
	if cfg.URLTemplate == "" {
		c.single = endpoint
	}
	return c, nil
}

// Query implements Querier.
func (c *Client) Query(ctx context.Context, expr string, at time.Time) (Result, error) {
	var (
		result Result
		err    error
	)
	if c.single == nil {
		result, err = c.queryClusters(ctx, expr, at)
	} else {
		result, err = c.queryEndpoint(ctx, c.single, expr, at)
	}
	c.recordHealth(err)
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
	health.Partial = c.partialReason(time.Now())
	return health
}

// Close closes idle connections. Queries in flight continue.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.http.CloseIdleConnections()
	for _, e := range c.cluster {
		e.http.CloseIdleConnections()
	}
}

// Check verifies that the source evaluates a constant expression, and returns the version
// of the server. The version is empty if the server does not report its build information
// or if each cluster has its own endpoint. With one endpoint per cluster, Check sends
// nothing if a query succeeded within the last minute, and forgets deleted clusters.
func (c *Client) Check(ctx context.Context) (version string, err error) {
	if c.single == nil {
		c.forgetOthers(ctx)
		if time.Since(c.Health().LastSuccess) < time.Minute {
			return "", nil
		}
	}
	if _, err := c.Query(ctx, "vector(1)", time.Now()); err != nil || c.single == nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	version, failure := request(ctx, c, c.single, http.MethodGet, "/api/v1/status/buildinfo", nil, (*decoder).decodeVersion)
	if failure != nil {
		return "", nil // the query succeeded, and not every server has build information
	}
	if len(version) > 64 {
		version = ""
	}
	return version, nil
}

// queryEndpoint runs an instant query against one endpoint, within all limits.
func (c *Client) queryEndpoint(ctx context.Context, e *endpoint, expr string, at time.Time) (Result, error) {
	if err := e.acquire(ctx); err != nil {
		return Result{}, err
	}
	defer e.release()
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	start := time.Now()
	result, err := retry(ctx, c, func() (Result, time.Duration, *Error) { return c.send(ctx, e, expr, at) })
	if err != nil {
		result, err = c.queryPartial(caller, e, expr, at, err)
	}
	result.Duration = time.Since(start)
	c.cfg.Metrics.observe(c.cfg.Name, result.Duration, err)
	c.recordPartial(partialKey{e.cluster, expr}, result, err)
	if err != nil {
		return Result{Duration: result.Duration}, err
	}
	return result, nil
}

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
