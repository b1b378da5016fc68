package querylint

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// labelSet is what is known about the labels of the series in its result.
type labelSet struct {
	// open is true if the series may have any label except those in names. Otherwise
	// they may have only the labels in names.
	open  bool
	names map[string]bool
	// fixed labels have one value in all series, because a matcher requires it.
	fixed map[string]bool
	// per are labels of which each combination of values has at most one series; nil if that
	// is not known.
	per []string
	// metric is the name of the metric of an open set, if there is one.
	metric string
	// lostAt is the innermost expression that removes the cluster label, or nil.
	lostAt parser.Expr
}

func closedSet(names ...string) labelSet {
	s := labelSet{names: map[string]bool{}, fixed: map[string]bool{}}
	for _, name := range names {
		s.names[name] = true
	}
	return s
}

// may reports whether series of the set may have the label.
func (s labelSet) may(label string) bool { return s.names[label] != s.open }

// clone returns a copy that can be changed.
func (s labelSet) clone() labelSet {
	s.names, s.fixed = maps.Clone(s.names), maps.Clone(s.fixed)
	return s
}

// with returns the set with one more label, whose value is not fixed.
func (s labelSet) with(label string) labelSet {
	s = s.clone()
	if s.open {
		delete(s.names, label)
	} else {
		s.names[label] = true
	}
	delete(s.fixed, label)
	if slices.Contains(s.per, label) {
		s.per = nil
	}
	return s
}

// without returns the set without the labels.
func (s labelSet) without(removed []string) labelSet {
	s = s.clone()
	for _, label := range removed {
		if slices.Contains(s.per, label) {
			s.per = nil
		}
		if s.open {
			s.names[label] = true
		} else {
			delete(s.names, label)
		}
		delete(s.fixed, label)
	}
	return s
}

// only returns the set with only the labels in kept.
func (s labelSet) only(kept []string) labelSet {
	result := closedSet()
	result.lostAt = s.lostAt
	if !slices.ContainsFunc(s.per, func(label string) bool { return !slices.Contains(kept, label) }) {
		result.per = s.per
	}
	for _, label := range kept {
		if s.may(label) {
			result.names[label] = true
		}
		if s.fixed[label] {
			result.fixed[label] = true
		}
	}
	return result
}

// distinguishing returns the sorted labels by which the series of a closed set can differ,
// apart from the given ones. For an open set, only the labels in per are known.
func (s labelSet) distinguishing(apartFrom ...string) []string {
	names := slices.Collect(maps.Keys(s.names))
	switch {
	case s.per != nil:
		names = slices.DeleteFunc(slices.Clone(s.per), func(label string) bool { return !s.may(label) })
	case s.open:
		return nil
	}
	var found []string
	for _, label := range names {
		if !s.fixed[label] && !slices.Contains(apartFrom, label) {
			found = append(found, label)
		}
	}
	slices.Sort(found)
	return found
}

// flow derives label sets.
type flow struct {
	// cluster is the label that identifies the cluster of a series; "" if none does.
	cluster string
}

// of returns the label set of an expression.
func (f flow) of(e parser.Expr) labelSet {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return f.of(n.Expr)
	case *parser.UnaryExpr:
		return f.of(n.Expr)
	case *parser.StepInvariantExpr:
		return f.of(n.Expr)
	case *parser.SubqueryExpr:
		return f.of(n.Expr)
	case *parser.MatrixSelector:
		return f.of(n.VectorSelector)
	case *parser.VectorSelector:
		return selected(n)
	case *parser.AggregateExpr:
		return f.note(n, f.of(n.Expr), f.aggregated(n))
	case *parser.Call:
		return f.called(n)
	case *parser.BinaryExpr:
		return f.combined(n)
	}
	return closedSet() // literals
}

// note records in result that e removes the cluster label, if its input may have it.
func (f flow) note(e parser.Expr, input, result labelSet) labelSet {
	if f.cluster != "" && input.may(f.cluster) && !result.may(f.cluster) {
		result.lostAt = e
	}
	return result
}

func selected(n *parser.VectorSelector) labelSet {
	s := labelSet{open: true, names: map[string]bool{}, fixed: map[string]bool{}, metric: metricName(n)}
	for _, m := range n.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel || m.Type != labels.MatchEqual:
		case m.Value == "":
			s.names[m.Name] = true
		default:
			s.fixed[m.Name] = true
		}
	}
	return s
}

// metricName returns the metric that a selector reads, or "" if it may read several.
func metricName(n *parser.VectorSelector) string {
	if n.Name != "" {
		return n.Name
	}
	for _, m := range n.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

func (f flow) aggregated(n *parser.AggregateExpr) labelSet {
	input := f.of(n.Expr)
	switch n.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		if k, ok := unwrap(n.Param).(*parser.NumberLiteral); ok && k.Val == 1 && n.Op != parser.LIMIT_RATIO && len(n.Grouping) > 0 && !n.Without {
			input.per = n.Grouping // one series for each value
		}
		return input
	}
	result := input.without(n.Grouping)
	if !n.Without {
		result = input.only(n.Grouping)
	}
	if name, ok := n.Param.(*parser.StringLiteral); ok && n.Op == parser.COUNT_VALUES {
		result = result.with(name.Val)
	}
	return result
}

