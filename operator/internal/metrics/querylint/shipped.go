package querylint

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/rules"
)

// checkName reports a selector of a recorded series that the shipped rules do not record although its name is like that of
// one, or that it selects by a label or value that the series do not have. Other rules may record series of other levels,
// and of other functions over time, so that only what is close to a shipped name is reported.
func (l *linter) checkName(n *parser.VectorSelector) {
	name := metricName(n)
	if strings.Count(name, ":") != 2 {
		return
	}
	if !slices.Contains(shippedNames(), name) {
		if similar := l.similarName(n); similar != "" {
			l.add(RuleUnknownName, n, "the shipped rules record no %s: did you mean %s? If your own rules record it, write # lint:ignore %s", name, similar, RuleUnknownName)
		}
		return
	}
	for _, m := range n.LabelMatchers {
		if similar := l.similarLabel(name, m); similar != "" {
			l.add(RuleUnknownName, n, "%s has no label %s: did you mean %s?", name, m.Name, similar)
		}
		isPositive := m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp
		if isPositive && m.Name == "resource" && exportedResource.MatchString(m.Value) && hasWord(name, "resource") && level(name) != "node_resource_state" {
			l.add(RuleUnknownName, n, "%s matches no series: resources have their names of Kubernetes, such as nvidia.com/gpu", m)
		}
	}
}

// exportedResource matches the name that kube-state-metrics gives a resource with a domain.
var exportedResource = regexp.MustCompile(`^(nvidia|amd|google)_com_\w+$`)

// similarName returns the shipped name that a query means by another one, or "".
func (l *linter) similarName(n *parser.VectorSelector) string {
	best, least := "", 0
	parts := strings.Split(metricName(n), ":")
	for _, shipped := range shippedNames() {
		of := strings.Split(shipped, ":")
		metric, operation, isSame := format.Distance(parts[1], of[1]), distanceOfOperations(parts[2], of[2]), parts[0] == of[0]
		distance := metric + operation
		switch {
		case metric > 2 || operation > 1:
			continue
		case distance == 0 && (!strings.HasPrefix(of[1], "plimsoll_") || !l.selectsByOther(n, parts[0])): // another level, which other rules may record
			continue
		case !isSame && !isShippedLevel(parts[0]), !isSame && !strings.HasPrefix(of[1], "plimsoll_"):
			continue
		}
		if distance = 100*distance + format.Distance(parts[0], of[0]); best == "" || distance < least {
			best, least = shipped, distance
		}
	}
	return best
}

// window matches the number and unit of the time at the end of an operation, as in increase1d.
var window = regexp.MustCompile(`[0-9]+[a-z]$`)

// distanceOfOperations returns how many characters of two operations differ. Those over another time are not similar.
func distanceOfOperations(a, b string) int {
	if window.FindString(a) != window.FindString(b) {
		return max(len(a), len(b))
	}
	return format.Distance(a, b)
}

// selectsByOther reports whether a selector of a recorded series selects by a label of shipped series that the level of
// its name does not list.
func (l *linter) selectsByOther(n *parser.VectorSelector, level string) bool {
	return slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
		isOther := m.Name != model.MetricNameLabel && m.Name != l.cluster && !slices.Contains(strings.Split(level, "_"), m.Name)
		return isOther && m.Type == labels.MatchEqual && m.Value != "" && slices.Contains(levelLabels, m.Name)
	})
}

// levelLabels are labels of events and faults, which the name of a recorded series lists if its series have them.
var levelLabels = []string{"class", "xid", "severity", "reason", "fault"}

// plainLevels are the levels of names that list all labels of the series.
var plainLevels = []string{"cluster_resource", "cluster_resource_model", "cluster_resource_model_reason", "cluster_resource_model_size", "cluster_model", "cluster_severity", "resource_model"}

// similarLabel returns the label that a matcher means by another one, or "".
func (l *linter) similarLabel(name string, m *labels.Matcher) string {
	has := strings.Split(level(name), "_")
	if !slices.Contains(plainLevels, level(name)) || slices.Contains(has, m.Name) || m.Name == l.cluster {
		return ""
	}
	i := slices.IndexFunc(has, func(label string) bool { return format.Distance(label, m.Name) == 1 })
	if i < 0 {
		return ""
	}
	return cmp.Or(map[string]string{"cluster": l.cluster}[has[i]], has[i])
}

func isShippedLevel(of string) bool {
	return slices.ContainsFunc(shippedNames(), func(name string) bool { return level(name) == of })
}

func hasWord(name, word string) bool { return slices.Contains(strings.Split(level(name), "_"), word) }

// shippedNames are the names of level, metric and operation that the shipped rules record, in order.
var shippedNames = sync.OnceValue(func() []string {
	return slices.DeleteFunc(slices.Clone(rules.Recorded()), func(name string) bool { return !shippedName.MatchString(name) })
})

var shippedName = regexp.MustCompile(`^\w+:(plimsoll|kueue|kube)_\w+:\w+$`)
