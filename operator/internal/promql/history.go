package promql

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// Selectors of the series that an expression reads, each once and without offset;
// none when it does not parse.
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

// Pinned returns where an expression is pinned to the start or the end of a range.
// In an instant query both are its one time; a range query would answer otherwise.
func Pinned(expr string) []Problem {
	var problems []Problem
	pinned := func(n parser.Node, at parser.ItemType) {
		if at != 0 {
			problems = append(problems, Problem{
				Pos:     position(expr, int(n.PositionRange().Start)),
				Message: "@ start() and @ end() mean other times over a range: leave them out",
			})
		}
	}
	inspect(expr, func(node parser.Node) {
		switch n := node.(type) {
		case *parser.VectorSelector:
			pinned(n, n.StartOrEnd)
		case *parser.SubqueryExpr:
			pinned(n, n.StartOrEnd)
		}
	})
	return problems
}

func inspect(expr string, see func(parser.Node)) {
	e, problems := Parse(expr)
	if problems != nil {
		return
	}
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		see(node)
		return nil
	})
}
