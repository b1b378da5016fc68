package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// mutant is a rule with one change.
type mutant struct {
	change string
	rule   rule
}

// mutantsOf returns the mutants of a rule: of its expression, its durations, its labels and its
// annotations.
func mutantsOf(original rule) []mutant {
	var found []mutant
	expr, err := parse(original.content.Expr)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", original.name(), err)) // promtool check rules has accepted the rule.
	}
	unchanged := expr.String()
	seen := map[string]bool{unchanged: true}
	for i := range changesOf(&expr) {
		expr, _ = parse(original.content.Expr)
		c := changesOf(&expr)[i]
		c.apply()
		changed := expr.String()
		if _, err := parse(changed); err != nil || seen[changed] {
			continue
		}
		seen[changed] = true
		found = append(found, mutant{c.what, original.with(func(r *ruleContent) { r.Expr = changed })})
	}
	for _, d := range otherHolds(original.content.For) {
		found = append(found, mutant{"for: " + original.content.For + " -> " + d, original.with(func(r *ruleContent) { r.For = d })})
	}
	for _, d := range otherHolds(original.content.KeepFiringFor) {
		found = append(found, mutant{"keep_firing_for: " + original.content.KeepFiringFor + " -> " + d, original.with(func(r *ruleContent) { r.KeepFiringFor = d })})
	}
	if original.content.Alert != "" && original.content.For == "" {
		found = append(found, mutant{"for: none -> 5m", original.with(func(r *ruleContent) { r.For = "5m" })})
	}
	if original.content.Alert != "" && original.content.KeepFiringFor == "" {
		found = append(found, mutant{"keep_firing_for: none -> 5m", original.with(func(r *ruleContent) { r.KeepFiringFor = "5m" })})
	}
	for _, name := range slices.Sorted(maps.Keys(original.content.Annotations)) {
		found = append(found, mutant{"annotation " + name + " changed", original.with(func(r *ruleContent) { r.Annotations[name] += " x" })})
	}
	for _, name := range slices.Sorted(maps.Keys(original.content.Labels)) {
		found = append(found,
			mutant{"label " + name + " removed", original.with(func(r *ruleContent) { delete(r.Labels, name) })},
			mutant{"label " + name + " changed", original.with(func(r *ruleContent) { r.Labels[name] += "_x" })})
	}
	return found
}

// otherHolds returns a shorter and a longer duration: a tenth of it, at least a minute.
func otherHolds(hold string) []string {
	if hold == "" {
		return nil
	}
	d, err := model.ParseDuration(hold)
	if err != nil {
		panic(err)
	}
	step := max(time.Duration(d)/10, time.Minute)
	return []string{model.Duration(time.Duration(d) - step).String(), model.Duration(time.Duration(d) + step).String()}
}

// change is one way to change an expression in place.
type change struct {
	what  string
	apply func()
}

// changesOf returns the changes of an expression and its operands. Each applies to this
// parsed expression only.
func changesOf(at *parser.Expr) []change {
	var found []change
	add := func(what string, apply func()) { found = append(found, change{what, apply}) }
	switch e := (*at).(type) {
	case *parser.NumberLiteral:
		for _, v := range otherNumbers(e.Val) {
			add(fmt.Sprintf("%v -> %v", e.Val, v), func() { e.Val = v })
		}
	case *parser.VectorSelector:
		found = append(found, selectorChanges(e)...)
	case *parser.MatrixSelector:
		for _, d := range otherRanges(e.Range) {
			add(fmt.Sprintf("[%s] -> [%s] in %s", model.Duration(e.Range), model.Duration(d), e), func() { e.Range = d })
		}
		found = append(found, changesOf(&e.VectorSelector)...)
	case *parser.SubqueryExpr:
		for _, d := range otherRanges(e.Range) {
			add(fmt.Sprintf("[%s] -> [%s] in %s", model.Duration(e.Range), model.Duration(d), e), func() { e.Range = d })
		}
		found = append(found, changesOf(&e.Expr)...)
	case *parser.AggregateExpr:
		found = append(found, aggregateChanges(e)...)
	case *parser.BinaryExpr:
		found = append(found, binaryChanges(at, e)...)
		found = append(found, changesOf(&e.LHS)...)
		found = append(found, changesOf(&e.RHS)...)
	case *parser.Call:
		found = append(found, callChanges(at, e)...)
		for i := range e.Args {
			found = append(found, changesOf(&e.Args[i])...)
		}
	case *parser.ParenExpr:
		found = append(found, changesOf(&e.Expr)...)
	case *parser.UnaryExpr:
		found = append(found, changesOf(&e.Expr)...)
	}
	return found
}

