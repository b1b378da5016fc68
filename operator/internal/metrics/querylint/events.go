package querylint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// events are words in the names of counters whose series begins with the first event.
var events = regexp.MustCompile(`(?i)(^|_)(xids?|errs?|errors?|fail\w*|faults?|resets?|ooms?|evict\w*|drop\w*|restart\w*|throttl\w*|violations?)(_|$)`)

// eventValues are values of labels that only an event gives a series: code="500", reason="Error".
var eventValues = regexp.MustCompile(`(?i)^[45][0-9.x]|(^|[^a-z])(errs?|errors?|fail\w*|faults?|oom\w*|evict\w*|crit\w*|timeouts?|abort\w*)([^a-z]|$)|[a-z](Error|Failed|Evicted)`)

// alwaysCounted are the beginnings of counters that exporters report from 0 on.
var alwaysCounted = []string{"DCGM_FI_", "container_", "kube_", "node_"}

// recordedEvents are what the shipped rules record of counters of events, with 0 where there were none.
var recordedEvents = map[string]string{"plimsoll_xid_total": "cluster_severity:plimsoll_xid_events:increase1d"}

// rareSeries is a part of an expression that has no series for a cluster in which there is nothing to count.
type rareSeries struct {
	counter string          // of events; "" for a number of series
	at      parser.Expr     // the outermost aggregation, or else the rate or increase
	op      parser.ItemType // that gives the number of series
}

// reason says which clusters lack the series.
func (s *rareSeries) reason() string {
	if s.counter == "" {
		return s.op.String() + " is never 0: clusters without such series have none"
	}
	return "clusters where no event was counted may have no series " + s.counter
}

// hint says what to write: a recorded series that counts the events from 0 on, or else what otherwise says.
func (s *rareSeries) hint(otherwise string) string {
	if recorded := recordedEvents[s.counter]; recorded != "" {
		return "read " + recorded
	}
	return otherwise
}

// checkRareNumber reports a number that a cluster lacks until its first event, or while there is nothing to count
// although few is better.
func (l *linter) checkRareNumber(e parser.Expr) {
	s := neededSeries(e)
	if s == nil || l.options.AbsentAccepted || l.options.NameLabel != "" {
		return
	}
	if sign, ok := withoutParens(e).(*parser.UnaryExpr); s.counter == "" && !l.options.LessIsBetter && (!ok || sign.Op != parser.SUB) {
		return
	}
	l.add(RuleEvent, s.at, "%s, and get no value: %s", s.reason(), s.hint("write "+l.withZero(s.at)))
}

// checkRareComparison reports a comparison that holds for 0, and that a cluster does not meet because it has no series.
// isPart means that the requirement has other parts.
func (l *linter) checkRareComparison(comparison *parser.BinaryExpr, isPart bool) {
	s := neededSeries(comparison)
	if s == nil {
		return
	}
	switch recorded := recordedEvents[s.counter]; {
	case isPart:
		l.add(RuleEvent, comparison, "%s, and do not meet the requirement: %s", s.reason(), s.hint("write "+l.withZero(s.at)))
	case !l.options.AbsentAccepted:
		l.add(RuleEvent, comparison, "%s, and do not meet the requirement: %s", s.reason(), s.hint("set absent: Met"))
	case recorded != "":
		l.add(RuleEvent, comparison, "the series of %s begins with the first event, which rate and increase do not count: read %s", s.counter, recorded)
	}
}

// checkRareExclusion reports the right side of unless if it keeps clusters without events, or removes those whose
// events are long over.
func (l *linter) checkRareExclusion(e parser.Expr) {
	s := neededSeries(e)
	comparison, _ := unwrap(e).(*parser.BinaryExpr)
	isFilter := comparison != nil && comparison.Op.IsComparisonOperator() && !comparison.ReturnBool
	switch {
	case s == nil:
	case isFilter && holdsForZero(comparison):
		l.add(RuleEvent, e, "%s, and are not removed: %s", s.reason(), s.hint("write "+l.withZero(s.at)))
	case !isFilter && s.counter != "":
		l.add(RuleEvent, e, "removes every cluster that ever counted an event in %s, also if there is none in this time: write unless (... > 0)", s.counter)
	}
}

// withZero returns an expression that is 0 for clusters without a series.
func (l *linter) withZero(e parser.Expr) string {
	text := e.String()
	if len(text) > maxHint {
		text = "..."
	}
	if l.cluster == "" {
		return fmt.Sprintf("(%s or vector(0))", text)
	}
	return fmt.Sprintf("(%s or 0 * group by (%s) (up{job=JOB} == 1))", text, l.cluster)
}

// maxHint is the length of an expression above which a message does not repeat it.
const maxHint = 100

// neededSeries returns the rate or increase of a counter of events, or the number of selected series, without which an
// expression has no series; nil = none.
func neededSeries(e parser.Expr) *rareSeries {
	switch n := unwrap(e).(type) {
	case *parser.AggregateExpr:
		if inner := neededSeries(n.Expr); inner != nil {
			return &rareSeries{inner.counter, n, inner.op}
		}
		if (n.Op == parser.COUNT || n.Op == parser.SUM && isInfo(n.Expr)) && isSelection(n.Expr) {
			return &rareSeries{"", n, n.Op}
		}
	case *parser.SubqueryExpr:
		return neededSeries(n.Expr)
	case *parser.Call:
		return neededByCall(n)
	case *parser.BinaryExpr:
		left, right := neededSeries(n.LHS), neededSeries(n.RHS)
		fill := n.VectorMatching != nil && n.VectorMatching.FillValues != (parser.VectorMatchFillValues{})
		switch {
		case n.Op == parser.LUNLESS:
			return left
		case fill, n.Op == parser.LOR && (left == nil || right == nil):
			return nil
		case left != nil:
			return left
		}
		return right
	}
	return nil
}

