package promql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"
)

// Position is a place in an expression. Line and Column count from 1, Column in
// characters; Offset counts bytes from 0.
type Position struct {
	Offset, Line, Column int
}

// String is "line:column".
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Problem is one fault of an expression and where it stands.
type Problem struct {
	Pos     Position
	Message string
}

// String is "line:column: message".
func (p Problem) String() string { return p.Pos.String() + ": " + p.Message }

// Expr is a parsed expression.
type Expr = parser.Expr

var exprParser = parser.NewParser(parser.Options{})

// Parse parses an expression. The expression is nil exactly when there are problems.
func Parse(expr string) (Expr, []Problem) {
	e, err := exprParser.ParseExpr(expr)
	if err == nil {
		return e, nil
	}
	var errs parser.ParseErrors
	if !errors.As(err, &errs) || len(errs) == 0 {
		return nil, []Problem{{Pos: position(expr, 0), Message: err.Error()}}
	}
	problems := make([]Problem, 0, len(errs))
	for _, e := range errs {
		problems = append(problems, Problem{
			Pos:     position(expr, int(e.PositionRange.Start)),
			Message: e.Err.Error(),
		})
		if breaksOff(e.Err.Error()) {
			break
		}
	}
	return nil, problems
}

// breaksOff says that the parser lost its way here: what it reports after that is
// about its own repairs.
func breaksOff(message string) bool {
	return strings.HasPrefix(message, "unexpected") || strings.HasPrefix(message, "unclosed") || strings.HasPrefix(message, "unterminated")
}

// Check returns what is wrong with an expression that shall answer an instant
// vector or a scalar; nothing when it is right.
func Check(expr string) []Problem {
	e, problems := Parse(expr)
	if problems != nil {
		return problems
	}
	return checkType(expr, e)
}

func checkType(expr string, e Expr) []Problem {
	switch e.Type() {
	case parser.ValueTypeVector, parser.ValueTypeScalar:
		return nil
	default:
		return []Problem{{
			Pos:     position(expr, int(e.PositionRange().Start)),
			Message: fmt.Sprintf("must be an instant vector, is a %s", parser.DocumentedType(e.Type())),
		}}
	}
}

// Strings joins problems for a condition or an error, the first ones first.
func Strings(problems []Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

func position(expr string, offset int) Position {
	offset = min(max(offset, 0), len(expr))
	before := expr[:offset]
	line := strings.Count(before, "\n") + 1
	start := strings.LastIndexByte(before, '\n') + 1
	return Position{Offset: offset, Line: line, Column: utf8.RuneCountInString(before[start:]) + 1}
}
