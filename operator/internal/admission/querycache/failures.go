package querycache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/querylint"
)

// queryFailure is a query whose last result is a failure or incomplete.
type queryFailure struct {
	query string
	// succeededAt is the time of the last success; zero = none.
	succeededAt  time.Time
	reason       string
	isIncomplete bool
}

// failureOf returns the failure of a query, or false if its last result is complete.
// result is nil if the query has not run yet.
func failureOf(query string, result *cachedResult) (queryFailure, bool) {
	switch {
	case result == nil:
	case result.err != nil:
		return queryFailure{query: query, succeededAt: result.succeededAt, reason: result.err.Error()}, true
	case len(result.failedClusters) > 0:
		cluster := slices.Min(slices.Collect(maps.Keys(result.failedClusters)))
		return queryFailure{query: query, succeededAt: result.succeededAt, reason: cluster + ": " + result.failedClusters[cluster], isIncomplete: true}, true
	case result.incomplete:
		return queryFailure{query: query, succeededAt: result.succeededAt, reason: "some stores of the source did not respond", isIncomplete: true}, true
	}
	return queryFailure{}, false
}

// faults returns the faults of each gate that has any. Only plans of the version and the source that the
// gate used last count.
func (c *Cache) faults() map[string]gatestate.QueryFaults {
	c.mu.Lock()
	defer c.mu.Unlock()
	latest := map[string]*queryPlan{}
	for key, p := range c.plans {
		if before := latest[key.Gate]; before == nil || p.usedAt.After(before.usedAt) {
			latest[key.Gate] = p
		}
	}
	failures, requirements := map[string][]queryFailure{}, map[string]*requirementResults{}
	for key, p := range c.plans {
		if used := latest[key.Gate].key; key.Version != used.Version || key.SourceID != used.SourceID {
			continue
		}
		var ofPlan []metRequirement
		for i := range p.queries {
			q := &p.queries[i]
			if f, failed := failureOf(q.Name, cmp.Or(q.renderError, c.results[q.cacheKey])); failed {
				failures[key.Gate] = append(failures[key.Gate], f)
			}
			if q.Requirement != nil && !q.isFleetScoped() {
				if requirements[key.Gate] == nil {
					requirements[key.Gate] = &requirementResults{byName: map[string]requirementResult{}}
				}
				if met, isComplete := requirements[key.Gate].add(q, key.ClusterLabel, c.results[q.cacheKey]); isComplete {
					ofPlan = append(ofPlan, met)
				}
			}
		}
		if requirements[key.Gate] != nil {
			requirements[key.Gate].addTogether(ofPlan)
		}
	}
	faults := map[string]gatestate.QueryFaults{}
	for gateName, list := range failures {
		faults[gateName] = gatestate.QueryFaults{Failing: failureMessage(list)}
	}
	for gateName, results := range requirements {
		if excluding := results.excluding(); excluding != "" {
			faults[gateName] = gatestate.QueryFaults{Failing: faults[gateName].Failing, Excluding: excluding}
		}
	}
	return faults
}

// requirementResults are the recent results of a gate's requirements.
type requirementResults struct {
	byName map[string]requirementResult
	// areMetTogether: for a shape of jobs, a cluster meets all requirements, or may meet them.
	areMetTogether bool
	// apart says for each shape of jobs which clusters meet which requirement.
	apart []string
}

// requirementResult says whether a result has a series, and meets the requirement for any cluster.
type requirementResult struct {
	hasSeries, isMet bool
	// expr is the query, with the cluster label of its source.
	expr, clusterLabel string
}

// metRequirement is a requirement and the clusters that meet it, sorted.
type metRequirement struct {
	name     string
	clusters []string
}

