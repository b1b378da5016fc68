package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Defaults of a gate's rules.
const (
	// DefaultTierPoints is the default of tierPoints.
	DefaultTierPoints = 20
	// DefaultMinimum is the default minimum of a required score. It excludes clusters for
	// which a policy publishes -100 because their data is missing.
	DefaultMinimum = -99
)

// PeriodOf returns the time between two rounds of a gate.
func PeriodOf(spec *v1alpha1.PlacementGateSpec) time.Duration {
	return timing.Seconds(spec.PeriodSeconds, timing.DefaultPeriod)
}

// Rules are the parameters of a gate's decisions.
type Rules struct {
	// Placement is the namespace/name of the Placement that provides the candidates.
	Placement  string
	Scores     []v1alpha1.GateScore
	TierPoints int32
	// MaxSampleAge is the largest age of samples that prove room.
	MaxSampleAge time.Duration
	// UnknownAfter is the age from which a cluster counts as unknown. OnStale then applies.
	UnknownAfter time.Duration
	OnStale      v1alpha1.StaleMode
	// SpareKnown is true if headroom and fit count the same devices, so that their difference
	// is the number of devices on nodes without room for another pod.
	SpareKnown bool
	// EmptyFitKnown is true if emptyFit counts the same pods as fit.
	EmptyFitKnown bool
	// Hold are the gate's rules for holding a cluster.
	Hold HoldRules
	// Rank of the workload among those that wait.
	Rank ledger.Rank
	// RunsFor is the longest time for which the workload runs. Zero means unknown.
	RunsFor time.Duration
	// PreemptsLowerPriority is true if the workload may preempt workloads of its ClusterQueue
	// with a lower priority.
	PreemptsLowerPriority bool
	// Reclaim states from whom the workload may take back quota that its ClusterQueue lent.
	Reclaim Reclaim
	// WholeNodes is true if victims count only if each of their pods returns the devices of a pod.
	WholeNodes bool
	// PreemptsUncounted is true if Kueue may preempt workloads for this one that the gate does not
	// count. A lack of quota then excludes no cluster.
	PreemptsUncounted bool
	// CohortQueues are the other ClusterQueues that draw on the quota of the workload's cohort tree.
	CohortQueues []string
	// Incumbents are clusters that the workload is sent to already, or is about to be. If one
	// has room, the decision keeps it, because any other cluster would get one more copy.
	Incumbents []string
}

// Reclaim is a ClusterQueue's policy reclaimWithinCohort. The zero value never reclaims.
type Reclaim struct {
	// Queues are the other ClusterQueues of the cohort.
	Queues []string
	// AnyPriority is true if priorities do not matter. Otherwise only lower ones are preempted.
	AnyPriority bool
}

// RulesOf returns the parameters of a gate, with defaults for unset fields.
func RulesOf(spec *v1alpha1.PlacementGateSpec) Rules {
	r := Rules{
		Placement:     spec.PlacementRef.Namespace + "/" + spec.PlacementRef.Name,
		Scores:        spec.Scores,
		TierPoints:    DefaultTierPoints,
		MaxSampleAge:  timing.Seconds(spec.Freshness.MaxSampleAgeSeconds, timing.DefaultMaxSampleAge),
		UnknownAfter:  timing.Seconds(spec.Freshness.UnknownAfterSeconds, timing.DefaultUnknownAfter),
		OnStale:       spec.Freshness.OnStale,
		SpareKnown:    (spec.Queries.Fit == "") == (spec.Queries.Headroom == ""),
		EmptyFitKnown: spec.Queries.Fit == "" || spec.Queries.EmptyFit != "",
		Hold:          holdRulesOf(spec),
	}
	if spec.Advanced.TierPoints != nil {
		r.TierPoints = *spec.Advanced.TierPoints
	}
	return r
}

// failClosedWhileRecent returns rules with onStale Closed if a query failed less than
// UnknownAfter ago. Until then the last results still describe the fleet, so nothing may be
// ignored yet.
func (r Rules) failClosedWhileRecent(fleet Fleet, now time.Time) Rules {
	if fleet.Problem != "" && now.Sub(fleet.FailingSince) <= r.UnknownAfter {
		r.OnStale = v1alpha1.StaleClosed
	}
	return r
}

// evaluation is the input that all candidates of one decision share.
type evaluation struct {
	facts shape.Facts
	rules Rules
	now   time.Time
	// ignoreMissing is true if onStale is Open and no usable cluster has samples younger than
	// UnknownAfter. Missing data then excludes no cluster, and room is not evaluated.
	ignoreMissing bool
}

func newEvaluation(f shape.Facts, candidates []Candidate, fleet Fleet, rules Rules, now time.Time) *evaluation {
	e := &evaluation{facts: f, rules: rules.failClosedWhileRecent(fleet, now), now: now}
	e.ignoreMissing = e.rules.OnStale == v1alpha1.StaleOpen
	for i := range candidates { // an unknown sample time is zero, and so older than UnknownAfter
		c := &candidates[i]
		if len(c.Excluded) == 0 && now.Sub(c.SampledAt) <= rules.UnknownAfter {
			e.ignoreMissing = false
		}
	}
	return e
}

// BrokenRule is one reason to exclude a candidate.
type BrokenRule struct {
	Rejection Rejection `json:"rejection"`
	// Detail completes the message, as in Verdict.
	Detail string `json:"detail,omitempty"`
}

// rule returns every way in which a candidate breaks it, most important first, or nil.
// A rule must not change its arguments.
type rule func(c *Candidate, e *evaluation) []BrokenRule

// brokenRules returns what a candidate breaks, in the order of the table of rejections.
// With firstOnly the search stops at the first broken rule. Room is not included: see
// evaluateRoom.
func (e *evaluation) brokenRules(c *Candidate, firstOnly bool) []BrokenRule {
	var broken []BrokenRule
	for i := range rejections {
		if breaks := rejections[i].rule; breaks != nil {
			broken = append(broken, breaks(c, e)...)
		}
		if firstOnly && len(broken) > 0 {
			break
		}
	}
	return broken
}

// isUsable is the rule that workloads can be sent to the cluster.
func isUsable(c *Candidate, _ *evaluation) []BrokenRule {
	return c.Excluded
}

// hasFreshSamples is the rule that samples are recent enough to prove room. Workloads
// without devices need none.
func hasFreshSamples(c *Candidate, e *evaluation) []BrokenRule {
	switch {
	case e.ignoreMissing || len(e.facts.PodSets) == 0:
	case c.SampledAt.IsZero():
		return []BrokenRule{{RejectUnknown, ""}}
	case e.now.Sub(c.SampledAt) > e.rules.MaxSampleAge:
		return []BrokenRule{{RejectStale, e.rules.MaxSampleAge.String()}}
	}
	return nil
}
