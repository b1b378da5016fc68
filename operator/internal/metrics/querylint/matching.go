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
		if l.mixesClusters(m, left, right) {
			l.addMatching(n, "series of different clusters match, which have the same %s: write on (%s)", strings.Join(m.MatchingLabels, ", "), strings.Join(append([]string{l.cluster}, m.MatchingLabels...), ", "))
			return
		}
	} else if !l.checkSameLabels(n, left, right) {
		return
	}
	l.checkUnique(n, left, right)
}

// checkSameLabels checks operands that match on all labels except the ignored ones. It reports
// whether their series can match.
func (l *linter) checkSameLabels(n *parser.BinaryExpr, left, right labelSet) bool {
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
			return false
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
			return false
		}
	}
	return true
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
		extra := l.unmatchedLabels(side.set, m)
		if side.unique && len(extra) > 0 {
			l.addMatching(n, "several series of the %s side may match, which differ in %s, and the query then fails: aggregate this side, or use %s", side.name, strings.Join(extra, ", "), side.group)
			return
		}
	}
}

// inCluster are labels whose values name things in a cluster. Several clusters can have the same
// values.
var inCluster = []string{"node", "instance", "pod", "namespace", "container", "gpu", "device", "cluster_queue"}

// severalInCluster are labels that usually have several values in a cluster.
var severalInCluster = append([]string{"uuid", "model", "resource", "flavor", "job", "le"}, inCluster...)

// mixesClusters reports whether operands match on labels such as the name of a node, which name
// things in a cluster, and not on the cluster. A label that group_left takes from the other operand
// is not that of this one.
func (l *linter) mixesClusters(m *parser.VectorMatching, left, right labelSet) bool {
	isNamed, isOther := false, false
	for _, label := range m.MatchingLabels {
		label = strings.ToLower(label)
		isNamed = isNamed || slices.Contains(inCluster, label)
		isOther = isOther || label == "uuid" || !slices.Contains(severalInCluster, label)
	}
	isUnmatched := l.cluster != "" && isNamed && !isOther && !slices.Contains(m.Include, l.cluster)
	return isUnmatched && left.may(l.cluster) && right.may(l.cluster) && !left.fixed[l.cluster] && !right.fixed[l.cluster]
}

// unmatchedLabels returns the labels in which series of a closed set can differ although all their
// matched labels are equal.
//
// A label that group_left adds to the result describes what the matched labels name: a node has
// one model. If they name no more than the cluster, the label must describe the cluster, as a
// region does.
func (l *linter) unmatchedLabels(s labelSet, m *parser.VectorMatching) []string {
	isMatched := func(label string) bool { return slices.Contains(m.MatchingLabels, label) == m.On }
	namesMore := false
	for label := range s.names {
		namesMore = namesMore || !s.open && label != l.cluster && isMatched(label)
	}
	return slices.DeleteFunc(s.distinguishing(), func(label string) bool {
		isDescribed := namesMore || !slices.Contains(severalInCluster, strings.ToLower(label))
		return isMatched(label) || slices.Contains(m.Include, label) && isDescribed
	})
}

// checkFallback reports an operand of or whose series belong to no cluster, as in or vector(0).
// path are the expressions around it, the outermost first.
func (l *linter) checkFallback(n *parser.BinaryExpr, path []parser.Node) {
	if n.Op != parser.LOR || l.cluster == "" {
		return
	}
	left, right := l.of(n.LHS), l.of(n.RHS)
	if left.may(l.cluster) && !right.may(l.cluster) && l.clusterReachesResult(n, path) {
		l.add(RuleClusterLabel, n.RHS, "the series after or have no label %q and add no value for a cluster: write 0 * sum by (%s) (up), for example", l.cluster, l.cluster)
	}
}

// clusterReachesResult reports whether the cluster label of an expression reaches the result of
// the query. It does not reach it through scalar, through an aggregation of all clusters, or from
// a side of an operator whose labels are dropped.
func (l *linter) clusterReachesResult(e parser.Expr, path []parser.Node) bool {
	inner := parser.Node(e)
	for _, node := range slices.Backward(path) {
		outer, ok := node.(parser.Expr)
		if !ok {
			continue // a list of arguments
		}
		if !l.of(outer).may(l.cluster) {
			return false
		}
		if n, ok := outer.(*parser.BinaryExpr); ok && l.dropsCluster(n, inner) {
			return false
		}
		inner = outer
	}
	return true
}

// dropsCluster reports whether an operator neither matches on the cluster label nor keeps that of
// one of its operands.
func (l *linter) dropsCluster(n *parser.BinaryExpr, operand parser.Node) bool {
	m := n.VectorMatching
	if m == nil || n.Op == parser.LOR || slices.Contains(m.Include, l.cluster) || slices.Contains(m.MatchingLabels, l.cluster) == m.On {
		return false
	}
	if m.Card == parser.CardOneToMany {
		return operand == n.LHS
	}
	return operand == n.RHS
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
