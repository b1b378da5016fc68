package round

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// queryResult is the response to one query, or the reason why there is none.
type queryResult struct {
	problems []promql.Problem
	response query.Result
	err      error
}

// queryResults are the results of a round, by expression.
type queryResults map[string]*queryResult

// sendQueries sends each distinct expression that parses, concurrently.
func sendQueries(ctx context.Context, req Request) queryResults {
	results := queryResults{}
	var group sync.WaitGroup
	for _, expr := range Expressions(req.Spec) {
		if results[expr] != nil {
			continue
		}
		r := &queryResult{problems: promql.Check(expr)}
		results[expr] = r
		if r.problems != nil {
			continue
		}
		ctx := ctx
		if namesScores(req.Spec, expr) {
			ctx = query.WithAllLabels(ctx)
		}
		group.Go(func() { r.response, r.err = req.Contributions.query(ctx, req, expr) })
	}
	group.Wait()
	return results
}

// Expressions lists the queries of a policy, duplicates included.
func Expressions(spec *v1alpha1.ScoringPolicySpec) []string {
	var exprs []string
	for i := range spec.Scores {
		exprs = append(exprs, spec.Scores[i].Query)
	}
	if spec.Freshness != nil {
		exprs = append(exprs, spec.Freshness.Query)
	}
	return exprs
}

// SharedExpressions lists those queries whose results other policies can use. Results for
// nameFrom have more labels.
func SharedExpressions(spec *v1alpha1.ScoringPolicySpec) []string {
	return slices.DeleteFunc(Expressions(spec), func(expr string) bool { return namesScores(spec, expr) })
}

// namesScores reports whether a score with nameFrom has the query.
func namesScores(spec *v1alpha1.ScoringPolicySpec, expr string) bool {
	return slices.ContainsFunc(spec.Scores, func(s v1alpha1.ScoreSpec) bool { return s.NameFrom != nil && s.Query == expr })
}

// Compile prepares a spec for rounds. expanded is a copy with the default freshness query, and with the
// name of the cluster label in place of $cluster_label in its queries. An error names the field that
// can't be evaluated.
func Compile(spec *v1alpha1.ScoringPolicySpec, clusterLabel string) (expanded *v1alpha1.ScoringPolicySpec, policy *score.Policy, err error) {
	expanded = spec.DeepCopy()
	for i := range expanded.Scores {
		s := &expanded.Scores[i]
		s.Query, _ = promql.ExpandClusterLabel(s.Query, clusterLabel)
	}
	var aged []bool
	if expanded.Freshness == nil || expanded.Freshness.Query == "" {
		if aged, err = addDefaultAge(expanded); err != nil {
			return expanded, nil, err
		}
	}
	if f := expanded.Freshness; f != nil {
		f.Query, _ = promql.ExpandClusterLabel(f.Query, clusterLabel)
	}
	if policy, err = score.Compile(expanded); err == nil {
		policy.Aged = aged
	}
	return expanded, policy, err
}

// sent returns the number of queries that were sent.
func (results queryResults) sent() int {
	n := 0
	for _, r := range results {
		if r.problems == nil {
			n++
		}
	}
	return n
}

// read returns the report of an expression and its input for each cluster. matched is the
// set of expressions that matched a cluster before; read adds the expression if it matches
// one now.
func (results queryResults) read(expr string, clusters *clustermap.Mapping, matched map[string]bool) (QueryReport, []score.Input) {
	r := results[expr]
	report := QueryReport{
		Query: expr, Duration: r.response.Duration, Series: len(r.response.Samples), Problems: r.problems, Err: r.err,
		Infos: r.response.Infos,
	}
	switch {
	case r.problems != nil:
		return report, repeatOutcome(score.Invalid, clusters.Len())
	case r.err != nil:
		report.Warnings = r.response.Warnings
		return report, repeatOutcome(score.Failed, clusters.Len())
	}
	groups := clusters.Group(r.response.Samples)
	inputs := inputsOf(groups)
	markNoResponse(inputs, clusters.Names(), &r.response)
	r.judgeMatch(&report, groups, clusters, matched, fmt.Sprintf("The query must return one series per cluster, as in sum by (%s) (...)", clusters.Label()), inputs)
	return report, inputs
}

