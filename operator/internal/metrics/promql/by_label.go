package promql

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// IsByLabel reports whether each series of the result depends only on series with the same value
// of a label: an expression that sums up the whole fleet, or in which a series of one cluster
// hides that of another, is not by cluster. It returns false if the expression does not parse.
func IsByLabel(expr, label string) bool {
	e, problems := Parse(expr)
	return problems == nil && isByLabel(e, label)
}

func isByLabel(e parser.Expr, label string) bool {
	switch n := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral, *parser.VectorSelector, *parser.MatrixSelector:
		return true
	case *parser.ParenExpr:
		return isByLabel(n.Expr, label)
	case *parser.UnaryExpr:
		return isByLabel(n.Expr, label)
	case *parser.SubqueryExpr:
		return isByLabel(n.Expr, label)
	case *parser.AggregateExpr:
		return slices.Contains(n.Grouping, label) != n.Without && isByLabel(n.Expr, label) && (n.Param == nil || isByLabel(n.Param, label))
	case *parser.BinaryExpr:
		if m := n.VectorMatching; m != nil && (slices.Contains(m.MatchingLabels, label) != m.On || slices.Contains(m.Include, label)) {
			return false
		}
		return isByLabel(n.LHS, label) && isByLabel(n.RHS, label)
	case *parser.Call:
		return isCallByLabel(n, label)
	}
	return false
}

// isCallByLabel is isByLabel for a function. absent and scalar read all series at once, and
// label_replace can move a series to another value of the label.
func isCallByLabel(n *parser.Call, label string) bool {
	switch n.Func.Name {
	case "absent", "absent_over_time", "scalar", "info":
		return false
	case "label_replace", "label_join":
		if name, ok := n.Args[1].(*parser.StringLiteral); !ok || name.Val == label {
			return false
		}
	}
	return !slices.ContainsFunc(n.Args, func(arg parser.Expr) bool { return !isByLabel(arg, label) })
}
