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
	failures, requirements := map[string][]queryFailure{}, map[string]requirementResults{}
	for key, p := range c.plans {
		if used := latest[key.Gate].key; key.Version != used.Version || key.SourceID != used.SourceID {
			continue
		}
		for i := range p.queries {
			q := &p.queries[i]
			if f, failed := failureOf(q.Name, cmp.Or(q.renderError, c.results[q.cacheKey])); failed {
				failures[key.Gate] = append(failures[key.Gate], f)
			}
			if q.Requirement != nil && !q.isFleetScoped() {
				requirements[key.Gate] = requirements[key.Gate].add(q.Requirement, c.results[q.cacheKey])
			}
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

// requirementResults say of each requirement of a gate whether a recent result has a series, and meets it for any cluster.
type requirementResults map[string]struct{ hasSeries, isMet bool }

// add adds the result of a requirement for one shape of jobs. Failed and incomplete results say nothing about the
// others, so they count as met.
func (r requirementResults) add(of *v1alpha1.GateRequirement, result *cachedResult) requirementResults {
	if r == nil {
		r = requirementResults{}
	}
	seen := r[of.Name]
	seen.isMet = seen.isMet || result == nil || result.err != nil || result.values == nil || result.mayLackClusters() || of.Absent == v1alpha1.AbsentMet
	if result != nil {
		for _, n := range result.values {
			seen.hasSeries, seen.isMet = true, seen.isMet || n.Known && n.Value != 0
		}
	}
	r[of.Name] = seen
	return r
}

// excluding says which requirements no cluster meets; empty = none.
func (r requirementResults) excluding() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		switch seen := r[name]; {
		case seen.isMet:
		case seen.hasSeries:
			texts = append(texts, "requirement "+name+" is 0 for each cluster: a comparison without bool keeps the value 0")
		default:
			texts = append(texts, "requirement "+name+" has no series for any cluster: if clusters may lack it, set absent: Met")
		}
	}
	return strings.Join(texts, "; ")
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
