package querycache

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// held answer to one question. Apart from its use and its keep it is never changed.
type cachedResult struct {
	// asked and answered, or failed.
	queriedAt, storedAt, usedAt time.Time
	// keep it for so long after its last use.
	ttl time.Duration
	// good is when the values were asked for; zero = nobody answered yet.
	succeededAt time.Time
	// since then it is asked in vain; zero = it is answered.
	failingSince time.Time
	// values by cluster; bare are those of series that name none we know. Where err says
	// why there is no answer they are those of the last good one, if there was one.
	values    map[string]gate.Number
	unlabeled []float64
	// partial: some have not answered. Which, where that is known.
	partial        bool
	failedClusters map[string]string
	// short is since when they have not, by cluster; "" = it is not known which.
	incompleteSince map[string]time.Time
	err             error
	// with are the sample times that were known when the values were asked for.
	sampleTimes *cachedResult
}

// serves says whether a decision may rest on the answer: for a period, while it is
// renewed. A failure serves longer: nothing is gained by waiting for the next one.
func (h *cachedResult) isServable(period time.Duration, now time.Time) bool {
	if h.err != nil {
		period += timing.QueryTimeout
	}
	return now.Sub(h.storedAt) < period
}

// newer says whether the answer was asked for no earlier than that, and so were the
// sample times with it. With a failure they are as old as its values.
func (h *cachedResult) isNewerThan(than time.Time) bool {
	return !h.queriedAt.Before(than) && (h.err != nil || h.sampleTimes == nil || !h.sampleTimes.queriedAt.Before(than))
}

// doubtful: the answer may be incomplete or out of date, so that absence says nothing.
func (h *cachedResult) isIncomplete() bool { return h.err != nil || h.partial }

// lacks says that absence from the answer says nothing of a cluster.
func (h *cachedResult) isMissing(cluster string) bool {
	_, failed := h.failedClusters[cluster]
	return h.partial && (h.failedClusters == nil || failed)
}

// odd: a cluster answered twice, or not with a number.
func (h *cachedResult) hasInvalidValue() bool {
	for _, n := range h.values {
		if !n.Known {
			return true
		}
	}
	return false
}

// sampled is what sample times say of a cluster; zero = nothing that can be true. No
// sample is newer than the question.
func (h *cachedResult) sampleTimeOf(cluster string) time.Time {
	n := h.values[cluster]
	if !n.Known || n.Value > float64(h.succeededAt.Add(timing.MaxClockSkew).Unix()) {
		return time.Time{}
	}
	if at := time.UnixMilli(int64(n.Value * 1000)); at.Before(h.succeededAt) {
		return at
	}
	return h.succeededAt
}

// look up answers: those that serve, and nil for the others.
func (a *Cache) lookUp(questions []renderedQuery, serves func(*cachedResult) bool) []queryResult {
	replies := make([]queryResult, len(questions))
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range questions {
		q := &questions[i]
		replies[i] = queryResult{renderedQuery: q, result: q.renderError}
		if h, ok := a.results[q.key]; ok && q.renderError == nil && serves(h) {
			h.usedAt, h.ttl = now, max(h.ttl, q.ttl)
			replies[i].result = h
		}
	}
	return replies
}

// put an answer, or the failure beside the last good one. Who trusts it longest keeps it.
func (a *Cache) store(q *renderedQuery, h *cachedResult) *cachedResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, known := a.results[q.key]
	if !known {
		old = &cachedResult{}
	}
	if h.err != nil {
		h.values, h.unlabeled, h.sampleTimes, h.succeededAt = old.values, old.unlabeled, old.sampleTimes, old.succeededAt
		h.partial, h.failedClusters, h.incompleteSince = old.partial, old.failedClusters, old.incompleteSince
		h.failingSince = earliest(h.queriedAt, h.failingSince, old.failingSince)
	} else {
		h.incompleteSince = h.incompleteByCluster(old)
	}
	h.storedAt = a.now()
	h.usedAt, h.ttl = h.storedAt, max(old.ttl, q.ttl)
	a.results[q.key] = h
	return h
}

// gaps says since when some have not answered: now, before, or when all failed.
func (h *cachedResult) incompleteByCluster(old *cachedResult) map[string]time.Time {
	short := map[string]time.Time{}
	if h.partial && h.failedClusters == nil {
		short[""] = earliest(h.queriedAt, old.incompleteSince[""], old.failingSince)
	}
	for cluster := range h.failedClusters {
		short[cluster] = earliest(h.queriedAt, old.incompleteSince[cluster], old.failingSince)
	}
	return short
}

// earliest of the times that are known.
func earliest(at time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	return at
}

// tidy forgets what nobody asks any longer, and what the ledger holds of workloads
// that every answer shows which a decision may still rest upon. Of the rest it tells
// what nobody answers.
func (a *Cache) cleanUp() {
	now := a.now()
	a.Ledger.Expire(a.dropUnused(now), now)
	a.ReportFailing(a.failingByGate())
}

// forget what is unused, and say how old the sample times of the rest are.
func (a *Cache) dropUnused(now time.Time) map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, p := range a.plans {
		if now.Sub(p.usedAt) > p.ttl {
			delete(a.plans, key)
		}
	}
	oldest := map[string]time.Time{}
	for key, h := range a.results {
		if now.Sub(h.usedAt) > h.ttl {
			delete(a.results, key)
			continue
		}
		if h.sampleTimes == nil {
			continue
		}
		for cluster := range h.sampleTimes.values {
			at, known := h.sampleTimes.sampleTimeOf(cluster), oldest[cluster]
			if !at.IsZero() && (known.IsZero() || at.Before(known)) {
				oldest[cluster] = at
			}
		}
	}
	return oldest
}
