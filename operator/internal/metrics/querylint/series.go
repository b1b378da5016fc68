package querylint

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// rates are the functions that need a counter.
var rates = []string{"rate", "irate", "increase"}

// checkSelector checks one selector. path are the expressions around it, the outermost
// first.
func (l *linter) checkSelector(n *parser.VectorSelector, path []parser.Node) {
	l.checkEvaluationTime(n, n.OriginalOffset, n.Timestamp)
	if i := slices.IndexFunc(n.LabelMatchers, isPlaceholder); i >= 0 {
		l.add(RulePlaceholder, n, "replace %s by a value that your series have: now it matches none", n.LabelMatchers[i])
	}
	name := metricName(n)
	if name == "" {
		if !slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == model.MetricNameLabel && m.Type == labels.MatchRegexp && m.Value != ".+" && m.Value != ".*"
		}) {
			l.add(RuleEverySeries, n, "reads the series of every metric: name the metric")
		}
		return
	}
	if i := slices.IndexFunc(n.LabelMatchers, l.selectsCluster); i >= 0 && l.isOneCluster {
		l.add(RuleOneCluster, n, "reads %s only: the other clusters have no series", n.LabelMatchers[i].Value)
	}
	if kindOf(name) == counter && !usesGrowth(n, path) {
		l.add(RuleRawCounter, n, "%s only grows until its process restarts: use rate(%s[5m]) or increase(%s[1h])", name, name, name)
	}
}

// isPlaceholder reports whether a matcher has the text that messages and documents have instead of a value. The regular
// expression ... matches any three characters.
func isPlaceholder(m *labels.Matcher) bool {
	switch m.Value {
	case "...":
		return m.Type == labels.MatchEqual
	case "…":
		return m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp
	}
	return m.Type == labels.MatchEqual && m.Name == "job" && m.Value == "JOB"
}

// selectsCluster reports whether a matcher selects one cluster by name.
func (l *linter) selectsCluster(m *labels.Matcher) bool {
	return m.Name == l.cluster && m.Type == labels.MatchEqual && plainName.MatchString(m.Value)
}

