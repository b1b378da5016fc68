package query

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

type onlyClusters struct{}

// ForClusters returns a context in which a source with an endpoint per cluster asks
// those of these clusters, and of no others.
func ForClusters(ctx context.Context, names []string) context.Context {
	return context.WithValue(ctx, onlyClusters{}, names)
}

// clusters to ask: those that the caller wants, else all.
func (c *Client) clusters(ctx context.Context) ([]string, error) {
	if names, ok := ctx.Value(onlyClusters{}).([]string); ok {
		return names, nil
	}
	return c.cfg.Clusters(ctx)
}

// queryEach asks every cluster's own endpoint and joins the answers. An endpoint
// that fails is that cluster missing, no more; only when all fail it is an error.
func (c *Client) queryEach(ctx context.Context, expr string, at time.Time) (Answer, error) {
	clusters, err := c.clusters(ctx)
	if err != nil {
		return Answer{}, &Error{Reason: ReasonUnreachable, Message: clip(err.Error())}
	}
	var (
		mu    sync.Mutex
		all   = Answer{Failed: map[string]string{}}
		last  error
		start = time.Now()
		group errgroup.Group
	)
	group.SetLimit(c.cfg.MaxConcurrency)
	for _, cluster := range clusters {
		group.Go(func() error {
			one, err := c.queryCluster(ctx, cluster, expr, at)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all.Failed[cluster], last = err.Error(), err
				return nil
			}
			all.Samples = append(all.Samples, one.Samples...)
			all.Warnings = append(all.Warnings, one.Warnings...)
			all.Infos = append(all.Infos, one.Infos...)
			return nil
		})
	}
	_ = group.Wait()
	all.Duration = time.Since(start)
	if last != nil && len(all.Failed) == len(clusters) {
		first := slices.Min(slices.Collect(maps.Keys(all.Failed)))
		return Answer{}, &Error{Reason: ReasonOf(last), Message: clip(fmt.Sprintf("none of %d clusters' endpoints answered; %s: %s", len(clusters), first, all.Failed[first]))}
	}
	return all, nil
}

func (c *Client) queryCluster(ctx context.Context, cluster, expr string, at time.Time) (Answer, error) {
	base, err := Endpoint(c.cfg.URLTemplate, cluster)
	if err != nil {
		return Answer{}, &Error{Reason: ReasonUnreachable, Message: err.Error()}
	}
	answer, err := c.queryURL(ctx, base, expr, at)
	for i := range answer.Samples {
		if answer.Samples[i].Labels == nil {
			answer.Samples[i].Labels = map[string]string{}
		}
		answer.Samples[i].Labels[c.cfg.ClusterLabel] = cluster
	}
	return answer, err
}
