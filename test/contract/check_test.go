package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// labelSet is a set of label names.
type labelSet map[string]bool

func newLabelSet(names ...string) labelSet {
	s := labelSet{}
	for _, n := range names {
		s[n] = true
	}
	return s
}

func (s labelSet) with(other labelSet) labelSet {
	union := labelSet{}
	maps.Copy(union, s)
	maps.Copy(union, other)
	return union
}

func (s labelSet) intersect(other labelSet) labelSet {
	common := maps.Clone(s)
	maps.DeleteFunc(common, func(name string, _ bool) bool { return !other[name] })
	return common
}

func (s labelSet) without(names ...string) labelSet {
	rest := maps.Clone(s)
	for _, n := range names {
		delete(rest, n)
	}
	return rest
}

// targetLabels are the labels that Prometheus or Thanos add to all series.
var targetLabels = newLabelSet("cluster", "job", "instance")

// catalog contains the labels of each known metric.
type catalog map[string]labelSet

func (c catalog) add(name string, names ...string) {
	c[name] = newLabelSet(names...).with(targetLabels)
}

// checker finds unknown metrics in an expression, and labels that a metric does not
// have, also in by, on and label_replace.
type checker struct {
	known    catalog
	problems []string
}

// check returns the labels of the expression's result, and its problems.
func (c catalog) check(expr string) (labelSet, []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, []string{err.Error()}
	}
	k := &checker{known: c}
	return k.labels(e), k.problems
}

func (k *checker) report(format string, args ...any) {
	k.problems = append(k.problems, fmt.Sprintf(format, args...))
}

func (k *checker) requireLabels(have labelSet, names []string, where parser.Node) {
	for _, n := range names {
		if !have[n] {
			k.report("label %q in %s: only %v exist", n, where, slices.Sorted(maps.Keys(have)))
		}
	}
}

// labels returns the labels that the result of e may have; nil if e is a scalar.
func (k *checker) labels(e parser.Expr) labelSet {
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

// selector returns the labels of a metric. Of {__name__=~"a|b"} it returns those that all of the
// metrics have.
func (k *checker) selector(e *parser.VectorSelector) labelSet {
	names := []string{e.Name}
	for _, m := range e.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchRegexp {
			names = m.SetMatches()
		}
	}
	if len(names) == 0 {
		k.report("%s does not list its metrics", e)
	}
	var have labelSet
	for i, name := range names {
		own, known := k.known[name]
		if !known {
			k.report("metric %q is unknown", name)
			return targetLabels
		}
		if i == 0 {
			have = own
		}
		have = have.intersect(own)
	}
	for _, m := range e.LabelMatchers {
		if m.Name != model.MetricNameLabel {
			k.requireLabels(have, []string{m.Name}, e)
		}
	}
	return have
}

func (k *checker) aggregate(e *parser.AggregateExpr) labelSet {
	have := k.labels(e.Expr)
	k.requireLabels(have, e.Grouping, e)
	switch {
	case e.Op == parser.TOPK || e.Op == parser.BOTTOMK:
		return have
	case e.Without:
		return have.without(e.Grouping...)
	}
	return newLabelSet(e.Grouping...)
}

func (k *checker) binary(e *parser.BinaryExpr) labelSet {
	left, right := k.labels(e.LHS), k.labels(e.RHS)
	if e.VectorMatching == nil {
		return left.with(right)
	}
	m := e.VectorMatching
	if m.On {
		k.requireLabels(left, m.MatchingLabels, e)
		k.requireLabels(right, m.MatchingLabels, e)
	}
	switch {
	case e.Op == parser.LOR:
		return left.with(right)
	case e.Op.IsSetOperator():
		return left
	case m.Card == parser.CardManyToOne:
		k.requireLabels(right, m.Include, e)
		return left.with(newLabelSet(m.Include...))
	case m.Card == parser.CardOneToMany:
		k.requireLabels(left, m.Include, e)
		return right.with(newLabelSet(m.Include...))
	case m.On:
		return newLabelSet(m.MatchingLabels...)
	}
	return left.without(m.MatchingLabels...)
}

func (k *checker) call(e *parser.Call) labelSet {
	var have labelSet
	for _, arg := range e.Args {
		if l := k.labels(arg); l != nil {
			have = have.with(l)
		}
	}
	text := func(i int) string { return e.Args[i].(*parser.StringLiteral).Val }
	switch e.Func.Name {
	case "label_replace":
		if text(3) != "" { // an empty source label sets a fixed value
			k.requireLabels(have, []string{text(3)}, e)
		}
		return have.with(newLabelSet(text(1)))
	case "label_join":
		for i := 3; i < len(e.Args); i++ {
			k.requireLabels(have, []string{text(i)}, e)
		}
		return have.with(newLabelSet(text(1)))
	case "histogram_quantile":
		return have.without("le")
	}
	return have
}

// metricBase removes the suffix of a histogram's series from a metric's name.
func metricBase(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, found := strings.CutSuffix(name, suffix); found {
			return base
		}
	}
	return name
}
