package querylint

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkMatching reports operands whose series can never match, and operands of which
// several series match one.
func (l *linter) checkMatching(n *parser.BinaryExpr) {
	if !isVector(n.LHS) || !isVector(n.RHS) || n.Op == parser.LOR {
		return
	}
	m, left, right := n.VectorMatching, l.of(n.LHS), l.of(n.RHS)
	if m.On {
		for _, label := range m.MatchingLabels {
			if left.may(label) != right.may(label) {
				l.addMatching(n, "no series can match: only the %s side has the label %q", sideWith(left.may(label)), label)
				return
			}
		}
		l.checkUnique(n, left, right)
		return
	}
	l.checkSameLabels(n, left, right)
}

// checkSameLabels checks operands that match on all labels except the ignored ones.
func (l *linter) checkSameLabels(n *parser.BinaryExpr, left, right labelSet) {
	ignored := n.VectorMatching.MatchingLabels
	switch {
	case left.open && right.open:
	case left.open != right.open:
		open, closed := left, right
		if right.open {
			open, closed = right, left
		}
		// A scraped series has at least the label instance.
		if open.metric != "" && level(open.metric) == "" && open.may("instance") && !closed.may("instance") && !slices.Contains(ignored, "instance") {
			l.addMatching(n, "no series can match: %s has labels that the %s side lacks, such as instance. Aggregate both sides by the same labels, or use on (...)", open.metric, sideWith(right.open))
		}
	default:
		var differing []string
		for _, label := range slices.Concat(left.distinguishing(), right.distinguishing()) {
			if left.may(label) != right.may(label) && !slices.Contains(ignored, label) {
				differing = append(differing, label)
			}
		}
		if len(differing) > 0 {
			l.addMatching(n, "no series can match: only one side has the label %s. Aggregate both sides by the same labels, or use on (...)", strings.Join(differing, ", "))
		}
	}
}

// checkUnique checks that the series of a side that must be unique cannot differ in labels
// that are not matched.
func (l *linter) checkUnique(n *parser.BinaryExpr, left, right labelSet) {
	if n.Op.IsSetOperator() {
		return
	}
	m := n.VectorMatching
	for _, side := range []struct {
		set    labelSet
		name   string
		unique bool
		group  string
	}{
		{left, "left", m.Card != parser.CardManyToOne, "group_left"},
		{right, "right", m.Card != parser.CardOneToMany, "group_right"},
	} {
		// A label that group_left adds to the result describes what the matched labels name.
		extra := side.set.distinguishing(append(slices.Clone(m.MatchingLabels), m.Include...)...)
		if side.unique && len(extra) > 0 {
			l.addMatching(n, "several series of the %s side may match, which differ in %s, and the query then fails: aggregate this side, or use %s", side.name, strings.Join(extra, ", "), side.group)
			return
		}
	}
}

// checkFallback reports an operand of or whose series belong to no cluster, as in or vector(0).
func (l *linter) checkFallback(n *parser.BinaryExpr) {
	if n.Op != parser.LOR || l.cluster == "" {
		return
	}
	left, right := l.of(n.LHS), l.of(n.RHS)
	if left.may(l.cluster) && !right.may(l.cluster) {
		l.add(RuleClusterLabel, n.RHS, "the series after or have no label %q and add no value for a cluster: write 0 * sum by (%s) (up), for example", l.cluster, l.cluster)
	}
}

func (l *linter) addMatching(n *parser.BinaryExpr, format string, args ...any) {
	l.addAt(RuleMatching, l.operatorOffset(n), format, args...)
}

func sideWith(left bool) string {
	if left {
		return "left"
	}
	return "right"
}
