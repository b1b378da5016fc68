package whatif

import (
	"context"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// memo sends each query once: jobs that are asked about one after the other see the same metrics.
type memo struct {
	query.Querier
	mu      sync.Mutex
	results map[string]func() (query.Result, error)
}

// Query implements query.Querier.
func (m *memo) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	m.mu.Lock()
	result := m.results[expr]
	if result == nil {
		result = sync.OnceValues(func() (query.Result, error) { return m.Querier.Query(ctx, expr, at) })
		m.results[expr] = result
	}
	m.mu.Unlock()
	return result()
}
