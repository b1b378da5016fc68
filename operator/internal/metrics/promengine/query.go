package promengine

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Query evaluates expr at the given time over the series of a storage. Native histograms
// are skipped, because no single number represents them.
func Query(ctx context.Context, engine *promql.Engine, series storage.Queryable, expr string, at time.Time) (query.Result, error) {
	q, err := engine.NewInstantQuery(ctx, series, nil, expr, at)
	if err != nil {
		return query.Result{}, err
	}
	defer q.Close()
	executed := q.Exec(ctx)
	if executed.Err != nil {
		return query.Result{}, executed.Err
	}
	var result query.Result
	result.Warnings, result.Infos = executed.Warnings.AsStrings(expr, 0, 0)
	switch v := executed.Value.(type) {
	case promql.Scalar:
		result.Samples = []query.Sample{{Value: v.V}}
	case promql.Vector:
		for _, sample := range v {
			if sample.H == nil {
				result.Samples = append(result.Samples, query.Sample{Labels: sample.Metric.Map(), Value: sample.F})
			}
		}
	default:
		return query.Result{}, fmt.Errorf("the query must return an instant vector, returns a %s", v.Type())
	}
	return result, nil
}
