package querylint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// Use is what the result of a query is used for.
type Use uint8

// Uses of a query.
const (
	// Number: one number for each cluster.
	Number Use = iota
	// Age: the age of each cluster's samples in seconds.
	Age
	// Time: the Unix time of each cluster's samples in seconds.
	Time
	// Requirement: for each cluster, 0 or no series means no.
	Requirement
	// FleetRequirement: any series with a value other than 0 means yes. The result needs no
	// cluster label.
	FleetRequirement
)

// Options describe the query to check.
type Options struct {
	Use Use
	// ClusterLabel identifies the cluster of a series. It is empty if every cluster has its
	// own endpoint.
	ClusterLabel string
	// NameLabel distinguishes the scores of one query (nameFrom). It is empty for a single
	// score.
	NameLabel string
	// Required are labels that the result must have, in addition to ClusterLabel. They are for a
	// result with several series for each cluster.
	Required []string
	// AbsentAccepted: a cluster without a series is expected. A requirement is met there.
	AbsentAccepted bool
	// LessIsBetter: the smallest number is the best.
	LessIsBetter bool
	// AgeUnknown: nothing checks the age of the samples.
	AgeUnknown bool
}

// Finding is a problem and the rule that it breaks.
type Finding struct {
	Rule string
	promql.Problem
}

// Names of the rules.
const (
	RuleClusterLabel    = "cluster-label"
	RuleSeveralSeries   = "several-series"
	RuleNameLabel       = "name-label"
	RuleRequiredLabels  = "required-labels"
	RuleFilter          = "filter"
	RuleConstant        = "constant"
	RuleRateOfGauge     = "rate-of-gauge"
	RuleRateOfRecorded  = "rate-of-recorded"
	RuleRawCounter      = "raw-counter"
	RuleTimestamp       = "timestamp"
	RuleAge             = "age"
	RuleMatching        = "matching"
	RuleEverySeries     = "every-series"
	RuleEvaluationTime  = "evaluation-time"
	RuleQuantile        = "quantile"
	RuleZero            = "zero"
	RuleOneCluster      = "one-cluster"
	RuleEvent           = "event"
	RuleFreshness       = "freshness"
	RuleIdle            = "idle"
	RuleRatio           = "ratio"
	RulePlaceholder     = "placeholder"
	RuleNegative        = "negative"
	RuleUnknownName     = "unknown-name"
	maxLabelsInMessages = 4
)

// linter collects the findings of one query.
type linter struct {
	flow
	text     string
	options  Options
	findings []Finding
	// isOneCluster: all series of the result have the same cluster.
	isOneCluster bool
}

// Check returns the findings of a parsed query in the order of their positions. text is
// the text that e was parsed from.
func Check(e parser.Expr, text string, options Options) []Finding {
	l := &linter{flow: flow{cluster: options.ClusterLabel}, text: text, options: options}
	if l.checkConstant(e) {
		return l.findings
	}
	if options.Use != FleetRequirement {
		l.checkResult(e)
	}
	l.checkRequired(e)
	l.checkAgeOfSamples(e)
	if options.Use != FleetRequirement && options.Use != Requirement {
		l.checkFilter(e)
	}
	switch options.Use {
	case Number:
		l.checkRareNumber(e)
	case Age:
		l.checkAge(e)
	case Time:
		l.checkTime(e)
	case Requirement, FleetRequirement:
		if options.NameLabel == "" && options.Required == nil { // results with objects or devices are no requirements
			l.checkComparison(e, false)
		}
	}
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			l.checkSelector(n, path)
			l.checkName(n)
		case *parser.SubqueryExpr:
			l.checkEvaluationTime(n, n.OriginalOffset, n.Timestamp)
		case *parser.AggregateExpr:
			if n.Op == parser.QUANTILE {
				l.checkQuantile(n.Param)
			}
			l.checkEqualValues(n, path)
		case *parser.Call:
			l.checkCall(n, path)
			l.checkBuckets(n)
			l.checkRelabel(n)
		case *parser.BinaryExpr:
			l.checkMatching(n)
			if options.Use != FleetRequirement {
				l.checkFallback(n, path)
			}
		}
		return nil
	})
	if options.Use == Number && len(l.findings) == 0 { // the others come first
		l.checkIdle(e)
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int { return cmp.Compare(a.Pos.Offset, b.Pos.Offset) })
	return l.findings
}

// add adds a finding at the position of an expression.
func (l *linter) add(rule string, at parser.Node, format string, args ...any) {
	l.addAt(rule, int(at.PositionRange().Start), format, args...)
}

func (l *linter) addAt(rule string, offset int, format string, args ...any) {
	problem := promql.Problem{Pos: promql.PositionAt(l.text, offset), Message: fmt.Sprintf(format, args...)}
	l.findings = append(l.findings, Finding{Rule: rule, Problem: problem})
}

// checkResult checks that the result has one series for each cluster.
func (l *linter) checkResult(e parser.Expr) {
	result := l.of(e)
	l.isOneCluster = l.cluster != "" && result.fixed[l.cluster]
	if l.cluster != "" && !result.may(l.cluster) {
		at := result.lostAt
		if at == nil {
			at = e
		}
		l.add(RuleClusterLabel, at, "the result has no label %q: %s", l.cluster, l.keepHint(at))
		return
	}
	if name := l.options.NameLabel; name != "" && !result.may(name) {
		l.add(RuleNameLabel, e, "the result has no label %q, from which nameFrom takes the names: keep it, as in sum by (%s) (...)", name, strings.Join(l.keptLabels(), ", "))
		return
	}
	several := ""
	switch labels := result.distinguishing(l.keptLabels()...); {
	case len(labels) > maxLabelsInMessages:
		several = "labels such as " + strings.Join(labels[:maxLabelsInMessages], ", ")
	case len(labels) > 0:
		several = strings.Join(labels, ", ")
	case !result.open, result.per != nil:
		return
	default:
		several = l.severalInMetric(result)
	}
	if several != "" {
		l.add(RuleSeveralSeries, e, "may return several series for a cluster, which differ in %s: %s", several, l.severalHint(e))
	}
}

