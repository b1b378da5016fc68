package querylint

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// longRange is the range of a selector above which a value outlives its samples for long: Prometheus returns a sample for
// 5 minutes in any case, and a missing score is kept for 5 minutes.
const longRange = 10 * time.Minute

// untilRead are functions whose range says how old a sample may be.
var untilRead = []string{"last_over_time", "present_over_time", "absent_over_time"}

// checkAgeOfSamples reports a query whose values outlive the samples, in a policy that does not check their age. A
// selector of a scraped series without a long range is no finding.
func (l *linter) checkAgeOfSamples(e parser.Expr) {
	if !l.options.AgeUnknown {
		return
	}
	var longest, recordedAt parser.Expr
	span := longRange
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			if kindOf(metricName(n)) == recorded && !isShipped(metricName(n)) && recordedAt == nil {
				recordedAt = n
			}
		case *parser.MatrixSelector:
			if n.Range > span && !isUntilRead(path) {
				longest, span = n, n.Range
			}
		case *parser.SubqueryExpr:
			if n.Range > span && !isUntilRead(path) {
				longest, span = n, n.Range
			}
		}
		return nil
	})
	switch {
	case recordedAt != nil:
		l.add(RuleFreshness, recordedAt, "the age of the samples behind a recorded series is not known: set freshness.query of the policy to the age of what the rule reads, or write # lint:ignore freshness if the values do not age")
	case longest != nil:
		hint := "such as time() - max by (" + cmp.Or(l.cluster, "cluster") + ") (timestamp(" + firstSelector(longest) + "))"
		if readsShipped(longest) { // timestamp() of a recorded series is always recent
			hint = "to the age of what the rule reads"
		}
		l.add(RuleFreshness, longest, "a cluster that stopped to report keeps its value for %s: set freshness.query of the policy, %s", model.Duration(span), hint)
	}
}

// isShipped reports whether the shipped rules record a series. It is absent minutes after its samples are.
func isShipped(metric string) bool {
	_, name, ok := strings.Cut(metric, ":")
	return ok && strings.HasPrefix(name, "plimsoll_")
}

// readsShipped reports whether an expression reads a series of the shipped rules.
func readsShipped(e parser.Expr) bool {
	return slices.ContainsFunc(parser.ExtractSelectors(e), func(matchers []*labels.Matcher) bool {
		return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && isShipped(m.Value) })
	})
}

// isUntilRead reports whether the innermost function around an expression bounds the age of samples.
func isUntilRead(path []parser.Node) bool {
	for _, node := range slices.Backward(path) {
		if n, ok := node.(*parser.Call); ok {
			return slices.Contains(untilRead, n.Func.Name)
		}
	}
	return false
}

// firstSelector returns the first selector of an expression without its offset.
func firstSelector(e parser.Expr) string {
	first := ""
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok && first == "" {
			first = (&parser.VectorSelector{Name: n.Name, LabelMatchers: n.LabelMatchers}).String()
		}
		return nil
	})
	return first
}