// add adds the result of a requirement for one shape of jobs. It returns the clusters that meet the requirement.
// Failed and incomplete results say nothing about the others, so they count as met, and isComplete is false.
func (r *requirementResults) add(q *renderedQuery, clusterLabel string, result *cachedResult) (met metRequirement, isComplete bool) {
	name := q.Requirement.Name
	isComplete = result != nil && result.values != nil && !result.mayLackClusters() && q.Requirement.Absent != v1alpha1.AbsentMet
	seen := r.byName[name]
	if seen.expr == "" || q.expr < seen.expr { // the order of plans changes
		seen.expr, seen.clusterLabel = q.expr, clusterLabel
	}
	met.name = name
	if result != nil {
		for cluster, n := range result.values {
			seen.hasSeries = true
			if n.Known && n.Value != 0 {
				met.clusters = append(met.clusters, cluster)
			}
		}
	}
	slices.Sort(met.clusters)
	seen.isMet = seen.isMet || !isComplete || len(met.clusters) > 0
	r.byName[name] = seen
	return met, isComplete
}

// addTogether adds the requirements of one shape of jobs whose results are complete.
func (r *requirementResults) addTogether(list []metRequirement) {
	meetsAll := func(cluster string) bool {
		return !slices.ContainsFunc(list, func(m metRequirement) bool { return !slices.Contains(m.clusters, cluster) })
	}
	if len(list) == 0 || slices.ContainsFunc(list[0].clusters, meetsAll) {
		r.areMetTogether = true
		return
	}
	var texts []string
	for _, m := range list {
		texts = append(texts, m.name+" is met by "+cmp.Or(format.Abbreviate(m.clusters), "none"))
	}
	r.apart = append(r.apart, strings.Join(texts, ", "))
}

// excluding says which requirements no cluster meets, or that none meets all of them; empty = a cluster may.
func (r *requirementResults) excluding() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		switch seen := r.byName[name]; {
		case seen.isMet:
		case seen.hasSeries:
			texts = append(texts, "requirement "+name+" is 0 for each cluster"+zeroHint(seen))
		default:
			texts = append(texts, "requirement "+name+" has no series for any cluster: if clusters may lack it, set absent: Met")
		}
	}
	if len(texts) == 0 && !r.areMetTogether && len(r.apart) > 0 {
		return "no cluster meets all requirements: " + slices.Min(r.apart)
	}
	return strings.Join(texts, "; ")
}

// zeroHint is what to change if the query keeps the value 0 where its condition holds.
func zeroHint(r requirementResult) string {
	e, problems := promql.Parse(r.expr)
	if len(problems) > 0 {
		return ""
	}
	findings := querylint.Check(e, r.expr, querylint.Options{Use: querylint.Requirement, ClusterLabel: r.clusterLabel})
	if !slices.ContainsFunc(findings, func(f querylint.Finding) bool { return f.Rule == querylint.RuleZero }) {
		return ""
	}
	return ": a comparison without bool keeps the value 0, so write bool after its operator"
}

// failureMessage names each failing query once, with the reason and the last success of
// the query that has failed for the longest time:
//
//	failing since 2026-05-01T12:00:00Z: fit, quota: connection refused
//
// If no query fails, it does the same for incomplete results:
//
//	incomplete: fit: cluster3: timeout
func failureMessage(failures []queryFailure) string {
	state := "incomplete"
	if slices.ContainsFunc(failures, func(f queryFailure) bool { return !f.isIncomplete }) {
		state = "failing"
		failures = slices.DeleteFunc(failures, func(f queryFailure) bool { return f.isIncomplete })
	}
	first := slices.MinFunc(failures, func(a, b queryFailure) int {
		return cmp.Or(a.succeededAt.Compare(b.succeededAt), strings.Compare(a.query, b.query), strings.Compare(a.reason, b.reason))
	})
	if !first.isIncomplete && !first.succeededAt.IsZero() {
		state += " since " + first.succeededAt.UTC().Format(time.RFC3339)
	}
	names := make([]string, 0, len(failures))
	for _, f := range failures {
		names = append(names, f.query)
	}
	slices.Sort(names)
	return fmt.Sprintf("%s: %s: %s", state, strings.Join(slices.Compact(names), ", "), first.reason)
}
