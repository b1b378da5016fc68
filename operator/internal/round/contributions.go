package round

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
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
	complete map[string]seriesCount // by expression
}

// seriesCount is the number of series behind a complete response.
type seriesCount struct {
	at        time.Time
	byCluster map[string]float64 // by the value of the cluster label
}

// query sends one query. From a partial response it removes every cluster with fewer
// contributing series than in the last complete response. Without Contributions, the
// response is returned as received.
func (c *Contributions) query(ctx context.Context, req Request, expr string) (query.Result, error) {
	response, err := req.Querier.Query(ctx, expr, req.Now)
	if c == nil || err != nil {
		return response, err
	}
	last, known := c.lastComplete(expr)
	if !response.Partial {
		if !known || req.Now.Sub(last.at) >= recountInterval {
			series, complete, err := countSeries(ctx, req, expr)
			switch {
			case err != nil:
				response.Infos = append(response.Infos, "a partial response to this query would be discarded: "+err.Error())
			case complete:
				c.record(expr, seriesCount{at: req.Now, byCluster: series})
			}
		}
		return response, nil
	}
	series, _, err := countSeries(ctx, req, expr)
	if err != nil {
		response.Warnings = append(response.Warnings, err.Error())
	}
	label, received := req.Clusters.Label(), len(response.Samples)
	response.Samples = slices.DeleteFunc(slices.Clone(response.Samples), func(s query.Sample) bool {
		value := s.Label(label)
		expected, known := last.byCluster[value]
		return !known || series[value] < expected
	})
	response.Warnings = append(response.Warnings, fmt.Sprintf("partial response: %d of %d series are discarded because data of their clusters may be missing",
		received-len(response.Samples), received))
	return response, nil
}

func (c *Contributions) lastComplete(expr string) (seriesCount, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, ok := c.complete[expr]
	return count, ok
}

func (c *Contributions) record(expr string, count seriesCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete == nil {
		c.complete = map[string]seriesCount{}
	}
	c.complete[expr] = count
}

// countSeries returns how many series of each cluster contribute to an expression, by
// the value of the cluster label. complete is false if a store did not respond.
func countSeries(ctx context.Context, req Request, expr string) (series map[string]float64, complete bool, err error) {
	label := req.Clusters.Label()
	counting, problems := promql.Contribution(expr, label)
	if problems != nil {
		return nil, false, fmt.Errorf("can't count the contributing series: %s", promql.Strings(problems))
	}
	response, err := req.Querier.Query(ctx, counting, req.Now)
	if err != nil {
		return nil, false, fmt.Errorf("can't count the contributing series: %w", err)
	}
	series = make(map[string]float64, len(response.Samples))
	for _, s := range response.Samples {
		series[s.Label(label)] = s.Value
	}
	return series, !response.Partial, nil
}
