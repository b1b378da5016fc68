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

// Template is an expression with variables. A variable is either a whole label value, as
// in model="$model", or a number, as in free / $devices_per_pod.
type Template struct {
	text    string     // original text
	masked  string     // text with numbers of the same length instead of variables
	numbers []variable // outside string literals
	used    map[string]bool
}

// ParseTemplate parses a template with the given variables, which are listed without the
// $. A name that ends in * allows all variables with this prefix. ParseTemplate returns
// either the template or problems.
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

// Expr returns the parsed expression, with numbers instead of variables outside of strings.
// Its positions are those of the original text.
func (t *Template) Expr() Expr {
	e, _ := Parse(t.masked) // ParseTemplate has parsed it
	return e
}

// Vars returns the sorted names of the used variables.
func (t *Template) Vars() []string { return slices.Sorted(maps.Keys(t.used)) }

// Render replaces the variables in the parsed expression and returns its text. facts has
// the values by variable name. Without a value, a label matcher becomes =~".+", and a
// number is an error. A value always becomes one label value or one number: nothing in it
// can change the expression.
func (t *Template) Render(facts map[string]string) (string, error) {
	e, problems := Parse(t.masked)
	if problems != nil {
		return "", fmt.Errorf("parse template: %s", Strings(problems))
	}
	for _, v := range t.numbers {
		n, err := parseNumber(v.name, facts)
		if err != nil {
			return "", err
		}
		lit := t.literal(e, v)
		if lit == nil {
			return "", fmt.Errorf("$%s is not a number", v.name)
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

func parseNumber(name string, facts map[string]string) (float64, error) {
	text := facts[name]
	if text == "" {
		return 0, fmt.Errorf("$%s must be a number, but the workload has no value for it", name)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("$%s must be a number, but the workload has %q", name, text)
	}
	return n, nil
}

// setMatchers replaces the variables in the label matchers of a selector.
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

// literal finds the number literal of a variable. The parser may have merged a sign into
// the literal.
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

// checkNumbers checks the variables outside of strings.
func (t *Template) checkNumbers(e Expr, vars []string) []Problem {
	var problems []Problem
	for _, v := range t.numbers {
		if !isKnown(vars, v.name) {
			problems = append(problems, t.problem(v.start, unknownMessage(v.name, vars)))
			continue
		}
		if t.literal(e, v) == nil {
			problems = append(problems, t.problem(v.start, misplacedMessage(v.name)))
		}
		t.used[v.name] = true
	}
	return problems
}

// checkLabels checks the variables in label matchers.
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
			case partial && isKnown(vars, name):
				problems = append(problems, t.problem(at, misplacedMessage(name)))
			case partial:
			case !isKnown(vars, name):
				problems = append(problems, t.problem(at, unknownMessage(name, vars)))
			default:
				t.used[name] = true
			}
		}
		return nil
	})
	return problems
}

// checkStrings rejects known variables in other strings. Unknown names are allowed there:
// label_replace refers to groups as $name.
func (t *Template) checkStrings(e Expr, vars []string) []Problem {
	var problems []Problem
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		lit, ok := node.(*parser.StringLiteral)
		if !ok {
			return nil
		}
		if name, _ := wholeVariable(lit.Val); isKnown(vars, name) {
			problems = append(problems, t.problem(t.find(int(lit.PosRange.Start), "$"+name), misplacedMessage(name)))
		}
		return nil
	})
	return problems
}

// find returns the first offset of s from the given offset on, or from if there is none.
func (t *Template) find(from int, s string) int {
	if i := strings.Index(t.text[from:], s); i >= 0 {
		return from + i
	}
	return from
}

func (t *Template) problem(offset int, message string) Problem {
	return Problem{Pos: position(t.text, offset), Message: message}
}

// isKnown reports whether vars contain the name, or a prefix of it that ends in *.
func isKnown(vars []string, name string) bool {
	return slices.ContainsFunc(vars, func(v string) bool {
		prefix, isPrefix := strings.CutSuffix(v, "*")
		return v == name || isPrefix && len(name) > len(prefix) && strings.HasPrefix(name, prefix)
	})
}

func unknownMessage(name string, vars []string) string {
	all := []string{"$cluster_label"} // ExpandClusterLabel replaces it before
	for _, v := range vars {
		all = append(all, "$"+v)
	}
	slices.Sort(all)
	return fmt.Sprintf("unknown variable $%s; known variables are %s", name, strings.Join(all, " "))
}

func misplacedMessage(name string) string {
	return fmt.Sprintf("$%s must be a whole label value or a number", name)
}
