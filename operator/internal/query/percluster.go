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
	var (
		mu    sync.Mutex
		all   Answer
		start = time.Now()
	)
	failed, err := c.each(ctx, func(cluster string) error {
		one, err := c.queryCluster(ctx, cluster, expr, at)
		mu.Lock()
		defer mu.Unlock()
		all.Samples = append(all.Samples, one.Samples...)
		all.Warnings = append(all.Warnings, one.Warnings...)
		all.Infos = append(all.Infos, one.Infos...)
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	all.Failed, all.Duration = failed, time.Since(start)
	return all, nil
}

// rangeEach is Range where each cluster has its own endpoint. One that fails is told
// in a warning, unless it may answer a part of the range.
func (c *Client) rangeEach(ctx context.Context, divisible bool, ask func(base string) (History, error)) (History, error) {
	var (
		mu      sync.Mutex
		all     History
		tooMuch error
	)
	failed, err := c.each(ctx, func(cluster string) error {
		base, err := Endpoint(c.cfg.URLTemplate, cluster)
		if err != nil {
			return &Error{Reason: ReasonUnreachable, Message: err.Error()}
		}
		one, err := ask(base)
		mu.Lock()
		defer mu.Unlock()
		for _, s := range one.Series {
			s.Labels = maps.Clone(s.Labels)
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[c.cfg.ClusterLabel] = cluster
			all.Series = append(all.Series, s)
		}
		all.Warnings = append(all.Warnings, one.Warnings...)
		all.Infos = append(all.Infos, one.Infos...)
		if divisible && Divisible(err) {
			tooMuch = err
		}
		return err
	})
	if tooMuch != nil {
		return History{}, tooMuch
	}
	for _, cluster := range slices.Sorted(maps.Keys(failed)) {
		all.Warnings = append(all.Warnings, cluster+": "+failed[cluster])
	}
	return all, err
}

// each asks every cluster's own endpoint, and returns why some failed. When all did,
// that is an error.
func (c *Client) each(ctx context.Context, ask func(cluster string) error) (failed map[string]string, err error) {
	clusters, err := c.clusters(ctx)
	if err != nil {
		return nil, &Error{Reason: ReasonUnreachable, Message: clip(err.Error())}
	}
	var (
		mu    sync.Mutex
		last  error
		group errgroup.Group
	)
	failed = map[string]string{}
	group.SetLimit(c.cfg.MaxConcurrency)
	for _, cluster := range clusters {
		group.Go(func() error {
			if err := ask(cluster); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[cluster], last = err.Error(), err
			}
			return nil
		})
	}
	_ = group.Wait()
	if last != nil && len(failed) == len(clusters) {
		first := slices.Min(slices.Collect(maps.Keys(failed)))
		var e *Error
		status := 0
		if errors.As(last, &e) {
			status = e.Status
		}
		return nil, &Error{Reason: ReasonOf(last), Status: status, Message: clip(fmt.Sprintf("none of %d clusters' endpoints answered; %s: %s", len(clusters), first, failed[first]))}
	}
	return failed, nil
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
