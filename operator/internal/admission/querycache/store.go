package querycache

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// lookUp returns the cached results of queries. The result is nil where the cache has none
// for which isServable is true. A query that can't be rendered has its error as the result.
func (c *Cache) lookUp(queries []renderedQuery, isServable func(*cachedResult) bool) []queryResult {
	results := make([]queryResult, len(queries))
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range queries {
		q := &queries[i]
		results[i] = queryResult{renderedQuery: q, result: q.renderError}
		if cached, ok := c.results[q.cacheKey]; ok && q.renderError == nil && isServable(cached) {
			cached.usedAt, cached.ttl = now, max(cached.ttl, q.ttl)
			results[i].result = cached
		}
	}
	return results
}

// store puts a result into the cache and returns the previous one, which is empty for the
// first result. A failed result takes over the previous values. If gates with different
// TTLs share a result, the longest TTL applies. If the cache has the result of a later query, it
// stays, and store returns nil: the query of an explanation does not wait for the same query of others.
func (c *Cache) store(q *renderedQuery, result *cachedResult) (previous *cachedResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	previous, ok := c.results[q.cacheKey]
	if !ok {
		previous = &cachedResult{}
	}
	if result.err != nil {
		result.keepValuesOf(previous)
		result.failingSince = earliest(result.queriedAt, result.failingSince, previous.failingSince)
		result.failureLogged = previous.failureLogged || !result.skipped
	} else {
		result.incompleteSince = result.incompleteByCluster(previous)
	}
	result.storedAt = c.now()
	result.usedAt, result.ttl = result.storedAt, max(previous.ttl, q.ttl)
	if previous.queriedAt.After(result.queriedAt) {
		return nil
	}
	c.results[q.cacheKey] = result
	return previous
}

func (r *cachedResult) keepValuesOf(previous *cachedResult) {
	r.values, r.valuesByQueue, r.objects, r.unmappedValues = previous.values, previous.valuesByQueue, previous.objects, previous.unmappedValues
	r.localQueues = previous.localQueues
	r.sampleTimes, r.quotaTimes, r.succeededAt = previous.sampleTimes, previous.quotaTimes, previous.succeededAt
	r.incomplete, r.failedClusters, r.incompleteSince = previous.incomplete, previous.failedClusters, previous.incompleteSince
}

// incompleteByCluster returns since when responses lack each cluster: since this query,
// since an earlier incomplete response, or since the query failed.
func (r *cachedResult) incompleteByCluster(previous *cachedResult) map[string]time.Time {
	since := map[string]time.Time{}
	if r.incomplete && r.failedClusters == nil {
		since[""] = earliest(r.queriedAt, previous.incompleteSince[""], previous.failingSince)
	}
	for cluster := range r.failedClusters {
		since[cluster] = earliest(r.queriedAt, previous.incompleteSince[cluster], previous.failingSince)
	}
	return since
}

// earliest returns the earliest of the times that are not zero.
func earliest(first time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if !other.IsZero() && other.Before(first) {
			first = other
		}
	}
	return first
}

// dropUnused drops plans and results that nothing has used for their TTL.
func (c *Cache) dropUnused(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, p := range c.plans {
		if now.Sub(p.usedAt) > p.ttl {
			delete(c.plans, key)
		}
	}
	for key, r := range c.results {
		if now.Sub(r.usedAt) > r.ttl {
			delete(c.results, key)
		}
	}
}

// oldestSampleTimes returns the oldest sample times of each cluster among the results that
// measure room. No decision uses older samples than these.
func (c *Cache) oldestSampleTimes() map[string]ledger.SampleTimes {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := map[string]ledger.SampleTimes{}
	for _, r := range c.results {
		for cluster, sampledAt := range r.sampleTimes.all() {
			times := oldest[cluster]
			times.Devices = earliest(sampledAt, times.Devices)
			oldest[cluster] = times
		}
		for cluster, sampledAt := range r.quotaTimes.all() {
			times := oldest[cluster]
			times.Quota = earliest(sampledAt, times.Quota)
			oldest[cluster] = times
		}
	}
	return oldest
}
