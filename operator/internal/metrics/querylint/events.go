package querylint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// events are parts of the names of counters whose series begins with the first event.
var events = regexp.MustCompile(`(?i)xid|err|fail|fault|reset|oom|evict|drop|restart|throttle|violation`)

// eventValues are values of labels that only an event gives a series: code="500", reason="Error".
var eventValues = regexp.MustCompile(`(?i)^[45][0-9.x]|err|fail|fault|oom|evict|crit|timeout|abort`)

// alwaysCounted are the beginnings of counters that exporters report from 0 on.
var alwaysCounted = []string{"DCGM_FI_", "kube_", "node_"}

// recordedEvents are what the shipped rules record of counters of events, with 0 where there were none.
var recordedEvents = map[string]string{"plimsoll_xid_total": "cluster_severity:plimsoll_xid_events:increase1d"}

// eventSeries is a part of an expression that has series only where an event was counted.
type eventSeries struct {
	counter string
	at      parser.Expr // the outermost aggregation, or else the rate or increase
}

// checkScoredEvents reports a number that a cluster lacks until its first event.
func (l *linter) checkScoredEvents(e parser.Expr) {
	if n := neededEvents(e); n != nil && !l.options.AbsentAccepted && l.options.NameLabel == "" {
		l.add(RuleEvent, n.at, "clusters where no event was counted may have no series %s, and get no value: %s", n.counter, n.hint("write "+l.withZero(n.at)))
	}
}

// checkConditionEvents reports a comparison that holds without events, and that a cluster does not meet because it has
// no series without an event. isPart means that the condition has other parts.
func (l *linter) checkConditionEvents(comparison *parser.BinaryExpr, isPart bool) {
	n := neededEvents(comparison)
	if n == nil {
		return
	}
	switch recorded := recordedEvents[n.counter]; {
	case isPart:
		l.add(RuleEvent, comparison, "clusters where no event was counted may have no series %s, and do not meet the condition: %s", n.counter, n.hint("write "+l.withZero(n.at)))
	case !l.options.AbsentAccepted:
		l.add(RuleEvent, comparison, "clusters where no event was counted may have no series %s, and do not meet the condition: %s", n.counter, n.hint("set absent: Met"))
	case recorded != "":
		l.add(RuleEvent, comparison, "the series of %s begins with the first event, which rate and increase do not count: read %s", n.counter, recorded)
	}
}

// checkExcludedEvents reports the right side of unless if it keeps clusters without events, or removes those whose
// events are long over.
func (l *linter) checkExcludedEvents(e parser.Expr) {
	n := neededEvents(e)
	comparison, _ := unwrap(e).(*parser.BinaryExpr)
	isFilter := comparison != nil && comparison.Op.IsComparisonOperator() && !comparison.ReturnBool
	switch {
	case n == nil:
	case !isFilter:
		l.add(RuleEvent, e, "removes every cluster that ever counted an event in %s, also if there is none in this time: write unless (... > 0)", n.counter)
	case holdsForZero(comparison):
		l.add(RuleEvent, e, "clusters where no event was counted may have no series %s, and are not removed: %s", n.counter, n.hint("write "+l.withZero(n.at)))
	}
}

// hint says what to write: a recorded series that counts the events from 0 on, or else what otherwise says.
func (n *eventSeries) hint(otherwise string) string {
	if recorded := recordedEvents[n.counter]; recorded != "" {
		return "read " + recorded
	}
	return otherwise
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
	return fmt.Sprintf("(%s or 0 * sum by (%s) (up))", text, l.cluster)
}

// maxHint is the length of an expression above which a message does not repeat it.
const maxHint = 100

// neededEvents returns the rate or increase of a counter of events without which an expression has no series, or nil.
func neededEvents(e parser.Expr) *eventSeries {
	switch n := unwrap(e).(type) {
	case *parser.AggregateExpr:
		if inner := neededEvents(n.Expr); inner != nil {
			return &eventSeries{inner.counter, n}
		}
	case *parser.SubqueryExpr:
		return neededEvents(n.Expr)
	case *parser.Call:
		return neededByCall(n)
	case *parser.BinaryExpr:
		left, right := neededEvents(n.LHS), neededEvents(n.RHS)
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

func neededByCall(n *parser.Call) *eventSeries {
	if slices.Contains(rates, n.Func.Name) {
		if counter := eventCounter(n); counter != "" {
			return &eventSeries{counter, n}
		}
		return nil
	}
	if strings.HasPrefix(n.Func.Name, "absent") {
		return nil
	}
	for _, arg := range n.Args {
		if inner := neededEvents(arg); inner != nil {
			return inner
		}
	}
	return nil
}

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
		return m.Name != labels.MetricName && isPositive && eventLabels.MatchString(m.Name) && eventValues.MatchString(m.Value)
	})
}

// eventLabels are names of labels that say what happened.
var eventLabels = regexp.MustCompile(`(?i)code|status|reason|severity|result|outcome|error|level`)