// isOne reports whether all values of an expression are 1.
func isOne(e parser.Expr) bool {
	switch e := e.(type) {
	case *parser.AggregateExpr:
		return e.Op == parser.GROUP
	case *parser.VectorSelector:
		return strings.HasSuffix(e.Name, ":info")
	case *parser.BinaryExpr:
		one, isNumber := e.RHS.(*parser.NumberLiteral)
		return e.Op == parser.EQLC && !e.ReturnBool && isNumber && one.Val == 1 ||
			(e.Op == parser.LAND || e.Op == parser.LUNLESS) && isOne(unwrap(e.LHS))
	}
	return false
}

// dropsFixedLabel reports whether an aggregation only drops a label for which its selector
// has a single value, as in max without (state) (x{state="free"}).
func dropsFixedLabel(e *parser.AggregateExpr) bool {
	s, isSelector := unwrap(e.Expr).(*parser.VectorSelector)
	return isSelector && e.Without && len(e.Grouping) == 1 && slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == e.Grouping[0] && m.Type == labels.MatchEqual
	})
}

// unwrap returns an expression without the parentheses around it.
func unwrap(e parser.Expr) parser.Expr {
	for {
		p, isParen := e.(*parser.ParenExpr)
		if !isParen {
			return e
		}
		e = p.Expr
	}
}

// otherNumbers returns a smaller and a larger number: by 1 up to 10, otherwise by a tenth.
func otherNumbers(v float64) []float64 {
	switch {
	case v == 0:
		return []float64{1}
	case v == float64(int(v)) && v <= 10:
		return []float64{v - 1, v + 1}
	}
	return []float64{v * 0.9, v * 1.1}
}

// otherRanges returns a shorter and a longer range, by a fifth and by a quarter.
func otherRanges(d time.Duration) []time.Duration {
	return []time.Duration{d / 5 * 4, d / 4 * 5}
}

var otherAggregations = map[parser.ItemType][]parser.ItemType{
	parser.SUM:    {parser.MAX, parser.MIN},
	parser.MAX:    {parser.MIN, parser.SUM},
	parser.MIN:    {parser.MAX, parser.SUM},
	parser.AVG:    {parser.MAX, parser.MIN},
	parser.COUNT:  {parser.SUM, parser.MAX},
	parser.STDDEV: {parser.STDVAR, parser.AVG},
}

var otherOperators = map[parser.ItemType][]parser.ItemType{
	parser.LAND:    {parser.LUNLESS, parser.LOR},
	parser.LUNLESS: {parser.LAND, parser.LOR},
	parser.LOR:     {parser.LAND},
	parser.ADD:     {parser.SUB},
	parser.SUB:     {parser.ADD},
	parser.MUL:     {parser.DIV},
	parser.DIV:     {parser.MUL},
	parser.EQLC:    {parser.NEQ},
	parser.NEQ:     {parser.EQLC},
	parser.LSS:     {parser.GTR, parser.LTE},
	parser.GTR:     {parser.LSS, parser.GTE},
	parser.LTE:     {parser.GTE, parser.LSS},
	parser.GTE:     {parser.LTE, parser.GTR},
}

