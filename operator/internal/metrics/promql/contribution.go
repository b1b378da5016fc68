package promql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Contribution returns an expression that counts the series that expr reads, by the value
// of a label. A lower count than before means that a response to expr lacks data.
func Contribution(expr, label string) (string, []Problem) {
	e, problems := Parse(expr)
	if problems != nil {
		return "", problems
	}
	var selectors []string
	add := func(s string) {
		if !slices.Contains(selectors, s) {
			selectors = append(selectors, s)
		}
	}
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.MatrixSelector:
			add("count_over_time(" + n.String() + ")")
		case *parser.VectorSelector:
			if len(path) == 0 || !isMatrix(path[len(path)-1]) {
				add(n.String())
			}
		}
		return nil
	})
	if len(selectors) == 0 {
		return "", []Problem{{Pos: position(expr, 0), Message: "reads no series"}}
	}
	for i, s := range selectors {
		selectors[i] = fmt.Sprintf(`label_replace(count by (%s) (%s), "selector", %s, "", "")`, label, s, strconv.Quote(strconv.Itoa(i)))
	}
	return fmt.Sprintf("sum by (%s) (%s)", label, strings.Join(selectors, " or ")), nil
}

func isMatrix(n parser.Node) bool {
	_, ok := n.(*parser.MatrixSelector)
	return ok
}
