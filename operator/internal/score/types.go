package score

import (
	"slices"
	"time"
)

// Outcome says what a cluster's answer to one query was.
type Outcome uint8

// The outcomes of an answer.
const (
	OK          Outcome = iota // a finite value
	Absent                     // no series
	NaN                        // not a number
	Infinite                   // +Inf or -Inf
	Duplicate                  // more than one series, or a series that several clusters claim
	Stale                      // older than freshness.maxAgeSeconds, or of unknown age
	Failed                     // the query got no answer
	Invalid                    // the expression does not parse
	TooFewFresh                // the round is refused: fewer clusters than minHealthyPercent
)

var outcomes = [...]string{"OK", "Absent", "NaN", "Infinite", "Duplicate", "Stale", "Failed", "Invalid", "TooFewFresh"}

// String is the outcome's name.
func (o Outcome) String() string { return outcomes[o] }

// known says that the source did speak of the cluster, or kept silent about it.
func (o Outcome) known() bool { return o != Failed && o != Invalid && o != TooFewFresh }

// State says what became of one score of one cluster.
type State uint8

// The states of a score.
const (
	Scored  State = iota // from a value of this round
	Held                 // the last good value, for a while
	Vetoed               // below its minimum: -100
	Worst                // missing: -100
	Fixed                // missing: the fixed value
	Omitted              // missing: not published
)

var states = [...]string{"Scored", "Held", "Vetoed", "Worst", "Fixed", "Omitted"}

// String is the state's name.
func (s State) String() string { return states[s] }

// Lowest is written for a cluster that is known to be blind, whatever the range.
const Lowest = -100

// Input is one cluster's answer to one query.
type Input struct {
	Value   float64
	Outcome Outcome
}

// Samples are the answers of one round.
type Samples struct {
	// Clusters in ascending order.
	Clusters []string
	// Scores holds one slice per score of the policy, each with an Input per cluster.
	Scores [][]Input
	// Age of each cluster's samples; nil when the policy does not ask.
	Age []time.Duration
}

// Cell is one score of one cluster.
type Cell struct {
	Raw     float64 // the last usable value; NaN for the total, which has none
	Points  float64 // normalized and damped
	Value   int32   // what is published, unless Omitted
	State   State
	Outcome Outcome
	// Since is when the value went missing, none while it is there.
	Since Instant
	// SampleTime of the last usable value.
	SampleTime Instant
	// HeldUntil bounds the validity of a held value.
	HeldUntil Instant

	memory memory
}

// memory is what damping must remember of a cell.
type memory struct {
	good      bool    // Raw and Points mean something
	published bool    // Value has been published
	jump      bool    // the policy has changed: the next value counts undamped
	at        Instant // of the last usable value's round
	smooth    float64 // exponentially weighted mean
	rising    Instant // since when smooth lies above Points
	riseMin   float64 // the lowest since then
}

// Result of a round. It is also what the next round starts from.
type Result struct {
	Time     Instant
	Clusters []string
	// Names of the scores; the total, if there is one, is last.
	Names []string
	// Cells of all clusters, each with as many as there are Names.
	Cells []Cell
	// Refused says that too few clusters answered: everything is held.
	Refused bool
	// Fresh clusters answered now; Known ones did within 24 hours.
	Fresh, Known int
	// Clamped counts values that normalization left outside the range.
	Clamped int

	answered []Instant // per cluster, its last fresh answer
}

// Restart is what a round starts from when the policy's spec has changed: points of
// the old spec are still held, and the next value counts at once instead of being
// damped from them.
func (r *Result) Restart() *Result {
	fresh := *r
	fresh.Cells = slices.Clone(r.Cells)
	for i := range fresh.Cells {
		fresh.Cells[i].memory.jump = true
	}
	return &fresh
}

// Row returns the cells of cluster i.
func (r *Result) Row(i int) []Cell {
	n := len(r.Names)
	return r.Cells[i*n : (i+1)*n : (i+1)*n]
}

// Seed is what a cluster's published scores tell after a restart.
type Seed struct {
	Cluster    string
	Values     map[string]int32
	SampleTime time.Time // no later than the last good sample, as far as is known
	Fresh      bool      // it did answer then
}
