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

// Pinned returns the selectors and subqueries with @ start() or @ end(). In an instant
// query, both are the evaluation time. In a range query over history, they are not.
func Pinned(expr string) []Problem {
	var problems []Problem
	report := func(n parser.Node, at parser.ItemType) {
		if at != 0 {
			problems = append(problems, Problem{
				Pos:     position(expr, int(n.PositionRange().Start)),
				Message: "@ start() and @ end() have another meaning in a range query: remove them",
			})
		}
	}
	inspect(expr, func(node parser.Node) {
		switch n := node.(type) {
		case *parser.VectorSelector:
			report(n, n.StartOrEnd)
		case *parser.SubqueryExpr:
			report(n, n.StartOrEnd)
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
