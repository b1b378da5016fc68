package query

import (
	"context"
	"slices"
	"time"
)

// Querier runs instant queries.
type Querier interface {
	// Query evaluates expr at the given time. Every error is an *Error.
	Query(ctx context.Context, expr string, at time.Time) (Result, error)
}

// QuerierFunc is a function that implements Querier.
type QuerierFunc func(ctx context.Context, expr string, at time.Time) (Result, error)

// Query calls f.
func (f QuerierFunc) Query(ctx context.Context, expr string, at time.Time) (Result, error) {
	return f(ctx, expr, at)
}

// Sample is one series of an instant vector. Value may be NaN or infinite.
type Sample struct {
	// Labels of the series. They are nil, and only Cluster is set, for most samples of a
	// client that does not keep all labels.
	Labels map[string]string
	// Cluster is the value of the cluster label of the source.
	Cluster string
	Value   float64
}

// Label returns the value of a label: the cluster label of the source, or any label if
// Labels are set.
func (s Sample) Label(name string) string {
	if s.Labels == nil {
		return s.Cluster
	}
	return s.Labels[name]
}

// Result is the result of an instant query.
type Result struct {
	// Samples of the instant vector. A scalar becomes one sample without labels.
	Samples []Sample
	// Warnings and infos of the source.
	Warnings, Infos []string
	// Failed maps a cluster whose own endpoint failed to the error message. Only
	// sources with one endpoint per cluster set it.
	Failed map[string]string
	// Partial is true if the source reports that data is missing, such as that of stores that
	// did not respond: a cluster can be absent or its value too small.
	Partial bool
	// PartialReason is the warning that makes the response partial, the first one in alphabetical
	// order if there are several.
	PartialReason string
	// Gaps identify the data that a partial response lacks: a hash of each warning about missing
	// data, such as that of one store, in ascending order. Hashes differ between processes.
	Gaps []uint64
	// Duration of the query with its retries, without the wait for concurrency and rate
	// limits.
	Duration time.Duration
}

// LacksAtMost reports whether other lacks all data that r lacks. Two queries can have different
// gaps: a store fails during the first, and another store during the second.
func (r *Result) LacksAtMost(other *Result) bool {
	return !slices.ContainsFunc(r.Gaps, func(gap uint64) bool {
		_, found := slices.BinarySearch(other.Gaps, gap)
		return !found
	})
}

// decodedBytes returns the approximate size of the samples in memory.
func (r *Result) decodedBytes() int {
	n := len(r.Samples) * sampleBytes
	for _, s := range r.Samples {
		for _, value := range s.Labels {
			n += labelBytes + len(value)
		}
	}
	return n
}
