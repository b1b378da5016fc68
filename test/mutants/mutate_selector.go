package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// selectorChanges removes, inverts and narrows each label matcher, and adds an offset.
func selectorChanges(e *parser.VectorSelector) []change {
	found := []change{{"offset 1h added to " + brief(e), func() { e.OriginalOffset += time.Hour }}}
	for i, m := range e.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			continue
		}
		replace := func(kind labels.MatchType, value string) func() {
			return func() { e.LabelMatchers[i] = labels.MustNewMatcher(kind, m.Name, value) }
		}
		found = append(found,
			change{fmt.Sprintf("matcher %s dropped in %s", m, brief(e)), func() { e.LabelMatchers = slices.Delete(e.LabelMatchers, i, i+1) }},
			change{fmt.Sprintf("matcher %s inverted in %s", m, brief(e)), replace(inverse[m.Type], m.Value)})
		if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
			for _, narrow := range narrower(m.Value) {
				found = append(found, change{fmt.Sprintf("matcher %s -> %q in %s", m, narrow, brief(e)), replace(m.Type, narrow)})
			}
		}
	}
	return found
}

var inverse = map[labels.MatchType]labels.MatchType{
	labels.MatchEqual: labels.MatchNotEqual, labels.MatchNotEqual: labels.MatchEqual,
	labels.MatchRegexp: labels.MatchNotRegexp, labels.MatchNotRegexp: labels.MatchRegexp,
}

var (
	repeated = regexp.MustCompile(`\.[*+]|\)\?`)
	innerOr  = regexp.MustCompile(`\([^()]*\|[^()]*\)`)
)

// narrower returns a regular expression without each of its alternatives, and without each
// of its wildcards.
func narrower(expr string) []string {
	var found []string
	for i, alternatives := 0, splitOutside(expr); len(alternatives) > 1 && i < len(alternatives); i++ {
		found = append(found, strings.Join(slices.Delete(slices.Clone(alternatives), i, i+1), "|"))
	}
	for _, at := range innerOr.FindAllStringIndex(expr, -1) {
		alternatives := strings.Split(expr[at[0]+1:at[1]-1], "|")
		for i := range alternatives {
			rest := slices.Delete(slices.Clone(alternatives), i, i+1)
			found = append(found, expr[:at[0]]+"("+strings.Join(rest, "|")+")"+expr[at[1]:])
		}
	}
	for _, at := range repeated.FindAllStringIndex(expr, -1) {
		with := ""
		if strings.HasPrefix(expr[at[0]:], ")") {
			with = ")"
		}
		found = append(found, expr[:at[0]]+with+expr[at[1]:])
	}
	return slices.DeleteFunc(found, func(s string) bool { _, err := regexp.Compile(s); return err != nil })
}

// splitOutside splits at each | that is not in parentheses.
func splitOutside(expr string) []string {
	parts, depth, start := []string{}, 0, 0
	for i, c := range expr {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				parts, start = append(parts, expr[start:i]), i+1
			}
		}
	}
	return append(parts, expr[start:])
}
