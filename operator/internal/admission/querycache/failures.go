package querycache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
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

// failureMessages returns a message for each gate with failing or incomplete queries. Only
// plans of the version and the source that the gate used last count.
func (c *Cache) failureMessages() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	latest := map[string]*queryPlan{}
	for key, p := range c.plans {
		if before := latest[key.Gate]; before == nil || p.usedAt.After(before.usedAt) {
			latest[key.Gate] = p
		}
	}
	failures := map[string][]queryFailure{}
	for key, p := range c.plans {
		if used := latest[key.Gate].key; key.Version != used.Version || key.SourceID != used.SourceID {
			continue
		}
		for i := range p.queries {
			q := &p.queries[i]
			if f, failed := failureOf(q.Name, cmp.Or(q.renderError, c.results[q.cacheKey])); failed {
				failures[key.Gate] = append(failures[key.Gate], f)
			}
		}
	}
	messages := make(map[string]string, len(failures))
	for gateName, list := range failures {
		messages[gateName] = failureMessage(list)
	}
	return messages
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
