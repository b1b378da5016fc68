package round

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// recountInterval is how often the series behind complete responses are counted.
const recountInterval = 5 * time.Minute

// Contributions remembers how many series of each cluster contributed to the last
// complete response of each query.
//
// Scenario: Thanos sums free devices over the stores of a cluster. One store fails,
// the response is partial, and the sum is too small. The number of contributing series
// has dropped as well, so the round discards the value of this cluster and keeps the
// others.
//
// The zero value is ready to use. Contributions is safe for concurrent use.
type Contributions struct {
	mu       sync.Mutex
	complete map[string]seriesCount // by key of the expression
}

// seriesCount is the number of series behind a complete response.
type seriesCount struct {
	at        time.Time
	byCluster map[string]int64 // by the name of the cluster
}

// RestoreContributions returns the contributions that an earlier process published. They
// have no time, so that the next complete response replaces them.
//
// Without them, an operator that restarts while a store is gone could not distinguish complete
// clusters from incomplete ones, and all scores would end with their keep time.
func RestoreContributions(seeds []score.Seed) *Contributions {
	c := &Contributions{complete: map[string]seriesCount{}}
	for _, seed := range seeds {
		for key, n := range seed.Series {
			if c.complete[key].byCluster == nil {
				c.complete[key] = seriesCount{byCluster: map[string]int64{}}
			}
			c.complete[key].byCluster[seed.Cluster] = n
		}
	}
	return c
}

// ByCluster returns the numbers of series behind the last complete responses to the
// queries of a policy: by cluster, and then by key of the query.
func (c *Contributions) ByCluster(spec *v1alpha1.ScoringPolicySpec) map[string]map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]map[string]int64{}
	for _, expr := range Expressions(spec) {
		key := keyOf(expr)
		for cluster, n := range c.complete[key].byCluster {
			if all[cluster] == nil {
				all[cluster] = map[string]int64{}
			}
			all[cluster][key] = n
		}
	}
	return all
}

// keyOf returns a short name of an expression.
func keyOf(expr string) string {
	sum := sha256.Sum256([]byte(expr))
	return hex.EncodeToString(sum[:4])
}

// query sends one query. From a partial response it removes every cluster with fewer
// contributing series than in the last complete response. Without Contributions, it removes
// all: nothing is known about the clusters.
func (c *Contributions) query(ctx context.Context, req Request, expr string) (query.Result, error) {
	response, err := req.Querier.Query(ctx, expr, req.Now)
	switch {
	case err != nil, c == nil && !response.Partial:
		return response, err
	case c == nil:
		return keepSamples(response, func(query.Sample) bool { return false }), nil
	}
	last, known := c.lastComplete(expr)
	if !response.Partial {
		if !known || req.Now.Sub(last.at) >= recountInterval {
			series, counted, err := countSeries(ctx, req, expr)
			switch {
			case err != nil:
				response.Infos = append(response.Infos, "a partial response to this query would be discarded: "+err.Error())
			case !counted.Partial:
				c.record(expr, seriesCount{at: req.Now, byCluster: series})
			}
		}
		return response, nil
	}
	series, counted, err := countSeries(ctx, req, expr)
	switch {
	case err != nil:
		response.Warnings = append(response.Warnings, err.Error())
	case !counted.Partial, !response.LacksAtMost(&counted):
		// A store responds again, and another may have failed meanwhile. Its series were counted,
		// but are not in the values.
		series = nil
	}
	label := req.Clusters.Label()
	return keepSamples(response, func(s query.Sample) bool {
		cluster, _ := req.Clusters.Cluster(s.Label(label))
		expected, known := last.byCluster[cluster]
		return known && series[cluster] >= expected
	}), nil
}

// keepSamples returns a partial response with the samples that are complete.
func keepSamples(response query.Result, isComplete func(query.Sample) bool) query.Result {
	received := len(response.Samples)
	response.Samples = slices.DeleteFunc(slices.Clone(response.Samples), func(s query.Sample) bool { return !isComplete(s) })
	response.Warnings = append(response.Warnings, fmt.Sprintf("partial response: %d of %d series are discarded because data of their clusters may be missing",
		received-len(response.Samples), received))
	return response
}

// Forget drops the counts of the named clusters.
func (c *Contributions) Forget(clusters []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range c.complete {
		for _, name := range clusters {
			delete(count.byCluster, name)
		}
	}
}

func (c *Contributions) lastComplete(expr string) (seriesCount, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, ok := c.complete[keyOf(expr)]
	return count, ok
}

func (c *Contributions) record(expr string, count seriesCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete == nil {
		c.complete = map[string]seriesCount{}
	}
	c.complete[keyOf(expr)] = count
}

// countSeries returns how many series of each cluster contribute to an expression, and the
// response that says so.
func countSeries(ctx context.Context, req Request, expr string) (series map[string]int64, response query.Result, err error) {
	label := req.Clusters.Label()
	counting, problems := promql.Contribution(expr, label)
	if problems != nil {
		return nil, query.Result{}, fmt.Errorf("can't count the contributing series: %s", promql.Strings(problems))
	}
	response, err = req.Querier.Query(ctx, counting, req.Now)
	if err != nil {
		return nil, query.Result{}, fmt.Errorf("can't count the contributing series: %w", err)
	}
	series = make(map[string]int64, len(response.Samples))
	for _, s := range response.Samples {
		if cluster, ok := req.Clusters.Cluster(s.Label(label)); ok {
			series[cluster] = int64(s.Value)
		}
	}
	return series, response, nil
}