func (f flow) called(n *parser.Call) labelSet {
	var input labelSet
	if i := slices.IndexFunc(n.Args, isVector); i >= 0 {
		input = f.of(n.Args[i])
	} else {
		input = closedSet()
	}
	switch n.Func.Name {
	case "absent", "absent_over_time":
		return f.note(n, input, input.only(slices.Collect(maps.Keys(input.fixed))))
	case "label_replace", "label_join":
		return f.relabeled(n, input)
	case "histogram_quantile", "histogram_fraction":
		return input.without([]string{"le"})
	case "info": // adds labels of info metrics
		return labelSet{open: true, names: map[string]bool{}, fixed: input.fixed, metric: input.metric}
	case "scalar":
		return f.note(n, input, closedSet())
	}
	return input
}

// relabeled returns the labels after label_replace or label_join. The new value is fixed if
// it is a text without groups. If the cluster label is made of the whole values of other labels,
// these can't differ between series of a cluster.
func (f flow) relabeled(n *parser.Call, input labelSet) labelSet {
	name, ok := n.Args[1].(*parser.StringLiteral)
	if !ok {
		return input
	}
	result := input.with(name.Val)
	sources := n.Args[3:]
	if n.Func.Name == "label_replace" {
		value := textOf(n.Args[2])
		switch {
		case name.Val == f.cluster && isEmptied(n, input): // an empty label is none
			return f.note(n, input, input.without([]string{name.Val}))
		case value != "" && !strings.Contains(value, "$"):
			result.fixed[name.Val] = true
		}
		isWhole := wholeValue.MatchString(textOf(n.Args[4])) && (strings.Contains(value, "$1") || strings.Contains(value, "${1}"))
		if sources = n.Args[3:4]; !isWhole {
			sources = nil
		}
	}
	for _, source := range sources {
		if label := textOf(source); name.Val == f.cluster && label != name.Val {
			result.fixed[label] = true
		}
	}
	return result
}

// isEmptied reports whether label_replace writes an empty text: the value is empty, or has only groups that the regular
// expression does not have, or that are empty because the series lost the source label.
func isEmptied(n *parser.Call, input labelSet) bool {
	value, source := textOf(n.Args[2]), textOf(n.Args[3])
	re, err := regexp.Compile("^(?s:" + textOf(n.Args[4]) + ")$")
	if value == "" || err != nil {
		return value == ""
	}
	if !input.may(source) {
		groups := re.FindStringSubmatchIndex("")
		return groups != nil && len(re.ExpandString(nil, value, "", groups)) == 0
	}
	groups := slices.Repeat([]int{0, 1}, re.NumSubexp()+1) // each group has a text
	return len(re.ExpandString(nil, value, "x", groups)) == 0
}

// wholeValue matches a regular expression whose one group is the whole value of a label, apart from
// a text before and after it that all values have.
var wholeValue = regexp.MustCompile(`^[-_/:=@a-zA-Z0-9]*\(\.[*+]\)[-_/:=@a-zA-Z0-9]*$`)

// textOf returns the text of a string literal, and "" for another expression.
func textOf(e parser.Expr) string {
	if s, ok := e.(*parser.StringLiteral); ok {
		return s.Val
	}
	return ""
}

func isVector(e parser.Expr) bool {
	return e.Type() == parser.ValueTypeVector || e.Type() == parser.ValueTypeMatrix
}

func (f flow) combined(n *parser.BinaryExpr) labelSet {
	left, right := f.of(n.LHS), f.of(n.RHS)
	switch {
	case !isVector(n.LHS):
		return right
	case !isVector(n.RHS):
		return left
	case n.Op == parser.LAND || n.Op == parser.LUNLESS:
		return left
	case n.Op == parser.LOR:
		return union(left, right)
	}
	var result labelSet
	switch m := n.VectorMatching; {
	case m.Card == parser.CardManyToOne:
		result = left
	case m.Card == parser.CardOneToMany:
		result = right
	case m.On:
		result = left.only(m.MatchingLabels)
		for label := range right.fixed {
			result.fixed[label] = result.fixed[label] || result.names[label]
		}
		return f.note(n, left, result)
	default:
		result = left.without(m.MatchingLabels)
		if left.open && !right.open {
			result = right.without(m.MatchingLabels)
		}
		result = result.clone()
		for label := range right.fixed {
			result.fixed[label] = result.may(label)
		}
		return f.note(n, left, result)
	}
	for _, label := range n.VectorMatching.Include {
		result = result.with(label)
	}
	return result
}

// union returns the labels that series of either set may have. A label is fixed only if it
// is fixed in both.
func union(a, b labelSet) labelSet {
	result := labelSet{open: a.open || b.open, names: map[string]bool{}, fixed: map[string]bool{}, metric: a.metric}
	if a.lostAt != nil && b.lostAt != nil {
		result.lostAt = a.lostAt
	}
	for _, label := range slices.Concat(slices.Collect(maps.Keys(a.names)), slices.Collect(maps.Keys(b.names))) {
		if (a.may(label) || b.may(label)) != result.open {
			result.names[label] = true
		}
	}
	for label := range a.fixed {
		if b.fixed[label] {
			result.fixed[label] = true
		}
	}
	return result
}
