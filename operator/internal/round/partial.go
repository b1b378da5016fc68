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

// recount is how often the ground of full answers is looked at.
const recount = 5 * time.Minute

// Contributions remembers how many series of each cluster a full answer rested on,
// so that a partial answer can be used for the clusters that are whole in it. The
// zero value is ready. It is safe for concurrent use.
type Contributions struct {
	mu   sync.Mutex
	full map[string]ground // by expression
}

type ground struct {
	at     time.Time
	series map[string]float64 // by the cluster's key
}

// ask asks one expression and, where the source may answer partially, takes out of
// a partial answer every cluster that is not known to be whole.
func (c *Contributions) ask(ctx context.Context, req Request, expr string) (query.Result, error) {
	answer, err := req.Querier.Query(ctx, expr, req.Now)
	if c == nil || err != nil {
		return answer, err
	}
	known, ok := c.known(expr)
	if !answer.Partial {
		if !ok || req.Now.Sub(known.at) >= recount {
			if series, whole := count(ctx, req, expr); whole {
				c.learn(expr, ground{at: req.Now, series: series})
			}
		}
		return answer, nil
	}
	series, _ := count(ctx, req, expr)
	before := len(answer.Samples)
	answer.Samples = slices.DeleteFunc(slices.Clone(answer.Samples), func(s query.Sample) bool {
		key := s.Labels[req.Info.ClusterLabel]
		full, ok := known.series[key]
		return !ok || series[key] < full
	})
	answer.Warnings = append(answer.Warnings, fmt.Sprintf("partial answer: %d of %d series are from clusters that are not whole, and left out",
		before-len(answer.Samples), before))
	return answer, nil
}

func (c *Contributions) known(expr string) (ground, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.full[expr]
	return g, ok
}

func (c *Contributions) learn(expr string, g ground) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		c.full = map[string]ground{}
	}
	c.full[expr] = g
}

// count asks how many series of each cluster an expression rests on. Whole says
// that every store answered.
func count(ctx context.Context, req Request, expr string) (series map[string]float64, whole bool) {
	counting, problems := promql.Contribution(expr, req.Info.ClusterLabel)
	if problems != nil {
		return nil, false
	}
	answer, err := req.Querier.Query(ctx, counting, req.Now)
	if err != nil {
		return nil, false
	}
	series = make(map[string]float64, len(answer.Samples))
	for _, s := range answer.Samples {
		series[s.Labels[req.Info.ClusterLabel]] = s.Value
	}
	return series, !answer.Partial
}
