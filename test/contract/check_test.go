package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// set of label names.
type set map[string]bool

func newSet(names ...string) set {
	s := set{}
	for _, n := range names {
		s[n] = true
	}
	return s
}

func (s set) with(other set) set {
	union := set{}
	maps.Copy(union, s)
	maps.Copy(union, other)
	return union
}

func (s set) without(names ...string) set {
	rest := maps.Clone(s)
	for _, n := range names {
		delete(rest, n)
	}
	return rest
}

// ambient labels come with every series: from the scrape, or from Thanos.
var ambient = newSet("cluster", "job", "instance")

// catalog knows the labels of every metric that may be read.
type catalog map[string]set

func (c catalog) add(name string, names ...string) { c[name] = newSet(names...).with(ambient) }

// checker finds selectors of metrics that nobody exports and labels that the
// metric doesn't have, also in by, on and label_replace.
type checker struct {
	known    catalog
	problems []string
}

// check gives the labels that the answer has, and what is wrong with expr.
func (c catalog) check(expr string) (set, []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, []string{err.Error()}
	}
	k := &checker{known: c}
	return k.labels(e), k.problems
}

func (k *checker) say(format string, args ...any) {
	k.problems = append(k.problems, fmt.Sprintf(format, args...))
}

func (k *checker) need(have set, names []string, where parser.Node) {
	for _, n := range names {
		if !have[n] {
			k.say("label %q in %s: there are only %v", n, where, slices.Sorted(maps.Keys(have)))
		}
	}
}

// labels that the answer to e may have; nil when e is a scalar.
func (k *checker) labels(e parser.Expr) set {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return k.selector(e)
	case *parser.MatrixSelector:
		return k.labels(e.VectorSelector)
	case *parser.SubqueryExpr:
		return k.labels(e.Expr)
	case *parser.ParenExpr:
		return k.labels(e.Expr)
	case *parser.UnaryExpr:
		return k.labels(e.Expr)
	case *parser.StepInvariantExpr:
		return k.labels(e.Expr)
	case *parser.AggregateExpr:
		return k.aggregate(e)
	case *parser.BinaryExpr:
		return k.binary(e)
	case *parser.Call:
		return k.call(e)
	}
	return nil
}

func (k *checker) selector(e *parser.VectorSelector) set {
	have, known := k.known[e.Name]
	if !known {
		k.say("metric %q is in no catalog", e.Name)
		return ambient
	}
	for _, m := range e.LabelMatchers {
		if m.Name != model.MetricNameLabel {
			k.need(have, []string{m.Name}, e)
		}
	}
	return have
}

func (k *checker) aggregate(e *parser.AggregateExpr) set {
	have := k.labels(e.Expr)
	k.need(have, e.Grouping, e)
	switch {
	case e.Op == parser.TOPK || e.Op == parser.BOTTOMK:
		return have
	case e.Without:
		return have.without(e.Grouping...)
	}
	return newSet(e.Grouping...)
}

func (k *checker) binary(e *parser.BinaryExpr) set {
	left, right := k.labels(e.LHS), k.labels(e.RHS)
	if e.VectorMatching == nil {
		return left.with(right)
	}
	m := e.VectorMatching
	if m.On {
		k.need(left, m.MatchingLabels, e)
		k.need(right, m.MatchingLabels, e)
	}
	switch {
	case e.Op == parser.LOR:
		return left.with(right)
	case e.Op.IsSetOperator():
		return left
	case m.Card == parser.CardManyToOne:
		k.need(right, m.Include, e)
		return left.with(newSet(m.Include...))
	case m.Card == parser.CardOneToMany:
		k.need(left, m.Include, e)
		return right.with(newSet(m.Include...))
	case m.On:
		return newSet(m.MatchingLabels...)
	}
	return left.without(m.MatchingLabels...)
}

func (k *checker) call(e *parser.Call) set {
	var have set
	for _, arg := range e.Args {
		if l := k.labels(arg); l != nil {
			have = have.with(l)
		}
	}
	text := func(i int) string { return e.Args[i].(*parser.StringLiteral).Val }
	switch e.Func.Name {
	case "label_replace":
		k.need(have, []string{text(3)}, e)
		return have.with(newSet(text(1)))
	case "histogram_quantile":
		return have.without("le")
	}
	return have
}

// metricBase strips what a histogram's series add to its name.
func metricBase(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, found := strings.CutSuffix(name, suffix); found {
			return base
		}
	}
	return name
}
