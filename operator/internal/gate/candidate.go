package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Number is an answer that may be missing. A missing one is never read as 0.
type Number struct {
	Value float64 `json:"value"`
	Known bool    `json:"known"`
}

// Known number.
func Known(v float64) Number { return Number{Value: v, Known: true} }

// ShapeAnswer is what one cluster answered about one pod set.
type ShapeMetrics struct {
	// Fit: pods that it could start now.
	Fit Number `json:"fit"`
	// Largest: free devices on its best node, to say what is missing.
	Largest Number `json:"largest"`
	// Headroom, Capacity, Queued in devices.
	Headroom Number `json:"headroom"`
	Capacity Number `json:"capacity"`
	Queued   Number `json:"queued"`
	// Quota in devices that the worker's queue may still reserve.
	Quota Number `json:"quota"`
	// QuotaUnanswered: nobody answers what the queue may still reserve.
	QuotaFailed bool `json:"quotaUnanswered,omitempty"`
	// NoQuota: Kueue there has no queue of that name with quota for the resource.
	QueueMissing bool `json:"noQuota,omitempty"`
}

// Candidate is one cluster that the Placement decided, and what is known of it.
type Candidate struct {
	Name string
	// Unusable says why nothing can be sent there; empty = usable.
	Unusable string
	// Scores by ScoreKey.
	Scores map[string]Score
	// Sampled is the time of the oldest trusted sample; zero = unknown.
	SampledAt time.Time
	// Shapes answers the facts' pod sets, in their order.
	Shapes []ShapeMetrics
	// Conditions of scope Cluster.
	Conditions []ConditionResult
}

// Fleet is what is known of all clusters together.
type Fleet struct {
	// Conditions of scope Fleet.
	Conditions []ConditionResult
	// Doubtful: an answer may lack something, or room is not told in numbers.
	Incomplete bool
	// Problem of the metrics source, such as that it did not answer; empty = none.
	Problem string
	// Since when it is asked in vain for what decides; of several, the last to fail.
	FailingSince time.Time
}

// Rules of a gate.
type Rules struct {
	Placement    string
	Policies     []v1alpha1.GatePolicy
	TierPoints   int32
	MaxSampleAge time.Duration
	UnknownAfter time.Duration
	OnStale      v1alpha1.StaleMode
	// Keep the choice of one of these where it has room: the workload is, or is about
	// to be, sent there already, and every other would be one copy more.
	Incumbents []string
}

// patient while something fails that was not asked in vain for long: as far as
// anybody knows it was answered until then, and onStale forgives nothing yet.
func (r Rules) failClosedWhileRecent(fleet Fleet, now time.Time) Rules {
	if fleet.Problem != "" && now.Sub(fleet.FailingSince) <= r.UnknownAfter {
		r.OnStale = v1alpha1.StaleClosed
	}
	return r
}

// Defaults of the rules.
const (
	// DefaultTierPoints is the default of tierPoints.
	DefaultTierPoints = 20
	// DefaultMinimum is the default minimum of a required score. It excludes the clusters
	// that a policy sets to -100 for lack of data.
	DefaultMinimum = -99
)

// RulesOf a gate.
func RulesOf(spec *v1alpha1.PlacementGateSpec) Rules {
	r := Rules{
		Placement:    spec.PlacementRef.Namespace + "/" + spec.PlacementRef.Name,
		Policies:     spec.Policies,
		TierPoints:   DefaultTierPoints,
		MaxSampleAge: timing.Seconds(spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge),
		UnknownAfter: timing.Seconds(spec.Freshness.UnknownAfterSeconds, timing.DefaultUnknownAfter),
		OnStale:      spec.Freshness.OnStale,
	}
	if spec.TierPoints != nil {
		r.TierPoints = *spec.TierPoints
	}
	return r
}