// countsOfEvents are the functions, apart from rates, by which queries count the events of a counter. A gauge may have the
// name of an event too.
var countsOfEvents = []string{"changes", "resets", "delta", "idelta", "max_over_time", "sum_over_time", "count_over_time"}

func neededByCall(n *parser.Call) *rareSeries {
	isRate := slices.Contains(rates, n.Func.Name)
	if isRate || slices.Contains(countsOfEvents, n.Func.Name) {
		if name := eventCounter(n); name != "" && (isRate || kindOf(name) == counter) {
			return &rareSeries{counter: name, at: n}
		}
		return nil
	}
	if strings.HasPrefix(n.Func.Name, "absent") {
		return nil
	}
	for _, arg := range n.Args {
		if inner := neededSeries(arg); inner != nil {
			return inner
		}
	}
	return nil
}

// info matches the names of metrics whose value is always 1, so that their sum is the number of series.
var info = regexp.MustCompile(`_(info|labels|annotations)$`)

// isInfo reports whether an expression is a selector of a metric whose value is always 1.
func isInfo(e parser.Expr) bool {
	n, ok := unwrap(e).(*parser.VectorSelector)
	return ok && info.MatchString(metricName(n))
}

// isSelection reports whether an expression selects some series of a metric, by a label or a comparison.
func isSelection(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			found = found || slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
				isPositive := m.Type == labels.MatchEqual && m.Value != "" || m.Type == labels.MatchRegexp && !m.Matches("")
				return isPositive && !slices.Contains(targetLabels, m.Name)
			})
		case *parser.BinaryExpr:
			found = found || n.Op.IsComparisonOperator() && !n.ReturnBool || n.Op == parser.LAND || n.Op == parser.LUNLESS
		}
		return nil
	})
	return found
}

// targetLabels are labels of what was scraped, which select no events.
var targetLabels = []string{model.MetricNameLabel, "job", "instance", "cluster", "service", "endpoint"}

// eventCounter returns the name of the counter of events that an expression reads, or "".
func eventCounter(e parser.Expr) (name string) {
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok && countsEvents(n) {
			name = metricName(n)
		}
		return nil
	})
	return name
}

// countsEvents reports whether the series of a selector may begin with their first event.
func countsEvents(n *parser.VectorSelector) bool {
	name := metricName(n)
	if kindOf(name) == recorded || slices.ContainsFunc(alwaysCounted, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		return false
	}
	return events.MatchString(name) || slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
		isPositive := m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp
		return m.Name != model.MetricNameLabel && isPositive && eventLabels.MatchString(m.Name) && eventValues.MatchString(m.Value)
	})
}

// eventLabels are names of labels that say what happened.
var eventLabels = regexp.MustCompile(`(?i)code|status|reason|severity|result|outcome|error|level`)

// checkIdle reports a number that is NaN while nothing happens in a cluster: a quantile of no observations, or a mean of
// none.
func (l *linter) checkIdle(e parser.Expr) {
	if at := idleExpr(e); at != nil {
		l.add(RuleIdle, at, "is NaN while nothing is counted, so that an idle cluster has no value: write (... >= 0 or 0 * group by (%s) (up{job=JOB} == 1)), with the value of an idle cluster", cmp.Or(l.cluster, "cluster"))
	}
}

// idleExpr returns the part of an expression that is NaN while counters do not grow, and makes the whole NaN; or nil.
func idleExpr(e parser.Expr) parser.Expr {
	switch n := unwrap(e).(type) {
	case *parser.AggregateExpr:
		if n.Op != parser.COUNT && n.Op != parser.GROUP {
			return idleExpr(n.Expr)
		}
	case *parser.Call:
		if n.Func.Name == "histogram_quantile" && isGrowth(n.Args[1]) {
			return n
		}
		for _, arg := range n.Args {
			if isVector(arg) {
				return idleExpr(arg)
			}
		}
	case *parser.BinaryExpr:
		switch {
		case n.Op.IsComparisonOperator():
			return nil
		case n.Op == parser.DIV && isVector(n.LHS) && isGrowth(n.RHS):
			return n
		case n.Op == parser.LUNLESS || n.Op == parser.LAND:
			return idleExpr(n.LHS)
		}
		if left := idleExpr(n.LHS); left != nil {
			return left
		}
		return idleExpr(n.RHS)
	}
	return nil
}

// alwaysGrowing matches the names of counters that grow while nothing happens: CPU time, which includes idle time, and energy.
var alwaysGrowing = regexp.MustCompile(`(?i)_cpu_seconds_total$|energy|joules`)

// isGrowth reports whether an expression is the growth of counters, which may be 0.
func isGrowth(e parser.Expr) bool {
	switch n := unwrap(e).(type) {
	case *parser.AggregateExpr:
		return isGrowth(n.Expr)
	case *parser.Call:
		return slices.Contains(rates, n.Func.Name) && !slices.ContainsFunc(metricNames(n), alwaysGrowing.MatchString)
	}
	return false
}