// binaryChanges changes the operator, the labels that the operands match on, and removes an
// operand of a set operator.
func binaryChanges(at *parser.Expr, e *parser.BinaryExpr) []change {
	var found []change
	isJoin := e.VectorMatching != nil && (e.VectorMatching.Card == parser.CardManyToOne || e.VectorMatching.Card == parser.CardOneToMany)
	for _, op := range otherOperators[e.Op] {
		if zero, isNumber := e.LHS.(*parser.NumberLiteral); op == parser.DIV && (isJoin || isNumber && zero.Val == 0) {
			continue // A join multiplies by 1. And 0/x is 0*x.
		}
		found = append(found, change{fmt.Sprintf("%s -> %s in %s", e.Op, op, brief(e)), func() { e.Op = op }})
	}
	if e.Op.IsSetOperator() {
		found = append(found, change{"right operand dropped in " + brief(e), func() { *at = e.LHS }})
	}
	if e.Op == parser.LOR {
		found = append(found, change{"left operand dropped in " + brief(e), func() { *at = e.RHS }})
	}
	m := e.VectorMatching
	if m == nil {
		return found
	}
	for i, label := range m.MatchingLabels {
		found = append(found, change{fmt.Sprintf("matching label %s dropped in %s", label, brief(e)), func() { m.MatchingLabels = slices.Delete(m.MatchingLabels, i, i+1) }})
	}
	for i, label := range m.Include {
		found = append(found, change{fmt.Sprintf("group_left label %s dropped in %s", label, brief(e)), func() { m.Include = slices.Delete(m.Include, i, i+1) }})
	}
	if m.Card == parser.CardManyToOne || m.Card == parser.CardOneToMany {
		found = append(found, change{"group_left dropped in " + brief(e), func() { m.Card, m.Include = parser.CardOneToOne, nil }})
	}
	return found
}

var otherFunctions = map[string][]string{
	"increase":        {"rate"},
	"rate":            {"increase"},
	"avg_over_time":   {"max_over_time", "min_over_time"},
	"max_over_time":   {"min_over_time", "sum_over_time"},
	"min_over_time":   {"max_over_time"},
	"sum_over_time":   {"max_over_time"},
	"count_over_time": {"sum_over_time"},
	"floor":           {"ceil"},
	"clamp_min":       {"clamp_max"},
}

// callChanges replaces a function by a similar one, and a label_replace by its operand.
func callChanges(at *parser.Expr, e *parser.Call) []change {
	var found []change
	for _, name := range otherFunctions[e.Func.Name] {
		found = append(found, change{fmt.Sprintf("%s -> %s in %s", e.Func.Name, name, brief(e)), func() { e.Func = parser.Functions[name] }})
	}
	switch e.Func.Name {
	case "label_replace":
		found = append(found, change{fmt.Sprintf("label_replace of %s by %s from %s %s dropped", e.Args[1], e.Args[2], e.Args[3], e.Args[4]), func() { *at = e.Args[0] }})
	case "floor", "clamp_min", "timestamp":
		found = append(found, change{e.Func.Name + " dropped in " + brief(e), func() { *at = e.Args[0] }})
	}
	return found
}

// brief returns the first 100 characters of an expression.
func brief(e parser.Expr) string {
	text := strings.Join(strings.Fields(e.String()), " ")
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return text
}

// aggregateChanges returns the changes of an aggregation and its operands.
func aggregateChanges(e *parser.AggregateExpr) []change {
	var found []change
	add := func(what string, apply func()) { found = append(found, change{what, apply}) }
	countsOnes := e.Op == parser.COUNT && isOne(unwrap(e.Expr))
	for _, op := range otherAggregations[e.Op] {
		if countsOnes && op == parser.SUM || dropsFixedLabel(e) {
			continue // The sum of ones is their number, and one series has one value.
		}
		add(fmt.Sprintf("%s -> %s in %s", e.Op, op, brief(e)), func() { e.Op = op })
	}
	for i, label := range e.Grouping {
		add(fmt.Sprintf("grouping label %s dropped in %s", label, brief(e)), func() { e.Grouping = slices.Delete(e.Grouping, i, i+1) })
	}
	if e.Param != nil {
		found = append(found, changesOf(&e.Param)...)
	}
	found = append(found, changesOf(&e.Expr)...)
	return found
}
