package lint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// Rules of lint that need a server.
const (
	ruleNoSeries   = "no-series"
	ruleManySeries = "many-series"
)

// manySeries is the number of series of one selector above which a query is reported: each
// round reads all of them.
const manySeries = 10_000

// checkServer counts the series of every selector on a server. It returns an error if the
// server cannot be queried.
func (l *linter) checkServer(ctx context.Context, a *command.App, flags *prometheus.Flags) error {
	source, err := flags.Connect(ctx, a, nil, nil)
	if err != nil {
		return err
	}
	defer source.Client.Close()
	counts := map[string]seriesCount{}
	for _, q := range l.queries() {
		ignored := q.doc.ignoredRules(q.path)
		for _, s := range selectorsOf(q.expr) {
			text := s.String()
			n, known := counts[text]
			if !known {
				if n, err = countSeries(ctx, a, source, text); err != nil {
					return err
				}
				counts[text] = n
			}
			problem := promql.Problem{Pos: promql.PositionAt(q.text, s.offset)}
			rule := ""
			switch {
			case n.series == 0 && !n.incomplete:
				rule, problem.Message = ruleNoSeries, text+" matches no series on the server"
			case n.series > manySeries:
				rule, problem.Message = ruleManySeries, fmt.Sprintf("%s matches %.0f series on the server: record an aggregate with a recording rule", text, n.series)
			}
			if rule != "" && !slices.Contains(ignored, rule) {
				l.addProblem(q.doc, q.path, problem, rule)
			}
		}
	}
	return nil
}

// seriesCount is the number of series of a selector. If the response was incomplete, there can be
// more.
type seriesCount struct {
	series     float64
	incomplete bool
}

// countSeries counts the series of a selector, on all endpoints of the source.
func countSeries(ctx context.Context, a *command.App, s *prometheus.Source, selector string) (seriesCount, error) {
	result, err := s.Client.Query(ctx, "count("+selector+")", a.Now())
	if err != nil {
		return seriesCount{}, fmt.Errorf("count the series of %s: %w", selector, err)
	}
	prometheus.WarnIncomplete(a, "the series of "+selector, result)
	n := seriesCount{incomplete: prometheus.IsIncomplete(result)}
	for _, sample := range result.Samples {
		n.series += sample.Value
	}
	return n, nil
}

// selector is a selector of a query without variables and offsets.
type selector struct {
	parser.VectorSelector
	offset int // in the query
}

// selectorsOf returns the distinct selectors of an expression. A matcher whose value is a
// variable is left out.
func selectorsOf(e promql.Expr) []selector {
	var selectors []selector
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		n, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		s := selector{offset: int(n.PosRange.Start)}
		s.Name = n.Name
		for _, m := range n.LabelMatchers {
			if !strings.HasPrefix(m.Value, "$") {
				s.LabelMatchers = append(s.LabelMatchers, m)
			}
		}
		if !slices.ContainsFunc(selectors, func(other selector) bool { return other.String() == s.String() }) {
			selectors = append(selectors, s)
		}
		return nil
	})
	return selectors
}
