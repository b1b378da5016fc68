package query

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/prometheus/common/config"
	"golang.org/x/time/rate"
)

// endpoint is one server of a source, with its own limits.
type endpoint struct {
	base    *url.URL
	cluster string // empty if the endpoint serves all clusters
	http    *http.Client
	auth    config.HTTPClientConfig
	redact  redactor
	slots   chan struct{} // holds one element per query in flight
	rate    *rate.Limiter

	// lastTurn and failing are the time and the outcome of the last query. Client.mu
	// guards them.
	lastTurn time.Time
	failing  bool
}

// newEndpoint returns the endpoint of a base URL. auth is the configuration of client.
func newEndpoint(cfg Config, base string, client *http.Client, auth config.HTTPClientConfig) (*endpoint, error) {
	if err := CheckURL(base); err != nil {
		return nil, err
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	return &endpoint{
		base: u, http: client, auth: auth, redact: newRedactor(auth),
		slots: make(chan struct{}, cfg.MaxConcurrency),
		rate:  rate.NewLimiter(rate.Limit(cfg.QueriesPerSecond), cfg.QueriesPerSecond),
	}, nil
}

// acquire waits for a free slot within MaxConcurrency and for the rate limit. After a
// nil error, the caller must call release.
func (e *endpoint) acquire(ctx context.Context) error {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return waitedTooLong(ctx, "advanced.maxConcurrency")
	}
	if err := e.rate.Wait(ctx); err != nil {
		e.release()
		return waitedTooLong(ctx, "advanced.queriesPerSecond")
	}
	return nil
}

// waitedTooLong is the error of a query that the limit kept until its deadline, or until its caller
// canceled it.
func waitedTooLong(ctx context.Context, limit string) *Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return transportError(ctx.Err())
	}
	return &Error{Reason: ReasonTimeout, Message: "the query waited too long for " + limit}
}

func (e *endpoint) release() { <-e.slots }

// endpointOf returns the endpoint of a cluster. If the credentials of the cluster changed,
// the endpoint has a new HTTP client.
func (c *Client) endpointOf(ctx context.Context, cluster string) (*endpoint, error) {
	auth, client := c.cfg.HTTP, c.http
	if c.cfg.HTTPFor != nil {
		var err error
		if auth, err = c.cfg.HTTPFor(ctx, cluster); err != nil {
			return nil, err
		}
		client = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.cluster[cluster]
	if current != nil && (c.cfg.HTTPFor == nil || reflect.DeepEqual(current.auth, auth)) {
		return current, nil
	}
	base, err := ExpandURL(c.cfg.URLTemplate, cluster)
	if err != nil {
		return nil, err
	}
	if client == nil {
		if client, err = newHTTPClient(c.cfg, auth); err != nil {
			return nil, err
		}
	}
	e, err := newEndpoint(c.cfg, base, client, auth)
	if err != nil {
		return nil, err
	}
	e.cluster = cluster
	if current != nil {
		current.http.CloseIdleConnections()
		e.lastTurn = current.lastTurn
	}
	c.cluster[cluster] = e
	return e, nil
}

// forgetOthers forgets the endpoints of clusters that the source no longer has.
func (c *Client) forgetOthers(ctx context.Context) {
	names, err := c.cfg.Clusters(ctx)
	if err != nil {
		return // the queries report it
	}
	exists := map[string]bool{}
	for _, name := range names {
		exists[name] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.cluster, func(cluster string, e *endpoint) bool {
		if exists[cluster] {
			return false
		}
		if e.http != c.http {
			e.http.CloseIdleConnections()
		}
		return true
	})
}