// checkRequired checks that the result has the labels that its reader needs.
func (l *linter) checkRequired(e parser.Expr) {
	if len(l.options.Required) == 0 {
		return
	}
	result := l.of(e)
	required := append(l.keptLabels(), l.options.Required...)
	if missing := slices.DeleteFunc(slices.Clone(required), result.may); len(missing) > 0 {
		l.add(RuleRequiredLabels, e, "the result has no label %s: keep it, as in min by (%s) (...)", strings.Join(missing, ", "), strings.Join(required, ", "))
	}
}

// severalHint says how to get one series for each cluster.
func (l *linter) severalHint(e parser.Expr) string {
	if call, ok := unwrap(e).(*parser.Call); ok && call.Func.Name == "histogram_quantile" {
		labels := strings.Join(append(l.keptLabels(), "le"), ", ")
		return fmt.Sprintf("aggregate the buckets, as in histogram_quantile(0.9, sum by (%s) (rate(...)))", labels)
	}
	return l.aggregateHint()
}

// keptLabels are the labels that the result should have.
func (l *linter) keptLabels() []string {
	return slices.DeleteFunc([]string{l.cluster, l.options.NameLabel}, func(label string) bool { return label == "" })
}

// severalInMetric returns the labels in which the series of a metric may differ, or "" if
// its name says that there is one series for each cluster.
func (l *linter) severalInMetric(s labelSet) string {
	recordedBy := level(s.metric)
	switch {
	case s.metric == "":
		return "any label"
	case recordedBy == "" && !s.may("instance"):
		return "labels of " + s.metric
	case recordedBy == "":
		return "instance and other labels of " + s.metric
	case recordedBy == l.cluster || s.fixed[recordedBy]:
		return ""
	}
	var left []string
	for _, label := range strings.Split(recordedBy, "_") {
		if !slices.Contains(l.keptLabels(), label) && !s.fixed[label] {
			left = append(left, label)
		}
	}
	return strings.Join(left, ", ")
}

// keepHint says how to keep the cluster label at an expression that removes it.
func (l *linter) keepHint(at parser.Expr) string {
	switch n := at.(type) {
	case *parser.AggregateExpr:
		if n.Without {
			return fmt.Sprintf("remove %q from without (...)", l.cluster)
		}
		if i := slices.IndexFunc(n.Grouping, func(name string) bool { return strings.EqualFold(name, l.cluster) }); i >= 0 {
			return fmt.Sprintf("upper and lower case differ: write %s, not %s", l.cluster, n.Grouping[i])
		}
		if len(n.Grouping) > 0 {
			return fmt.Sprintf("add it to by (%s)", strings.Join(n.Grouping, ", "))
		}
		return fmt.Sprintf("write %s by (%s) (...)", n.Op, l.cluster)
	case *parser.BinaryExpr:
		return fmt.Sprintf("add it to the labels that %s matches on", n.Op)
	case *parser.Call:
		if strings.HasPrefix(n.Func.Name, "absent") {
			return fmt.Sprintf("%s removes it, write group by (%s) (up) unless group by (%s) (...)", n.Func.Name, l.cluster, l.cluster)
		}
		return fmt.Sprintf("%s removes it", n.Func.Name)
	}
	return l.aggregateHint()
}

func (l *linter) aggregateHint() string {
	if l.cluster == "" {
		return "aggregate them, for example with sum (...)"
	}
	return fmt.Sprintf("aggregate them, for example with sum by (%s) (...)", l.cluster)
}

// checkFilter reports an expression that removes clusters from the result.
func (l *linter) checkFilter(e parser.Expr) {
	switch n := unwrap(e).(type) {
	case *parser.Call:
		for _, arg := range n.Args {
			if arg.Type() == parser.ValueTypeVector {
				l.checkFilter(arg)
			}
		}
	case *parser.AggregateExpr:
		l.checkChoice(n)
	case *parser.BinaryExpr:
		if n.Op.IsComparisonOperator() {
			if !n.ReturnBool && isVector(n) {
				l.addAt(RuleFilter, l.operatorOffset(n), "a cluster for which the comparison is false has no result: write %s bool for 0 or 1", n.Op)
			}
			return
		}
		if !n.Op.IsSetOperator() {
			l.checkFilter(n.LHS)
			l.checkFilter(n.RHS)
		}
	}
}

// checkChoice reports an aggregation that chooses among the clusters.
func (l *linter) checkChoice(n *parser.AggregateExpr) {
	switch n.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		if l.cluster != "" && slices.Contains(n.Grouping, l.cluster) == n.Without {
			l.add(RuleFilter, n, "only some clusters have a result, because %s chooses among the clusters: remove it. The scores order the clusters", n.Op)
		}
	}
}

// operatorOffset returns the offset of the operator between the operands.
func (l *linter) operatorOffset(n *parser.BinaryExpr) int {
	start, end := int(n.LHS.PositionRange().End), int(n.RHS.PositionRange().Start)
	if i := strings.Index(l.text[start:end], n.Op.String()); i >= 0 {
		return start + i
	}
	return start
}

// unwrap removes parentheses and signs.
func unwrap(e parser.Expr) parser.Expr {
	for {
		switch n := e.(type) {
		case *parser.ParenExpr:
			e = n.Expr
		case *parser.UnaryExpr:
			e = n.Expr
		default:
			return e
		}
	}
}
