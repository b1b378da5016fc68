package querylint

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkConstant reports a query whose result no sample can change. It returns true if the
// other rules have nothing to add.
func (l *linter) checkConstant(e parser.Expr) bool {
	reads := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		_, ok := node.(*parser.VectorSelector)
		reads = reads || ok
		return nil
	})
	switch {
	case reads:
	case l.options.Use == FleetRequirement && readsClock(e):
		return false // times of day
	case l.options.Use == Requirement && readsClock(e):
		l.add(RuleConstant, e, "reads only the time, which is the same for all clusters: set scope: Fleet")
		return true
	default:
		l.add(RuleConstant, e, "reads no series: the result is the same whatever happens on the clusters")
		return true
	}
	if n, ok := unwrap(e).(*parser.BinaryExpr); ok && n.LHS.String() == n.RHS.String() &&
		slices.Contains([]parser.ItemType{parser.SUB, parser.DIV, parser.MOD}, n.Op) {
		l.add(RuleConstant, n, "both sides of %s are equal: the result is the same for every cluster", n.Op)
	}
	return false
}

// clocks are the functions whose result changes with the time of the evaluation.
var clocks = []string{"time", "minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"}

// readsClock reports whether the result of an expression depends on the time.
func readsClock(e parser.Expr) bool {
	return slices.ContainsFunc(clocks, func(function string) bool { return calls(e, function) })
}

// checkEqualValues reports an aggregation over values that a comparison made equal: sum by (cluster)
// (ready == 0) is 0, however many nodes are not ready. path are the expressions around it, the
// outermost first.
func (l *linter) checkEqualValues(n *parser.AggregateExpr, path []parser.Node) {
	comparison, ok := unwrap(n.Expr).(*parser.BinaryExpr)
	if !ok || comparison.Op != parser.EQLC || comparison.ReturnBool || !isVector(comparison) {
		return
	}
	number, ok := unwrap(comparison.RHS).(*parser.NumberLiteral)
	if !ok {
		number, ok = unwrap(comparison.LHS).(*parser.NumberLiteral)
	}
	if !ok || !isValueUsed(path, number.Val == 0) {
		return
	}
	isRequirement := l.options.Use == Requirement || l.options.Use == FleetRequirement
	isConstant := n.Op == parser.SUM && number.Val == 0 ||
		slices.Contains(equalAggregations, n.Op) && (number.Val == 0 || !isRequirement)
	if isConstant {
		l.add(RuleConstant, n, "all values are %s, because == selects them: count the series, as in count by (...) (...)", number)
	}
}

// equalAggregations have the same result for any number of equal values.
var equalAggregations = []parser.ItemType{parser.AVG, parser.MIN, parser.MAX, parser.QUANTILE, parser.STDDEV, parser.STDVAR}

// isValueUsed reports whether an expression in path, which begins with the outermost one, uses the
// value of its operand and not only which series it has: max by (cluster, node) (ready == 1) selects
// nodes after and, in a product, and in a sum. A product with 0, and a share of 0, are 0.
func isValueUsed(path []parser.Node, isZero bool) bool {
	for _, node := range path {
		switch n := node.(type) {
		case *parser.AggregateExpr, *parser.SubqueryExpr:
			return false
		case *parser.Call:
			if n.Func.Name == "absent" {
				return false
			}
		case *parser.BinaryExpr:
			isShare := isZero && (n.Op == parser.MUL || n.Op == parser.DIV)
			if isVector(n.LHS) && isVector(n.RHS) && !isShare {
				return false
			}
		}
	}
	return true
}
