package querylint

import (
	"regexp"

	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// checkComparison reports a comparison that decides a condition in another way than it reads: one that keeps the value 0,
// which does not meet a condition, and one of events without which there is no series.
func (l *linter) checkComparison(e parser.Expr) {
	n, ok := unwrap(e).(*parser.BinaryExpr)
	switch {
	case !ok:
		return
	case n.Op == parser.LAND || n.Op == parser.LUNLESS:
		l.checkComparison(n.LHS)
		return
	case n.Op == parser.LOR:
		l.checkComparison(n.LHS)
		l.checkComparison(n.RHS)
		return
	case !n.Op.IsComparisonOperator() || !isVector(n) || !holdsForZero(n):
		return
	}
	if !n.ReturnBool {
		l.add(RuleZero, n, "keeps the value 0, which does not meet a condition: compare with bool, as in x %s bool y", n.Op)
	}
	if counter := eventCounter(n); counter != "" && !l.options.AbsentMeets {
		l.add(RuleEvent, n, "clusters where no event was counted may have no series %s, and do not meet the condition: set absent: Met%s", counter, recordedEvents[counter])
	}
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

// events are parts of the names of counters whose series begins with the first event.
var events = regexp.MustCompile(`(?i)xid|err|fail|fault|reset|oom|evict|drop|restart|throttle|violation`)

// recordedEvents are what the shipped rules record of counters of events, with 0 where there were none.
var recordedEvents = map[string]string{"plimsoll_xid_total": `, or read cluster_severity:plimsoll_xid_events:increase1d`}

// eventCounter returns the name of a counter of events in a rate or an increase; "" = none.
func eventCounter(e parser.Expr) (name string) {
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok || !events.MatchString(selector.Name) {
			return nil
		}
		for _, outer := range path {
			if call, ok := outer.(*parser.Call); ok && (call.Func.Name == "increase" || call.Func.Name == "rate") {
				name = selector.Name
			}
		}
		return nil
	})
	return name
}

// IsRatio reports whether a query is the quotient of two vectors, which is not multiplied by a number.
func IsRatio(query string) bool {
	e, problems := promql.Parse(query)
	if len(problems) > 0 {
		return false
	}
	n, ok := unwrap(e).(*parser.BinaryExpr)
	return ok && n.Op == parser.DIV && isVector(n.LHS) && isVector(n.RHS) && !isMultiple(n.LHS)
}

// isMultiple reports whether an expression is a product with a number.
func isMultiple(e parser.Expr) bool {
	n, ok := unwrap(e).(*parser.BinaryExpr)
	return ok && n.Op == parser.MUL && (number(n.LHS) != nil || number(n.RHS) != nil)
}
