package promql

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// Selectors returns the distinct series selectors of an expression, without offsets. It
// returns nil if the expression does not parse.
func Selectors(expr string) []string {
	var selectors []string
	inspect(expr, func(node parser.Node) {
		if n, ok := node.(*parser.VectorSelector); ok {
			plain := parser.VectorSelector{Name: n.Name, LabelMatchers: n.LabelMatchers}
			selectors = append(selectors, plain.String())
		}
	})
	slices.Sort(selectors)
	return slices.Compact(selectors)
}

// Metrics returns the names of the metrics that an expression reads, as far as its selectors have one. It returns nil if
// the expression does not parse.
func Metrics(expr string) []string {
	var names []string
	inspect(expr, func(node parser.Node) {
		if n, ok := node.(*parser.VectorSelector); ok && n.Name != "" {
			names = append(names, n.Name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Pinned returns the selectors and subqueries with @ start(), @ end(), step() or range(). In an
// instant query, the first two are the evaluation time, and the others 0. In a range query over
// history, they are not.
func Pinned(expr string) []Problem {
	var problems []Problem
	report := func(n parser.Node, what string) {
		problems = append(problems, Problem{
			Pos: position(expr, int(n.PositionRange().Start)), Message: what + " have another meaning in a range query: remove them",
		})
	}
	check := func(n parser.Node, at parser.ItemType, durations ...*parser.DurationExpr) {
		if at != 0 {
			report(n, "@ start() and @ end()")
		}
		if slices.ContainsFunc(durations, readsQueryRange) {
			report(n, "step() and range()")
		}
	}
	inspect(expr, func(node parser.Node) {
		switch n := node.(type) {
		case *parser.VectorSelector:
			check(n, n.StartOrEnd, n.OriginalOffsetExpr)
		case *parser.MatrixSelector:
			check(n, 0, n.RangeExpr)
		case *parser.SubqueryExpr:
			check(n, n.StartOrEnd, n.RangeExpr, n.StepExpr, n.OriginalOffsetExpr)
		}
	})
	return problems
}

// inspect calls visit for every node of an expression that parses.
func inspect(expr string, visit func(parser.Node)) {
	e, problems := Parse(expr)
	if problems != nil {
		return
	}
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		visit(node)
		return nil
	})
}
