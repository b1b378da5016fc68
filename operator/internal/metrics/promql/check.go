package promql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"
)

// Position is a place in an expression.
type Position struct {
	// Offset in bytes, from 0.
	Offset int
	// Line and Column, from 1. Columns are characters.
	Line, Column int
}

// String returns "line:column".
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Problem is an error in an expression and its position.
type Problem struct {
	Pos     Position
	Message string
}

// String returns "line:column: message".
func (p Problem) String() string { return p.Pos.String() + ": " + p.Message }

// Expr is a parsed expression.
type Expr = parser.Expr

// Options are those of the parser. They include what Prometheus enables by a flag, and what only
// recent versions have, such as [5m * 2]: the server decides whether it has it.
var Options = parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
}

var exprParser = parser.NewParser(Options)

// Parse parses an expression. It returns either the expression or problems.
func Parse(expr string) (Expr, []Problem) {
	e, err := exprParser.ParseExpr(expr)
	if err == nil {
		if problems := resolveDurations(expr, e); problems != nil {
			return nil, problems
		}
		return e, nil
	}
	var errs parser.ParseErrors
	if !errors.As(err, &errs) || len(errs) == 0 {
		return nil, []Problem{{Pos: position(expr, 0), Message: err.Error()}}
	}
	problems := make([]Problem, 0, len(errs))
	for _, e := range errs {
		// The end of the input is the end of its last line with text.
		offset := min(int(e.PositionRange.Start), len(strings.TrimRight(expr, " \t\r\n")))
		problems = append(problems, Problem{
			Pos:     position(expr, offset),
			Message: e.Err.Error(),
		})
		if isFatal(e.Err.Error()) {
			break
		}
	}
	return nil, problems
}

// isFatal reports whether the parser failed to recover from an error. Later errors are
// consequences of its attempt. The parser marks such errors only by their message.
func isFatal(message string) bool {
	return strings.HasPrefix(message, "unexpected") || strings.HasPrefix(message, "unclosed") || strings.HasPrefix(message, "unterminated")
}

// Check returns the problems of an expression whose result must be an instant vector or a
// scalar. It returns nil for a valid expression.
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
			Message: fmt.Sprintf("must be an instant vector, but is a %s", parser.DocumentedType(e.Type())),
		}}
	}
}

// Strings joins problems for a condition or an error message.
func Strings(problems []Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

// PositionAt converts an offset in bytes to a Position. An offset outside the text counts as
// its nearest end.
func PositionAt(expr string, offset int) Position { return position(expr, offset) }

func position(expr string, offset int) Position {
	offset = min(max(offset, 0), len(expr))
	before := expr[:offset]
	line := strings.Count(before, "\n") + 1
	start := strings.LastIndexByte(before, '\n') + 1
	return Position{Offset: offset, Line: line, Column: utf8.RuneCountInString(before[start:]) + 1}
}
