package metrics

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	exprs "plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// maxMemo is the number of results after which all are forgotten: queries for owners differ all the
// time.
const maxMemo = 10_000

// memo has the results of queries whose result does not depend on the time of their evaluation.
type memo map[memoKey]*memoized

type memoKey struct{ expr, hide string }

// memoized is the last result of a query.
type memoized struct {
	// metrics that the query selects. Nil for a query whose result depends on the time.
	metrics  []*metric
	versions []uint64
	at       int64
	// expiresAt is the time at which the first of the visible series leaves the lookback, unless a
	// new sample was added.
	expiresAt int64
	result    query.Result
}

// find returns the result of a query at a time, if nothing changed since it was remembered.
func (m memo) find(key memoKey, at int64) (query.Result, bool) {
	r := m[key]
	if r == nil || !r.isValid(at) {
		return query.Result{}, false
	}
	return r.result, true
}

// remember stores the result of a query.
func (m *memo) remember(t *table, key memoKey, at int64, result query.Result) {
	r := (*m)[key]
	if r == nil {
		if len(*m) >= maxMemo {
			*m = memo{}
		}
		r = newMemoized(t, key.expr)
		(*m)[key] = r
	}
	r.result = result
	r.evaluated(at)
}

func newMemoized(t *table, expr string) *memoized {
	r := &memoized{at: math.MaxInt64}
	for _, name := range timelessMetrics(expr) {
		r.metrics = append(r.metrics, t.metric(name))
	}
	r.versions = make([]uint64, len(r.metrics))
	return r
}

// isValid reports whether the last result is also that at another time:
//
//  1. The time is not before that of the last result.
//  2. No sample changed a value, or began or ended a series.
//  3. No series left the lookback for lack of new samples.
func (r *memoized) isValid(at int64) bool {
	if r.metrics == nil || at < r.at {
		return false
	}
	for i, metric := range r.metrics {
		if metric.version != r.versions[i] {
			return false
		}
	}
	if at >= r.expiresAt {
		r.expiresAt = r.expiry()
	}
	return at < r.expiresAt
}

// evaluated records the samples that a result at a time depends on.
func (r *memoized) evaluated(at int64) {
	r.at = at
	for i, metric := range r.metrics {
		r.versions[i], metric.queried = metric.version, max(metric.queried, at)
		if at < metric.newest { // the version is that of samples that the result does not depend on
			r.at = math.MaxInt64
		}
	}
	r.expiresAt = r.expiry()
}

// expiry returns when the first series that is visible at r.at leaves the lookback.
func (r *memoized) expiry() int64 {
	expiry := int64(math.MaxInt64)
	for _, m := range r.metrics {
		for _, s := range m.series {
			if !s.isStale && s.at > r.at-lookback {
				expiry = min(expiry, s.at+lookback)
			}
		}
	}
	return expiry
}

// timeFunctions depend on the time of the evaluation, or on the times of samples.
var timeFunctions = []string{"time", "timestamp", "minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year", "info"}

// timelessMetrics returns the names of the metrics that an expression selects. It returns nil if the
// result can change although no sample changes: because of the time, a range, an offset, or a selector
// without a name.
func timelessMetrics(expr string) []string {
	parsed, err := parser.NewParser(exprs.Options).ParseExpr(expr)
	if err != nil {
		return nil
	}
	var names []string
	timeless := true
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.MatrixSelector, *parser.SubqueryExpr, *parser.DurationExpr:
			timeless = false
		case *parser.Call:
			timeless = timeless && !slices.Contains(timeFunctions, n.Func.Name)
		case *parser.VectorSelector:
			name := ""
			for _, m := range n.LabelMatchers {
				if m.Name == "__name__" && m.Type == labels.MatchEqual {
					name = m.Value
				}
			}
			if name == "" || n.OriginalOffset != 0 || n.OriginalOffsetExpr != nil || n.Timestamp != nil || n.StartOrEnd != 0 || n.Anchored || n.Smoothed {
				timeless = false
			}
			names = append(names, name)
		}
		return nil
	})
	if !timeless {
		return nil
	}
	return names
}
