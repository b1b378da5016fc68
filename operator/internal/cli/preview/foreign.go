package preview

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
)

// responseRecorder is a Querier that keeps the samples of the last response to each query.
type responseRecorder struct {
	query.Querier

	mu      sync.Mutex
	samples map[string][]query.Sample // by expression
}

// Query implements query.Querier.
func (r *responseRecorder) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	result, err := r.Querier.Query(ctx, expr, at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.samples == nil {
		r.samples = map[string][]query.Sample{}
	}
	r.samples[expr] = result.Samples
	return result, err
}

// writeForeignSeries writes for each query how many of its series name none of the scored
// clusters, and which clusters they name. The error of a query that matches no cluster shows them
// as well.
func (r *responseRecorder) writeForeignSeries(w io.Writer, report *round.Report, clusters *clustermap.Mapping) {
	for _, q := range evaluation.Queries(report) {
		foreign := clusters.Group(r.samples[q.Query]).Unknown
		if len(foreign) == 0 || q.NoMatch != nil {
			continue
		}
		var named []string
		for _, s := range foreign {
			named = append(named, fmt.Sprintf("%s=%q", clusters.Label(), s.Label(clusters.Label())))
		}
		slices.Sort(named)
		_, _ = fmt.Fprintf(w, "info: %s: %d series match no scored cluster: %s\n", q.Name, len(foreign), format.Abbreviate(slices.Compact(named)))
	}
}