// plainName is the name of a cluster, and not a variable.
var plainName = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*$`)

// checkEvaluationTime reports a selector or subquery that reads another time than that of the
// evaluation or before it. at is the time of @ in milliseconds, or nil.
func (l *linter) checkEvaluationTime(n parser.Expr, offset time.Duration, at *int64) {
	switch {
	case at != nil:
		l.add(RuleEvaluationTime, n, "reads the samples of a fixed time (@): the result never changes")
	case offset < 0:
		l.add(RuleEvaluationTime, n, "reads the future, where there are no samples: the offset must not be negative")
	}
}

// checkQuantile reports a quantile outside of 0..1, whose result is infinite.
func (l *linter) checkQuantile(quantile parser.Expr) {
	if n, ok := unwrap(quantile).(*parser.NumberLiteral); ok && (n.Val < 0 || n.Val > 1) {
		l.add(RuleQuantile, quantile, "the quantile must be between 0 and 1, such as 0.9: the result of another one is infinite")
	}
}

// checkBuckets checks the arguments of functions for quantiles.
func (l *linter) checkBuckets(n *parser.Call) {
	switch n.Func.Name {
	case "quantile_over_time":
		l.checkQuantile(n.Args[0])
	case "histogram_quantile":
		l.checkQuantile(n.Args[0])
		if !l.of(n.Args[1]).may("le") && readsBuckets(n.Args[1]) {
			l.add(RuleQuantile, n.Args[1], "the buckets have lost the label le, and the result is empty: aggregate them by (%s)", strings.Join(append(l.keptLabels(), "le"), ", "))
		}
	}
}

// readsBuckets reports whether an expression reads a metric that is named as the buckets of a
// classic histogram.
func readsBuckets(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		n, ok := node.(*parser.VectorSelector)
		found = found || ok && strings.HasSuffix(metricName(n), "_bucket")
		return nil
	})
	return found
}

// countSafe are the functions and aggregations that do not use the value of a counter, or
// use it correctly.
var countSafe = []string{
	"rate", "irate", "increase", "resets", "changes", "timestamp", "absent", "absent_over_time", "count_over_time", "present_over_time", "delta", "idelta",
	"histogram_quantile",
}

// usesGrowth reports whether the expression around a counter uses its growth, its presence
// or the ratio of two counters, instead of its value.
func usesGrowth(selector parser.Node, path []parser.Node) bool {
	inner := selector
	for _, node := range slices.Backward(path) {
		switch n := node.(type) {
		case *parser.Call:
			if slices.Contains(countSafe, n.Func.Name) {
				return true
			}
		case *parser.AggregateExpr:
			if n.Op == parser.COUNT || n.Op == parser.GROUP {
				return true
			}
		case *parser.BinaryExpr:
			switch {
			case n.Op == parser.MUL && (isZero(n.LHS) || isZero(n.RHS)): // a fallback, as in or 0 * x_total
				return true
			case n.Op == parser.SUB && isVector(n.LHS) && isVector(n.RHS), n.Op == parser.DIV && readsCounter(n.LHS) && readsCounter(n.RHS):
				return true
			case (n.Op == parser.LAND || n.Op == parser.LUNLESS) && n.RHS == inner:
				return true
			}
		}
		inner = node
	}
	return false
}

func isZero(e parser.Expr) bool {
	n, ok := unwrap(e).(*parser.NumberLiteral)
	return ok && n.Val == 0
}

func readsCounter(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			found = found || kindOf(metricName(n)) == counter
		}
		return nil
	})
	return found
}

// isInHistogramFunction reports whether the expression is part of an argument of a function for
// histograms. path are the expressions around it.
func isInHistogramFunction(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(node parser.Node) bool {
		call, ok := node.(*parser.Call)
		return ok && strings.HasPrefix(call.Func.Name, "histogram_")
	})
}

// checkCall checks the argument of rate, irate and increase. The name of a native histogram
// has no suffix and looks like that of a gauge. path are the expressions around the call.
func (l *linter) checkCall(n *parser.Call, path []parser.Node) {
	if n.Func.Name == "delta" || n.Func.Name == "idelta" {
		if m, ok := unwrap(n.Args[0]).(*parser.MatrixSelector); ok && kindOf(metricName(m.VectorSelector.(*parser.VectorSelector))) == counter { //nolint:forcetypeassert // always
			l.add(RuleRawCounter, n, "%s of a counter is negative after a restart: use increase", n.Func.Name)
		}
	}
	if !slices.Contains(rates, n.Func.Name) {
		return
	}
	var values parser.Expr
	switch argument := unwrap(n.Args[0]).(type) {
	case *parser.MatrixSelector:
		values = argument.VectorSelector
	case *parser.SubqueryExpr:
		values = unwrap(argument.Expr)
	}
	selector, ok := values.(*parser.VectorSelector)
	if !ok {
		if values != nil && sumsCounters(values) {
			l.add(RuleRateOfRecorded, n, "%[1]s over a sum of counters counts the restart of one process as growth of all: write sum by (...) (%[1]s(...))", n.Func.Name)
		}
		return
	}
	switch name := metricName(selector); kindOf(name) { //nolint:exhaustive // the others may be counters
	case gauge:
		if isInHistogramFunction(path) {
			return
		}
		l.add(RuleRateOfGauge, n, "%s is a gauge, and %s takes every decrease for a restart: use avg_over_time or deriv", name, n.Func.Name)
	case recorded:
		if !strings.HasSuffix(name, "_total") {
			l.add(RuleRateOfRecorded, n, "%s is recorded: %s over aggregated counters counts a restart as growth. Record the rate instead", name, n.Func.Name)
		}
	}
}

// checkRelabel reports label_replace that gives the series of all clusters the same cluster.
func (l *linter) checkRelabel(n *parser.Call) {
	if n.Func.Name != "label_replace" || l.cluster == "" || textOf(n.Args[1]) != l.cluster {
		return
	}
	input, value := l.of(n.Args[0]), textOf(n.Args[2])
	matchesAll := slices.Contains([]string{".*", ".+", "(.*)", "(.+)"}, textOf(n.Args[4])) && input.may(textOf(n.Args[3]))
	if value != "" && !strings.Contains(value, "$") && matchesAll && !input.open && input.may(l.cluster) && !input.fixed[l.cluster] {
		l.add(RuleClusterLabel, n, "label_replace gives the series of every cluster the same %s %q: remove it", l.cluster, value)
	}
}

// sumsCounters reports whether an expression adds the values of several counters.
func sumsCounters(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			found = found || (n.Op == parser.SUM || n.Op == parser.AVG) && usesCounter(n.Expr)
		case *parser.BinaryExpr:
			found = found || n.Op == parser.ADD && usesCounter(n.LHS) && usesCounter(n.RHS)
		}
		return nil
	})
	return found
}

// usesCounter reports whether an expression uses the value of a counter.
func usesCounter(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		n, ok := node.(*parser.VectorSelector)
		found = found || ok && kindOf(metricName(n)) == counter && !usesGrowth(n, path)
		return nil
	})
	return found
}

// checkAge checks a query for the age of samples.
func (l *linter) checkAge(e parser.Expr) {
	l.checkTimestamp(e)
	if !calls(e, "time") && !namesAge(e) {
		l.add(RuleAge, e, "must return an age in seconds: subtract the time of the newest sample from time()")
	}
	n, ok := withoutParens(e).(*parser.BinaryExpr)
	if !ok || n.Op != parser.SUB {
		return
	}
	if subtracted, ok := withoutParens(n.RHS).(*parser.Call); ok && subtracted.Func.Name == "time" {
		l.add(RuleAge, e, "returns a negative age, which counts as unknown: write time() - ...")
	}
}

// checkTime checks a query for the time of samples.
func (l *linter) checkTime(e parser.Expr) {
	l.checkTimestamp(e)
	if n, ok := unwrap(e).(*parser.BinaryExpr); ok && n.Op == parser.SUB && calls(n.LHS, "time") {
		l.add(RuleAge, e, "must return the time of the samples, not their age: remove the subtraction from time()")
	}
}

// checkTimestamp reports timestamp() of something else than a scraped series: its time is
// that of the evaluation, and always recent.
func (l *linter) checkTimestamp(e parser.Expr) {
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		n, ok := node.(*parser.Call)
		if !ok || n.Func.Name != "timestamp" {
			return nil
		}
		selector, ok := unwrap(n.Args[0]).(*parser.VectorSelector)
		switch {
		case !ok:
			l.add(RuleTimestamp, n, "timestamp() of a computed value is the time of the evaluation: it is always recent")
		case kindOf(metricName(selector)) == recorded:
			l.add(RuleTimestamp, n, "timestamp() of the recorded series %s is the time of the rule's evaluation: it stays recent when the scrape fails. Use a metric whose value is the time of the sample", metricName(selector))
		}
		return nil
	})
}

// calls reports whether an expression calls a function.
func calls(e parser.Expr, function string) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		n, ok := node.(*parser.Call)
		found = found || ok && n.Func.Name == function
		return nil
	})
	return found
}

// withoutParens removes parentheses, and no signs.
func withoutParens(e parser.Expr) parser.Expr {
	for {
		n, ok := e.(*parser.ParenExpr)
		if !ok {
			return e
		}
		e = n.Expr
	}
}

// ageWords are words in the name of a metric whose value is an age.
var ageWords = regexp.MustCompile(`(?i)(^|[_:])(age|lag|delay|since|staleness)([_:]|$)`)

// namesAge reports whether a metric's name says that its value is a duration.
func namesAge(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			found = found || ageWords.MatchString(metricName(n))
		}
		return nil
	})
	return found
}
