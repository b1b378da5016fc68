package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// RequirementResult is the latest result of a gate's requirement, for one cluster or for the
// whole fleet. A value other than 0 means that the requirement is met.
type RequirementResult struct {
	Name string `json:"name"`
	// Number is unknown if the query returned nothing for this cluster or fleet. The requirement
	// is then met if AbsentMeets is true.
	Number
	AbsentMeets bool `json:"absentMeets,omitempty"`
	// EvaluatedAt is when the query was sent. Zero means that no query succeeded yet.
	EvaluatedAt time.Time `json:"evaluatedAt,omitzero"`
	// Partial is true if the source returned a partial result that does not decide the
	// requirement: the cluster is missing, the value may be that of a part of the data, or no part
	// of the fleet is non-zero. EvaluatedAt is then the time since when the result is partial.
	Partial bool `json:"partial,omitempty"`
}

// requirementState is what a requirement's result means at a given time.
type requirementState int

const (
	requirementMet requirementState = iota
	requirementUnmet
	// requirementFailing means that the result is older than maxSampleAge, or partial.
	requirementFailing
	// requirementIgnored means that the result is older than unknownAfter and onStale is Open.
	requirementIgnored
)

func (c RequirementResult) state(rules Rules, now time.Time) requirementState {
	age := now.Sub(c.EvaluatedAt)
	switch {
	case c.Partial && age <= rules.UnknownAfter:
		return requirementFailing
	case age <= rules.MaxSampleAge && (c.Known && c.Value != 0 || !c.Known && c.AbsentMeets && !c.Partial):
		return requirementMet
	case age <= rules.MaxSampleAge:
		return requirementUnmet
	case rules.OnStale == v1alpha1.StaleOpen && age > rules.UnknownAfter:
		return requirementIgnored
	}
	return requirementFailing
}

// meetsRequirements is the rule that the cluster meets every requirement of scope Cluster.
// If missing data is ignored, an empty or partial result excludes no cluster. A result of 0
// does, and so does a result older than maxSampleAge but not yet older than unknownAfter.
func meetsRequirements(c *Candidate, e *evaluation) []BrokenRule {
	var broken []BrokenRule
	for _, requirement := range c.Requirements {
		switch requirement.state(e.rules, e.now) {
		case requirementUnmet:
			if requirement.Known {
				broken = append(broken, BrokenRule{RejectRequirement, requirement.Name})
			} else if !e.ignoreMissing {
				broken = append(broken, BrokenRule{RejectRequirementAbsent, requirement.Name})
			}
		case requirementFailing:
			if !requirement.Partial || !e.ignoreMissing {
				broken = append(broken, BrokenRule{RejectRequirementFailing, requirement.Name})
			}
		case requirementMet, requirementIgnored:
		}
	}
	return broken
}

// requirementNames holds the names of requirements by their state.
type requirementNames [requirementIgnored + 1][]string

func groupByState(requirements []RequirementResult, rules Rules, now time.Time) (names requirementNames) {
	for _, c := range requirements {
		state := c.state(rules, now)
		names[state] = append(names[state], c.Name)
	}
	return names
}
