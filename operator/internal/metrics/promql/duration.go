package promql

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// resolveDurations computes the duration expressions of e, such as [5m * 2], as Prometheus does
// for an instant query, and stores the results beside them. It returns the expressions that
// Prometheus would refuse.
func resolveDurations(text string, e Expr) []Problem {
	var problems []Problem
	resolve := func(n *parser.DurationExpr, d *time.Duration, mayBeNegative bool) {
		if n == nil {
			return
		}
		seconds, err := durationOf(n)
		switch {
		case err != nil:
		case math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt64/1e9:
			err = errors.New("duration is out of range")
		case seconds <= 0 && !mayBeNegative:
			err = errors.New("duration must be greater than 0")
		}
		if err != nil {
			problems = append(problems, Problem{Pos: position(text, int(n.PositionRange().Start)), Message: err.Error()})
			return
		}
		*d = time.Duration(seconds*1000) * time.Millisecond
	}
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			resolve(n.OriginalOffsetExpr, &n.OriginalOffset, true)
		case *parser.MatrixSelector:
			resolve(n.RangeExpr, &n.Range, false)
		case *parser.SubqueryExpr:
			resolve(n.RangeExpr, &n.Range, false)
			resolve(n.StepExpr, &n.Step, false)
			resolve(n.OriginalOffsetExpr, &n.OriginalOffset, true)
		}
		return nil
	})
	return problems
}

// durationOf returns the value of a duration expression in seconds. An instant query has no step
// and no range: step() and range() are 0.
func durationOf(e Expr) (float64, error) {
	n, ok := e.(*parser.DurationExpr)
	if !ok {
		literal, ok := e.(*parser.NumberLiteral)
		if !ok {
			return 0, errors.New("unknown duration expression")
		}
		return literal.Val, nil
	}
	var left, right float64
	var err error
	if n.LHS != nil {
		if left, err = durationOf(n.LHS); err != nil {
			return 0, err
		}
	}
	if n.RHS != nil {
		if right, err = durationOf(n.RHS); err != nil {
			return 0, err
		}
	}
	switch n.Op { // the parser accepts these operators only
	case parser.STEP, parser.RANGE:
		return 0, nil
	case parser.MIN_OF:
		return min(left, right), nil
	case parser.MAX_OF:
		return max(left, right), nil
	case parser.ADD:
		return left + right, nil // without a left operand, it is 0
	case parser.SUB:
		return left - right, nil
	case parser.MUL:
		return left * right, nil
	case parser.POW:
		return math.Pow(left, right), nil
	case parser.DIV, parser.MOD:
		if right == 0 {
			return 0, errors.New("division by 0 in a duration")
		}
		if n.Op == parser.MOD {
			return math.Mod(left, right), nil
		}
		return left / right, nil
	}
	return 0, errors.New("unknown operator in a duration")
}

// readsQueryRange reports whether a duration expression contains step() or range().
func readsQueryRange(n *parser.DurationExpr) bool {
	if n == nil {
		return false
	}
	left, _ := n.LHS.(*parser.DurationExpr)
	right, _ := n.RHS.(*parser.DurationExpr)
	return n.Op == parser.STEP || n.Op == parser.RANGE || readsQueryRange(left) || readsQueryRange(right)
}
