package promql

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Template is an expression with variables. A $name may stand where a whole label
// value stands (model="$model") or where a number stands ($devices_per_pod).
type Template struct {
	text    string     // as written
	masked  string     // variables replaced by numbers of the same length
	numbers []variable // outside string literals
	used    map[string]bool
}

// ParseTemplate parses a template that may use the given variables, named without
// the $; one that ends in * stands for all that begin so. The template is nil
// exactly when there are problems.
func ParseTemplate(expr string, vars []string) (*Template, []Problem) {
	masked, numbers := scan(expr)
	e, problems := Parse(masked)
	if problems != nil {
		return nil, problems
	}
	t := &Template{text: expr, masked: masked, numbers: numbers, used: map[string]bool{}}
	problems = checkType(masked, e)
	problems = append(problems, t.checkNumbers(e, vars)...)
	problems = append(problems, t.checkLabels(e, vars)...)
	problems = append(problems, t.checkStrings(e, vars)...)
	if len(problems) > 0 {
		return nil, problems
	}
	return t, nil
}

// String is the template as it was written.
func (t *Template) String() string { return t.text }

// Vars returns the names of the variables that the template uses, sorted.
func (t *Template) Vars() []string { return slices.Sorted(maps.Keys(t.used)) }

// Render sets the facts into the parsed expression and returns its text. A fact
// that is absent or empty becomes the matcher =~".+" in a label matcher and an
// error where a number stands. A fact is always one label value or one number:
// nothing in it can change the expression.
func (t *Template) Render(facts map[string]string) (string, error) {
	e, problems := Parse(t.masked)
	if problems != nil {
		return "", fmt.Errorf("parse template: %s", Strings(problems))
	}
	for _, v := range t.numbers {
		n, err := number(v.name, facts)
		if err != nil {
			return "", err
		}
		lit := t.literal(e, v)
		if lit == nil {
			return "", fmt.Errorf("$%s does not stand for a number", v.name)
		}
		lit.Val = math.Copysign(1, lit.Val) * n
	}
	var err error
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if sel, ok := node.(*parser.VectorSelector); ok && err == nil {
			err = setMatchers(sel, facts)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return e.String(), nil
}

func number(name string, facts map[string]string) (float64, error) {
	text := facts[name]
	if text == "" {
		return 0, fmt.Errorf("$%s stands for a number, and this workload has none", name)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("$%s stands for a number, and this workload has %q", name, text)
	}
	return n, nil
}

func setMatchers(sel *parser.VectorSelector, facts map[string]string) error {
	for i, m := range sel.LabelMatchers {
		name, _ := wholeVariable(m.Value)
		if name == "" {
			continue
		}
		kind, value := m.Type, facts[name]
		switch {
		case value == "":
			kind, value = labels.MatchRegexp, ".+"
		case kind == labels.MatchRegexp || kind == labels.MatchNotRegexp:
			value = regexp.QuoteMeta(value)
		}
		set, err := labels.NewMatcher(kind, m.Name, value)
		if err != nil {
			return fmt.Errorf("set $%s: %w", name, err)
		}
		sel.LabelMatchers[i] = set
	}
	return nil
}

// literal finds the number that stands for v, with any sign that the parser has
// folded into it.
func (t *Template) literal(e Expr, v variable) *parser.NumberLiteral {
	var found *parser.NumberLiteral
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		lit, ok := node.(*parser.NumberLiteral)
		if !ok || int(lit.PosRange.End) != v.end || int(lit.PosRange.Start) > v.start {
			return nil
		}
		if strings.Trim(t.masked[lit.PosRange.Start:v.start], "+- \t\r\n") == "" {
			found = lit
		}
		return nil
	})
	return found
}

func (t *Template) checkNumbers(e Expr, vars []string) []Problem {
	var problems []Problem
	for _, v := range t.numbers {
		if !known(vars, v.name) {
			problems = append(problems, t.problem(v.start, unknown(v.name, vars)))
			continue
		}
		if t.literal(e, v) == nil {
			problems = append(problems, t.problem(v.start, misplaced(v.name)))
		}
		t.used[v.name] = true
	}
	return problems
}

func (t *Template) checkLabels(e Expr, vars []string) []Problem {
	var problems []Problem
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		sel, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		for _, m := range sel.LabelMatchers {
			name, partial := wholeVariable(m.Value)
			switch at := t.find(int(sel.PosRange.Start), "$"+name); {
			case name == "":
			case partial && known(vars, name):
				problems = append(problems, t.problem(at, misplaced(name)))
			case partial:
			case !known(vars, name):
				problems = append(problems, t.problem(at, unknown(name, vars)))
			default:
				t.used[name] = true
			}
		}
		return nil
	})
	return problems
}

// checkStrings refuses known variables in other strings. Others may stand there:
// label_replace names its groups that way.
func (t *Template) checkStrings(e Expr, vars []string) []Problem {
	var problems []Problem
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		lit, ok := node.(*parser.StringLiteral)
		if !ok {
			return nil
		}
		if name, _ := wholeVariable(lit.Val); known(vars, name) {
			problems = append(problems, t.problem(t.find(int(lit.PosRange.Start), "$"+name), misplaced(name)))
		}
		return nil
	})
	return problems
}

// find returns the offset of s at or behind from, or from.
func (t *Template) find(from int, s string) int {
	if i := strings.Index(t.text[from:], s); i >= 0 {
		return from + i
	}
	return from
}

func (t *Template) problem(offset int, message string) Problem {
	return Problem{Pos: position(t.text, offset), Message: message}
}

// known says whether vars name the variable, or a * among them stands for it.
func known(vars []string, name string) bool {
	return slices.ContainsFunc(vars, func(v string) bool {
		prefix, any := strings.CutSuffix(v, "*")
		return v == name || any && len(name) > len(prefix) && strings.HasPrefix(name, prefix)
	})
}

func unknown(name string, vars []string) string {
	all := make([]string, len(vars))
	for i, v := range vars {
		all[i] = "$" + v
	}
	slices.Sort(all)
	return fmt.Sprintf("unknown variable $%s, known are %s", name, strings.Join(all, " "))
}

func misplaced(name string) string {
	return fmt.Sprintf("$%s may stand only for a whole label value or a number", name)
}
