package score

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Outcome states what a query returned for a cluster.
type Outcome uint8

// Outcomes of a query for one cluster. Only OK comes with a usable value.
const (
	OK          Outcome = iota // a finite value
	Absent                     // no series
	None                       // no series, which missing.absent accepts
	NaN                        // not a number
	Infinite                   // +Inf or -Inf
	Duplicate                  // several series, or a series that several clusters match
	Stale                      // older than freshness.maxAgeSeconds, or of unknown age
	Failed                     // the query failed
	Invalid                    // the expression does not parse
	TooFewFresh                // a usable value of a refused round, which does not count yet
	Unmatched                  // the query matches no cluster, now and in all rounds before
	Colliding                  // several values of nameFrom's label have this name
)

var outcomeNames = [...]string{"OK", "Absent", "None", "NaN", "Infinite", "Duplicate", "Stale", "Failed", "Invalid", "TooFewFresh", "Unmatched", "Colliding"}

// String returns the name of the outcome.
func (o Outcome) String() string { return outcomeNames[o] }

// isConclusive reports whether the source evaluated the query: its response, or the
// lack of a series in its response, is a statement about the cluster.
func (o Outcome) isConclusive() bool {
	return o != Failed && o != Invalid && o != TooFewFresh && o != Unmatched && o != Colliding
}

// IsExpected reports whether the source responded for the cluster as the policy
// expects: with a value, or with an accepted lack of one.
func (o Outcome) IsExpected() bool { return o == OK || o == None }

// State states how a score of a cluster was decided.
type State uint8

// States of a score.
const (
	Scored  State = iota // computed from a value of this round
	Kept                 // no usable value; the last score is kept
	Vetoed               // outside of minimum and maximum; published as Lowest
	Worst                // no usable value after the keep time; published as Lowest
	Fixed                // no usable value after the keep time; published as the fixed value
	Omitted              // no usable value after the keep time; not published
)

var stateNames = [...]string{"Scored", "Kept", "Vetoed", "Worst", "Fixed", "Omitted"}

// String returns the name of the state.
func (s State) String() string { return stateNames[s] }

// Lowest is published for a vetoed cluster and for a cluster without usable metrics, in
// every range.
const Lowest = -100

// Input is the result of one query for one cluster.
type Input struct {
	// Value is meaningful only if Outcome is OK.
	Value   float64
	Outcome Outcome
}

// Samples are the query results of one round.
type Samples struct {
	// Clusters are the names of the clusters in ascending order.
	Clusters []string
	// Scores has one slice per score of the policy, each with one Input per cluster.
	Scores [][]Input
	// Age of the samples of each cluster, for each score. It is nil if no age counts, or none for
	// a score.
	Age [][]time.Duration
}

// Cell is one score of one cluster.
type Cell struct {
	// Raw is the last usable value. It is NaN for the total, and if it is from before a restart.
	Raw float64
	// Points are the normalized and damped value. They are NaN for a vetoed total, and for a veto
	// from before a restart.
	Points float64
	// Value is the published score. It is 0 if State is Omitted.
	Value   int32
	State   State
	Outcome Outcome
	// Since is the time from which the value is missing. It is zero if Outcome is OK.
	Since Instant
	// SampleTime is the time of the last usable value.
	SampleTime Instant
	// KeptUntil is the end of the keep time. It is zero if the score is not kept.
	KeptUntil Instant

	history history
}

// KnownPoints returns Points. ok is false if nothing is known about them.
func (c *Cell) KnownPoints() (points float64, ok bool) {
	// A total has no sample time if one of its parts has none, as missing.absent accepts.
	hasValue := !c.SampleTime.IsZero() || c.State == Scored || c.State == Kept
	return c.Points, hasValue && !math.IsNaN(c.Points)
}

// HasMatched reports whether the query of the score had matched a cluster when it last
// responded. It is false if the query never responded.
func (c *Cell) HasMatched() bool { return c.history.hasMatched }

// history is the state of a cell that carries over to the next round.
type history struct {
	// hasPoints means that Raw and Points are set.
	hasPoints bool
	// hasPublished means that Value is published.
	hasPublished bool
	// hasMatched means that the present query had matched a cluster when it last responded.
	hasMatched bool
	// skipDamping means that the policy changed: the next value applies at once.
	skipDamping bool
	// updated is the time of the last round with a usable value.
	updated Instant
	// seen is the time of the last usable value, also after the keep time. After a restart, it is
	// the time from which the value is missing.
	seen Instant
	// maybeSeen means that seen is from a restart, and that the cluster may never have had a value.
	maybeSeen bool
	// absentAt is the time of the last response without a series that missing.absent accepts.
	// It is zero if a later response says something else.
	absentAt Instant
	// mean is the exponentially weighted mean of the points.
	mean float64
}

