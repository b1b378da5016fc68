package querylint

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// checkComparison reports a comparison that decides a requirement in another way than it reads: one that keeps the value 0,
// which does not meet a requirement, and one of events without which there is no series. isPart means that the
// requirement has other parts.
func (l *linter) checkComparison(e parser.Expr, isPart bool) {
	n, ok := unwrap(e).(*parser.BinaryExpr)
	switch {
	case !ok:
		return
	case n.Op == parser.LAND:
		l.checkComparison(n.LHS, true)
		if right, ok := unwrap(n.RHS).(*parser.BinaryExpr); ok && right.Op.IsComparisonOperator() && !right.ReturnBool && holdsForZero(right) {
			l.checkRareComparison(right, true)
		}
		return
	case n.Op == parser.LUNLESS:
		l.checkComparison(n.LHS, true)
		l.checkRareExclusion(n.RHS)
		return
	case n.Op == parser.LOR:
		l.checkComparison(n.LHS, true)
		l.checkComparison(n.RHS, true)
		return
	case !n.Op.IsComparisonOperator() || !isVector(n) || !holdsForZero(n):
		return
	}
	if !n.ReturnBool {
		l.add(RuleZero, n, "keeps the value 0, which does not meet a requirement: compare with bool, as in x %s bool y", n.Op)
	}
	l.checkRareComparison(n, isPart)
}

// holdsForZero reports whether a comparison with a number holds for the value 0.
func holdsForZero(n *parser.BinaryExpr) bool {
	left, right := 0.0, 0.0
	switch l, r := number(n.LHS), number(n.RHS); {
	case l != nil:
		left = *l
	case r != nil:
		right = *r
	default:
		return false
	}
	switch n.Op {
	case parser.EQLC:
		return left == right
	case parser.NEQ:
		return left != right
	case parser.LSS:
		return left < right
	case parser.LTE:
		return left <= right
	case parser.GTR:
		return left > right
	case parser.GTE:
		return left >= right
	}
	return false
}

// number returns the value of a literal, or nil.
func number(e parser.Expr) *float64 {
	switch n := unwrap(e).(type) {
	case *parser.NumberLiteral:
		return &n.Val
	case *parser.UnaryExpr:
		if v := number(n.Expr); v != nil && n.Op == parser.SUB {
			negative := -*v
			return &negative
		}
	}
	return nil
}

// IsRatio reports whether the values of a query are ratios from 0 to 1, as far as the query says: a quotient of the same
// metric or of numbers of devices, or a metric whose name ends in ratio, which is not multiplied by a number.
func IsRatio(query string) bool {
	e, problems := promql.Parse(query)
	return len(problems) == 0 && isRatio(e)
}

func isRatio(e parser.Expr) bool {
	switch n := unwrap(e).(type) {
	case *parser.VectorSelector:
		return ratioName.MatchString(metricName(n))
	case *parser.MatrixSelector:
		return isRatio(n.VectorSelector)
	case *parser.AggregateExpr:
		return slices.Contains(ratioAggregations, n.Op) && isRatio(n.Expr)
	case *parser.Call:
		return slices.Contains(ratioFunctions, n.Func.Name) && isRatio(n.Args[0])
	case *parser.BinaryExpr:
		isRest := n.Op == parser.SUB && number(n.LHS) != nil && *number(n.LHS) == 1
		return n.Op == parser.DIV && measuresSame(n.LHS, n.RHS) && !isMultiple(n.LHS) || isRest && isRatio(n.RHS)
	}
	return false
}

// IsNegated reports whether a query is the negative of a number that is seldom below 0: of a metric, or of its sum or mean.
func IsNegated(query string) bool {
	e, problems := promql.Parse(query)
	if len(problems) > 0 {
		return false
	}
	n, ok := withoutParens(e).(*parser.UnaryExpr)
	return ok && n.Op == parser.SUB && !mayBeNegative(n.Expr)
}

// signed matches the names of metrics that may be below 0.
var signed = regexp.MustCompile(`(?i)celsius|temperature|delta|diff|balance|margin|offset|skew|change|slope|trend|score`)

// mayBeNegative reports whether an expression subtracts, or reads or computes something that may be below 0.
func mayBeNegative(e parser.Expr) bool {
	found := slices.ContainsFunc(metricNames(e), signed.MatchString)
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.UnaryExpr:
			found = true
		case *parser.NumberLiteral:
			found = found || n.Val < 0
		case *parser.BinaryExpr:
			found = found || n.Op != parser.ADD && n.Op != parser.MUL && n.Op != parser.DIV
		case *parser.Call:
			found = found || !slices.Contains(rates, n.Func.Name) && !strings.HasSuffix(n.Func.Name, "_over_time")
		}
		return nil
	})
	return found
}

// IsQuotient reports whether a query divides one vector by another, so that its values are seldom points.
func IsQuotient(query string) bool {
	e, problems := promql.Parse(query)
	if len(problems) > 0 {
		return false
	}
	n, ok := unwrap(e).(*parser.BinaryExpr)
	if ok && n.Op == parser.SUB && number(n.LHS) != nil {
		n, ok = unwrap(n.RHS).(*parser.BinaryExpr)
	}
	return ok && n.Op == parser.DIV && isVector(n.LHS) && isVector(n.RHS) && !isMultiple(n.LHS)
}

// ratioName matches the names of metrics from 0 to 1.
var ratioName = regexp.MustCompile(`[_:]ratio$|_utilization:avg$`)

// ratioAggregations and ratioFunctions make ratios of ratios.
var ratioAggregations = []parser.ItemType{parser.AVG, parser.MIN, parser.MAX, parser.QUANTILE}

var ratioFunctions = []string{"avg_over_time", "min_over_time", "max_over_time", "last_over_time", "clamp_max", "clamp_min", "clamp", "abs", "label_replace"}

// isMultiple reports whether an expression is a product with a number.
func isMultiple(e parser.Expr) bool {
	n, ok := unwrap(e).(*parser.BinaryExpr)
	return ok && n.Op == parser.MUL && (number(n.LHS) != nil || number(n.RHS) != nil)
}

// devices matches the names of recorded numbers of devices.
var devices = regexp.MustCompile(`^[a-z_]+:plimsoll_([a-z]+_)*devices:`)

// measuresSame reports whether both sides of a quotient read the same metric, or numbers of devices.
func measuresSame(left, right parser.Expr) bool {
	whole := metricNames(right)
	return len(whole) > 0 && !slices.ContainsFunc(metricNames(left), func(name string) bool {
		return !slices.ContainsFunc(whole, func(of string) bool { return name == of || devices.MatchString(name) && devices.MatchString(of) })
	}) && len(metricNames(left)) > 0
}

// metricNames returns the names of the metrics that an expression reads.
func metricNames(e parser.Expr) (names []string) {
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			names = append(names, metricName(n))
		}
		return nil
	})
	return names
}