// judgeMatch adds the expression to matched if one of its inputs matches a cluster. If none
// ever did, it marks the inputs and reports the labels. hint is what to change if the series
// name clusters.
func (r *queryResult) judgeMatch(report *QueryReport, groups clustermap.Groups, clusters *clustermap.Mapping, matched map[string]bool, hint string, columns ...[]score.Input) {
	warnings := mappingWarnings(groups, clusters)
	matches := func(inputs []score.Input) bool { return slices.ContainsFunc(inputs, matchesCluster) }
	switch {
	case slices.ContainsFunc(columns, matches):
		matched[report.Query] = true
	case !matched[report.Query]:
		unmatched := len(columns) == 0 && !r.response.Partial // a lost store may have the series
		for _, inputs := range columns {
			unmatched = markUnmatched(inputs) || unmatched
		}
		if unmatched {
			report.NoMatch = newNoMatch(groups, r.response.Samples, clusters, warnings, hint)
			warnings = []string{"the query " + report.NoMatch.String()}
		}
	}
	report.Warnings = slices.Concat(report.Warnings, warnings, r.response.Warnings, endpointWarnings(r.response.Failed))
}

// markNoResponse replaces Absent by Failed where the lack of a series says nothing about
// the cluster: its own endpoint failed, or some stores did not respond.
func markNoResponse(inputs []score.Input, names []string, response *query.Result) {
	for i, name := range names {
		_, failed := response.Failed[name]
		if inputs[i].Outcome == score.Absent && (failed || response.Partial) {
			inputs[i].Outcome = score.Failed
		}
	}
}

// inputsOf converts the grouped values to score inputs. A cluster whose label value is
// ambiguous counts as Duplicate.
func inputsOf(groups clustermap.Groups) []score.Input {
	inputs := make([]score.Input, len(groups.Values))
	for i, v := range groups.Values {
		switch v.Outcome {
		case clustermap.Found:
			inputs[i].Value = v.Value
		case clustermap.NaN:
			inputs[i].Outcome = score.NaN
		case clustermap.Infinite:
			inputs[i].Outcome = score.Infinite
		case clustermap.Duplicate, clustermap.Ambiguous:
			inputs[i].Outcome = score.Duplicate
		default:
			inputs[i].Outcome = score.Absent
		}
	}
	return inputs
}

func repeatOutcome(outcome score.Outcome, n int) []score.Input {
	inputs := make([]score.Input, n)
	for i := range inputs {
		inputs[i].Outcome = outcome
	}
	return inputs
}

// mappingWarnings reports series that can't be mapped because the query or the
// cluster mapping is wrong. Series of clusters that the policy does not select are
// normal.
func mappingWarnings(groups clustermap.Groups, clusters *clustermap.Mapping) []string {
	var warnings []string
	label := clusters.Label()
	if n := len(groups.Unlabeled); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%d series have no label %q: the query must keep it, as in sum by (%s) (...)", n, label, label))
	}
	if n := len(groups.Ambiguous); n > 0 {
		value := groups.Ambiguous[0].Label(label)
		warnings = append(warnings, fmt.Sprintf("%d series are ignored because several ManagedClusters share their label value, such as %s=%q: %s",
			n, label, value, strings.Join(clusters.Ambiguous()[value], ", ")))
	}
	return warnings
}

// endpointWarnings reports the clusters whose own endpoint failed.
func endpointWarnings(failed map[string]string) []string {
	if len(failed) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(failed)))
	return []string{fmt.Sprintf("the endpoints of %d clusters failed, first %s: %s", len(failed), first, failed[first])}
}
