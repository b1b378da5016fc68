package score

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// maxTotalCost limits the evaluation of a total's expression for one cluster. An expression
// over all of 32 scores costs less than 1,000.
const maxTotalCost = 10_000

// scoresVariable is the map of the points by name in a total's expression.
const scoresVariable = "scores"

// totalExpression is a compiled total.expression.
type totalExpression struct {
	program cel.Program
	// required are the scores that the expression reads without a default.
	required map[string]bool
}

// totalEnvironment declares what an expression can use.
var totalEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	number := cel.DynType
	overloads := func(name string, better func(a, b float64) bool) cel.EnvOption {
		return cel.Function(name,
			cel.Overload(name+"_2", []*cel.Type{number, number}, cel.DoubleType, cel.FunctionBinding(extreme(better))),
			cel.Overload(name+"_3", []*cel.Type{number, number, number}, cel.DoubleType, cel.FunctionBinding(extreme(better))),
			cel.Overload(name+"_list", []*cel.Type{cel.ListType(number)}, cel.DoubleType, cel.FunctionBinding(extreme(better))),
		)
	}
	return cel.NewEnv(
		cel.Variable(scoresVariable, cel.MapType(cel.StringType, cel.DoubleType)),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true),
		overloads("min", func(a, b float64) bool { return a < b }),
		overloads("max", func(a, b float64) bool { return a > b }),
	)
})

// extreme returns the function min or max over its arguments, or over a list. NaN is neither: the
// result is NaN.
func extreme(better func(a, b float64) bool) func(...ref.Val) ref.Val {
	return func(args ...ref.Val) ref.Val {
		if list, ok := args[0].(traits.Lister); ok && len(args) == 1 {
			args = nil
			for it := list.Iterator(); it.HasNext() == types.True; {
				args = append(args, it.Next())
			}
		}
		if len(args) == 0 {
			return types.NewErr("min and max need a number")
		}
		var best float64
		for i, arg := range args {
			v, err := numberOf(arg)
			if err != nil {
				return types.WrapErr(err)
			}
			if i == 0 || better(v, best) || math.IsNaN(v) {
				best = v
			}
		}
		return types.Double(best)
	}
}

func numberOf(v ref.Val) (float64, error) {
	native, err := v.ConvertToNative(reflect.TypeFor[float64]())
	if number, ok := native.(float64); ok && err == nil {
		return number, nil
	}
	if i, ok := v.(types.Int); ok {
		return float64(i), nil
	}
	return 0, fmt.Errorf("%s is not a number", v.Type().TypeName())
}

// compileTotal compiles the expression of a total. names are the names of the scores, and
// dynamic says which of them have nameFrom.
func compileTotal(expression string, names []string, dynamic []bool) (*totalExpression, error) {
	env, err := totalEnvironment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, fmt.Errorf("%d:%d: %s", first.Location.Line(), first.Location.Column()+1, explainUndeclared(first.Message, names))
	}
	if out := checked.OutputType(); !out.IsExactType(cel.DoubleType) && !out.IsExactType(cel.IntType) {
		return nil, fmt.Errorf("must be a number, but is %s", out)
	}
	required, optional := namedScores(checked)
	for _, name := range slices.Concat(required, optional) {
		fromResult := slices.ContainsFunc(names, func(n string) bool { return dynamic[slices.Index(names, n)] && strings.HasPrefix(name, n+"-") })
		switch known := slices.Contains(names, name); {
		case known && dynamic[slices.Index(names, name)]:
			return nil, fmt.Errorf("%s: the score %s has nameFrom: name one of its scores, as in scores[?%q].orValue(0.0)", reference(name), name, name+"-a100")
		case known:
		case fromResult && slices.Contains(required, name):
			return nil, fmt.Errorf("%s: not every cluster has this score: write scores[?%q].orValue(0.0)", reference(name), name)
		case !fromResult:
			return nil, fmt.Errorf("%s: the policy has no score %s; its scores are %s", reference(name), name, strings.Join(names, ", "))
		}
	}
	program, err := env.Program(checked, cel.CostLimit(maxTotalCost))
	if err != nil {
		return nil, err
	}
	t := &totalExpression{program: program, required: map[string]bool{}}
	for _, name := range required {
		t.required[name] = true
	}
	return t, nil
}

// undeclared matches CEL's message about an unknown name.
var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)' \(in container ''\)$`)

// explainUndeclared says how to write a score that an expression names without the map.
func explainUndeclared(message string, names []string) string {
	m := undeclared.FindStringSubmatch(message)
	switch {
	case m == nil:
		return message
	case slices.Contains(names, m[1]):
		return fmt.Sprintf("undeclared reference to '%s': write %s", m[1], reference(m[1]))
	}
	return fmt.Sprintf("undeclared reference to '%s': the scores of the policy are in the map %s", m[1], scoresVariable)
}

// reference returns how an expression names a score.
func reference(name string) string {
	if strings.Contains(name, "-") {
		return fmt.Sprintf("%s[%q]", scoresVariable, name)
	}
	return scoresVariable + "." + name
}

// namedScores returns the scores that an expression names: those that it requires, and those
// that it only tests or reads with a default.
func namedScores(checked *cel.Ast) (required, optional []string) {
	add := func(to *[]string, operand ast.Expr, name string) {
		if operand.Kind() == ast.IdentKind && operand.AsIdent() == scoresVariable && !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() { //nolint:exhaustive // other kinds name no score
		case ast.SelectKind:
			s := e.AsSelect()
			if s.IsTestOnly() {
				add(&optional, s.Operand(), s.FieldName())
			} else {
				add(&required, s.Operand(), s.FieldName())
			}
		case ast.CallKind:
			call := e.AsCall()
			args := call.Args()
			if len(args) != 2 {
				return
			}
			list := &required
			switch call.FunctionName() {
			case operators.Index:
			case operators.OptIndex, operators.OptSelect:
				list = &optional
			case operators.In:
				args, list = []ast.Expr{args[1], args[0]}, &optional
			default:
				return
			}
			if name, ok := literalString(args[1]); ok {
				add(list, args[0], name)
			}
		}
	}))
	return required, optional
}

func literalString(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// evaluate returns the total for the points of a cluster.
func (t *totalExpression) evaluate(points map[string]float64) (float64, error) {
	out, _, err := t.program.Eval(map[string]any{scoresVariable: points})
	if err != nil {
		return 0, err
	}
	total, err := numberOf(out)
	if err == nil && (math.IsNaN(total) || math.IsInf(total, 0)) {
		err = errors.New("the result is not a finite number")
	}
	return total, err
}
