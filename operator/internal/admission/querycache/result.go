package querycache

import (
	"iter"
	"math"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// cachedResult is the result of one query, successful or not. It is immutable once stored,
// except for usedAt and ttl.
type cachedResult struct {
	// queriedAt is the start of the query, storedAt its end.
	queriedAt, storedAt time.Time
	usedAt              time.Time
	// ttl is the time for which the result is kept after its last use.
	ttl time.Duration

	// err is the error of the last query; nil = success. A failure keeps the values of the
	// last successful query.
	err error
	// skipped is true if the query did not run, because the query for sample times failed.
	skipped bool
	// failureLogged is true if the current failure is in the log.
	failureLogged bool
	// succeededAt is the start of the query that returned the values; zero = none yet.
	succeededAt time.Time
	// failingSince is the start of the first failed query since the last successful one.
	failingSince time.Time

	// values by cluster. A value that is not Known was not a finite number, or the response
	// has several series for the cluster. It is nil if no query has succeeded yet.
	values map[string]gate.Number
	// valuesByQueue are the values by ClusterQueue and cluster of a query per queue.
	valuesByQueue map[string]map[string]gate.Number
	// objects are the names of the existing objects by cluster, if the query is for a
	// prerequisite. Results of other queries have none.
	objects map[string]map[string]bool
	// localQueues are the ClusterQueues of LocalQueues by cluster and namespace/name, in the result of that query.
	localQueues map[string]map[string]string
	// unmappedValues are the values of series that name none of the clusters. Only
	// requirements on the fleet use them.
	unmappedValues []float64

	// incomplete is true if the response lacks clusters or stores.
	incomplete bool
	// failedClusters are the clusters that an incomplete response lacks, each with the
	// reason. It is nil if the source does not know which ones.
	failedClusters map[string]string
	// lacksWholeClusters is true if an incomplete response has all or nothing of a cluster: Thanos
	// has stores of its own for each cluster, and the query reads no other cluster's series for it.
	lacksWholeClusters bool
	// incompleteSince is the start of the first query whose response lacks the cluster.
	// The key "" stands for a response that may lack any cluster.
	incompleteSince map[string]time.Time

	// sampleTimes are the sample times that were known when the values were queried.
	// Results that do not measure room have none.
	sampleTimes *cachedResult
	// quotaTimes are the sample times of the quota that were known when it was queried. Other results
	// have none.
	quotaTimes *cachedResult
}

// queryResult is the result of a query in a plan. result is nil until the query has run.
type queryResult struct {
	*renderedQuery
	result *cachedResult
}

// isServable reports whether a decision may use the result instead of running the query:
// within a period, because refreshes run meanwhile. A failure is servable for longer, so
// that decisions do not wait for another timeout.
func (r *cachedResult) isServable(period time.Duration, now time.Time) bool {
	if r.err != nil {
		period += timing.QueryTimeout
	}
	return now.Sub(r.storedAt) < period
}

// isNewerThan reports whether the query started at cutoff or later, and the query for its
// sample times as well. A failure keeps old values, and with them old sample times.
func (r *cachedResult) isNewerThan(cutoff time.Time) bool {
	return !r.queriedAt.Before(cutoff) && (r.err != nil || r.sampleTimes == nil || !r.sampleTimes.queriedAt.Before(cutoff))
}

// mayLackClusters reports whether the absence of a cluster may be due to a failure.
func (r *cachedResult) mayLackClusters() bool { return r.err != nil || r.incomplete }

// lacks reports whether the response may lack the cluster because it is incomplete.
func (r *cachedResult) lacks(cluster string) bool {
	_, failed := r.failedClusters[cluster]
	return r.incomplete && (r.failedClusters == nil || failed)
}

// hasInvalidValue reports whether the value of any cluster is unusable.
func (r *cachedResult) hasInvalidValue() bool {
	for _, n := range r.values {
		if !n.Known {
			return true
		}
	}
	return false
}

// hasNonZeroValue reports whether any series has a value that is neither 0 nor NaN.
func (r *cachedResult) hasNonZeroValue() bool {
	for _, v := range r.unmappedValues {
		if v != 0 && !math.IsNaN(v) {
			return true
		}
	}
	return r.hasNonZeroCluster()
}

// hasNonZeroCluster reports whether the value of any cluster is neither 0 nor unusable.
func (r *cachedResult) hasNonZeroCluster() bool {
	for _, n := range r.values {
		if n.Known && n.Value != 0 {
			return true
		}
	}
	return false
}

// all returns the known sample times by cluster, if the result holds sample times. A nil result has none.
func (r *cachedResult) all() iter.Seq2[string, time.Time] {
	return func(yield func(string, time.Time) bool) {
		if r == nil {
			return
		}
		for cluster := range r.values {
			if at := r.sampleTimeOf(cluster); !at.IsZero() && !yield(cluster, at) {
				return
			}
		}
	}
}

// sampleTimeOf returns the sample time of a cluster, if the result holds sample times. It
// returns zero if the time is unknown or further in the future than timing.MaxClockSkew:
// such a sample would never become old. A time slightly in the future counts as the time
// of the query.
func (r *cachedResult) sampleTimeOf(cluster string) time.Time {
	n := r.values[cluster]
	if !n.Known || n.Value > float64(r.succeededAt.Add(timing.MaxClockSkew).Unix()) {
		return time.Time{}
	}
	if at := time.UnixMilli(int64(n.Value * 1000)); at.Before(r.succeededAt) {
		return at
	}
	return r.succeededAt
}

// expireRanking drops the values of a failing query that were queried before cutoff, if
// the query only ranks clusters or explains. Queries that decide admission keep their
// values: package gate checks their age. The exception is quota. An old quota would make
// the cluster's sample time as old, and with it a fit that is still fresh.
func (r *queryResult) expireRanking(cutoff time.Time) {
	isExpendable := r.returnsQuota() || !r.decidesAdmission()
	if r.result.err != nil && r.result.succeededAt.Before(cutoff) && isExpendable {
		r.result = &cachedResult{err: r.result.err}
	}
}