// Result is the outcome of a round, and the starting point of the next one.
type Result struct {
	Time     Instant
	Clusters []string
	// Names of the scores. The total, if the policy has one, is last.
	Names []string
	// Cells of all clusters, row by row. Each row has one cell per name.
	Cells []Cell
	// Refused means that too few clusters have fresh values, and that scores from before are
	// kept. A refusal delays a fresh value at most until the keep time of the score ends.
	Refused bool
	// Fresh is the number of clusters with a usable value in this round, and Known the
	// number of clusters that had one within 24 hours before. KnownFresh of the known
	// clusters are fresh.
	Fresh, Known, KnownFresh int
	// Clamped is the number of values that normalization left outside the range.
	Clamped int
	// TotalErr is the failure of the total's expression for the first cluster with one.
	TotalErr error
	// Matched are the expressions that have matched a cluster in this round or an earlier
	// one.
	Matched map[string]bool
	// AgeKnown are the clusters for whose samples an age was known in this round or an earlier one.
	AgeKnown map[string]bool

	lastFresh []Instant // per cluster: the last round with a usable value
	// tooFewSince is the time from which too few clusters have fresh values. It is zero
	// if enough have one.
	tooFewSince Instant
	// nextChange is the earliest time at which a score changes without a new response. It is
	// zero if none does.
	nextChange Instant
}

// NextKeepEnd returns the earliest time at which a score changes without a new response: the
// end of a keep time, or of the delay of a cluster that joined while too few had fresh values. ok is
// false if there is none.
func (r *Result) NextKeepEnd() (end time.Time, ok bool) {
	return r.nextChange.Time(), !r.nextChange.IsZero()
}

// addChange records that a score changes at a time without a new response. Zero is no time.
func (r *Result) addChange(at Instant) {
	if !at.IsZero() && (r.nextChange.IsZero() || at < r.nextChange) {
		r.nextChange = at
	}
}

// HadValue reports whether the cluster had a usable value in any of the scores within 24 hours before a
// time, and no later response without a series that missing.absent accepts. After a restart, the
// time from which a published score is missing counts as that of the last value if the cluster was
// stale. A total has no value of its own: it may be the sum of accepted ones.
func (r *Result) HadValue(cluster string, scores []string, at time.Time) bool {
	if r == nil {
		return false
	}
	i, ok := slices.BinarySearch(r.Clusters, cluster)
	return ok && slices.ContainsFunc(scores, func(name string) bool {
		j := slices.Index(r.Names, name)
		if j < 0 {
			return false
		}
		c := &r.Row(i)[j]
		return !c.history.seen.IsZero() && !c.history.maybeSeen && c.history.absentAt.IsZero() && At(at).sub(c.history.seen) <= healthyWindow
	})
}

// SkipDamping returns a copy of the result for the next round after a change of the
// policy. Points of the old policy are still kept, but the next usable value applies at
// once instead of being damped from them.
func (r *Result) SkipDamping() *Result {
	changed := *r
	changed.Cells = slices.Clone(r.Cells)
	for i := range changed.Cells {
		changed.Cells[i].history.skipDamping = true
	}
	return &changed
}

// Without returns a copy of the result that does not have the named clusters.
func (r *Result) Without(clusters []string) *Result {
	if len(clusters) == 0 {
		return r
	}
	dropped := make(map[string]bool, len(clusters))
	for _, name := range clusters {
		dropped[name] = true
	}
	kept := *r
	kept.Clusters, kept.Cells, kept.lastFresh = nil, nil, nil
	kept.AgeKnown = maps.Clone(r.AgeKnown)
	maps.DeleteFunc(kept.AgeKnown, func(name string, _ bool) bool { return dropped[name] })
	for i, name := range r.Clusters {
		if !dropped[name] {
			kept.Clusters, kept.lastFresh = append(kept.Clusters, name), append(kept.lastFresh, r.lastFresh[i])
			kept.Cells = append(kept.Cells, r.Row(i)...)
		}
	}
	return &kept
}

// Row returns the cells of the i-th cluster.
func (r *Result) Row(i int) []Cell {
	n := len(r.Names)
	return r.Cells[i*n : (i+1)*n : (i+1)*n]
}

// Seed is the state of a cluster that can be recovered from its AddOnPlacementScore after
// a restart.
type Seed struct {
	Cluster string
	// Stale means that the samples of the cluster were too old when Scores were written: a score
	// that is missing since then had a value.
	Stale bool
	// Scores are the published scores by name, and those with the state Omitted.
	Scores map[string]SeedScore
	// Series are the numbers of series behind complete responses, by the key of the query.
	Series map[string]int64
	// Written and SeriesWritten are the times of the last writes of Scores and of Series. They are
	// zero if they are unknown.
	Written, SeriesWritten time.Time
}

// SeedScore is the state of one published score.
type SeedScore struct {
	Value int32
	State State
	// SampleTime is the time of the last usable sample, or of the last write if missing.absent
	// accepts that there is none.
	SampleTime time.Time
	// MissingSince is the time from which a usable value is missing. It is zero if the value
	// was fresh.
	MissingSince time.Time
	// Unmatched means that the present query of the score has matched no cluster yet. If it is
	// false for a score whose State is Omitted, the query has matched a cluster.
	Unmatched bool
}
