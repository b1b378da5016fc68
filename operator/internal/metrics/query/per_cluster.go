package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

type clustersKey struct{}

// ForClusters returns a context that restricts queries to the given clusters if each
// cluster has its own endpoint.
func ForClusters(ctx context.Context, names []string) context.Context {
	return context.WithValue(ctx, clustersKey{}, names)
}

// ClustersOf returns the clusters of ForClusters, or nil.
func ClustersOf(ctx context.Context) []string {
	names, _ := ctx.Value(clustersKey{}).([]string)
	return names
}

type allLabelsKey struct{}

// WithAllLabels returns a context in which all samples of a result keep all labels.
func WithAllLabels(ctx context.Context) context.Context {
	return context.WithValue(ctx, allLabelsKey{}, true)
}

func keepsAllLabels(ctx context.Context) bool { return ctx.Value(allLabelsKey{}) != nil }

// clusters returns the clusters to query: those of ForClusters, otherwise all.
func (c *Client) clusters(ctx context.Context) ([]string, error) {
	if names, ok := ctx.Value(clustersKey{}).([]string); ok {
		return names, nil
	}
	return c.cfg.Clusters(ctx)
}

// queryClusters queries the endpoint of every cluster and joins the results. Failed holds
// the clusters whose endpoint failed, was not reached, or lacks data. Only if all endpoints fail, an
// error is returned.
func (c *Client) queryClusters(ctx context.Context, expr string, at time.Time) (Result, error) {
	var (
		mu     sync.Mutex
		joined joinedResult
		start  = time.Now()
	)
	failed, err := c.forEachCluster(ctx, func(ctx context.Context, e *endpoint) error {
		result, err := c.queryEndpoint(ctx, e, expr, at)
		if err == nil && result.Partial {
			err = &Error{Reason: ReasonUnavailable, Message: "the response is partial: " + result.PartialReason}
			result = Result{}
		}
		mu.Lock()
		defer mu.Unlock()
		if tooLarge := joined.add(&result); tooLarge != nil {
			return tooLarge
		}
		return err
	})
	if err != nil {
		return Result{}, err
	}
	joined.Failed, joined.Duration = failed, time.Since(start)
	return joined.Result, nil
}

// joinedResult is the result of several endpoints.
type joinedResult struct {
	Result
	bytes int
}

// add joins a response, unless all together would exceed the limit. Smaller ones still fit then, so
// the clusters that fail depend on the order of the responses.
func (j *joinedResult) add(r *Result) error {
	n := r.decodedBytes()
	if j.bytes+n > maxDecodedBytes {
		return decodedTooLarge("the decoded results of all endpoints exceed")
	}
	j.bytes += n
	j.Samples = append(j.Samples, r.Samples...)
	j.Warnings = append(j.Warnings, r.Warnings...)
	j.Infos = append(j.Infos, r.Infos...)
	return nil
}

// rangeClusters runs a range query against the endpoint of every cluster and joins the
// results. Warnings names the clusters whose endpoint failed. If canSplit is true and a
// shorter range may succeed, an error is returned instead.
func (c *Client) rangeClusters(ctx context.Context, canSplit bool, queryRange func(context.Context, *endpoint) (RangeResult, error)) (RangeResult, error) {
	var (
		mu       sync.Mutex
		joined   RangeResult
		splitErr error
	)
	failed, err := c.forEachCluster(ctx, func(ctx context.Context, e *endpoint) error {
		result, err := queryRange(ctx, e)
		mu.Lock()
		defer mu.Unlock()
		joined.Series = append(joined.Series, result.Series...)
		joined.Warnings = append(joined.Warnings, result.Warnings...)
		joined.Infos = append(joined.Infos, result.Infos...)
		if canSplit && CanSplitRange(err) {
			splitErr = err
		}
		return err
	})
	c.recordHealth(err)
	if splitErr != nil {
		return RangeResult{}, splitErr
	}
	for _, cluster := range slices.Sorted(maps.Keys(failed)) {
		joined.Warnings = append(joined.Warnings, cluster+": "+failed[cluster])
	}
	return joined, err
}

// forEachCluster gives the endpoint of every cluster a turn and returns the error messages
// by cluster. If all clusters fail, forEachCluster returns an error.
func (c *Client) forEachCluster(ctx context.Context, do func(context.Context, *endpoint) error) (failed map[string]string, err error) {
	clusters, err := c.clusters(ctx)
	if err != nil {
		return nil, &Error{Reason: ReasonUnreachable, Message: Clip(err.Error())}
	}
	var (
		mu        sync.Mutex
		errs      = map[string]error{}
		endpoints []*endpoint
		group     errgroup.Group
	)
	for _, cluster := range clusters {
		e, err := c.endpointOf(ctx, cluster)
		if err != nil {
			errs[cluster] = &Error{Reason: ReasonUnreachable, Message: Clip(err.Error())}
			continue
		}
		endpoints = append(endpoints, e)
	}
	c.turns.announce(len(endpoints))
	group.SetLimit(maxTurns)
	for _, turn := range c.order(endpoints) {
		group.Go(func() error {
			if err := c.turns.take(ctx, turn.isFailing, func(ctx context.Context) error { return c.takeTurn(ctx, turn.endpoint, do) }); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[turn.endpoint.cluster] = err
			}
			return nil
		})
	}
	_ = group.Wait() // every function returns nil: one failure must not stop the others
	if len(errs) > 0 && len(errs) == len(clusters) {
		return nil, allFailed(errs)
	}
	failed = map[string]string{}
	for cluster, err := range errs {
		failed[cluster] = err.Error()
	}
	return failed, nil
}

// allFailed returns the error if the endpoints of all clusters failed. Its reason and
// status are those of the first cluster by name.
func allFailed(errs map[string]error) *Error {
	first := slices.Min(slices.Collect(maps.Keys(errs)))
	err := errs[first]
	var e *Error
	status := 0
	if errors.As(err, &e) {
		status = e.Status
	}
	message := fmt.Sprintf("the endpoints of all %d clusters failed; %s: %s", len(errs), first, err)
	return &Error{Reason: ReasonOf(err), Status: status, Message: Clip(message)}
}
