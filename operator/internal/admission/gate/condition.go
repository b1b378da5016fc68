package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// ConditionResult is the latest result of a gate's condition, for one cluster or for the
// whole fleet. A value other than 0 means that the condition is met.
type ConditionResult struct {
	Name string `json:"name"`
	// Number is unknown if the query returned nothing for this cluster or fleet. The condition
	// is then met if AbsentMeets is true.
	Number
	AbsentMeets bool `json:"absentMeets,omitempty"`
	// EvaluatedAt is when the query was sent. Zero means that no query succeeded yet.
	EvaluatedAt time.Time `json:"evaluatedAt,omitzero"`
	// Partial is true if the source returned a partial result that does not decide the
	// condition: the cluster is missing, the value may be that of a part of the data, or no part
	// of the fleet is non-zero. EvaluatedAt is then the time since when the result is partial.
	Partial bool `json:"partial,omitempty"`
}

// conditionState is what a condition's result means at a given time.
type conditionState int

const (
	conditionMet conditionState = iota
	conditionUnmet
	// conditionFailing means that the result is older than maxSampleAge, or partial.
	conditionFailing
	// conditionIgnored means that the result is older than unknownAfter and onStale is Open.
	conditionIgnored
)

func (c ConditionResult) state(rules Rules, now time.Time) conditionState {
	age := now.Sub(c.EvaluatedAt)
	switch {
	case c.Partial && age <= rules.UnknownAfter:
		return conditionFailing
	case age <= rules.MaxSampleAge && (c.Known && c.Value != 0 || !c.Known && c.AbsentMeets && !c.Partial):
		return conditionMet
	case age <= rules.MaxSampleAge:
		return conditionUnmet
	case rules.OnStale == v1alpha1.StaleOpen && age > rules.UnknownAfter:
		return conditionIgnored
	}
	return conditionFailing
}

// meetsConditions is the rule that the cluster meets every condition of scope Cluster.
// If missing data is ignored, an empty or partial result excludes no cluster. A result of 0
// does, and so does a result older than maxSampleAge but not yet older than unknownAfter.
func meetsConditions(c *Candidate, e *evaluation) []BrokenRule {
	var broken []BrokenRule
	for _, condition := range c.Conditions {
		switch condition.state(e.rules, e.now) {
		case conditionUnmet:
			if condition.Known {
				broken = append(broken, BrokenRule{RejectCondition, condition.Name})
			} else if !e.ignoreMissing {
				broken = append(broken, BrokenRule{RejectConditionAbsent, condition.Name})
			}
		case conditionFailing:
			if !condition.Partial || !e.ignoreMissing {
				broken = append(broken, BrokenRule{RejectConditionFailing, condition.Name})
			}
		case conditionMet, conditionIgnored:
		}
	}
	return broken
}

// conditionNames holds the names of conditions by their state.
type conditionNames [conditionIgnored + 1][]string

func groupByState(conditions []ConditionResult, rules Rules, now time.Time) (names conditionNames) {
	for _, c := range conditions {
		state := c.state(rules, now)
		names[state] = append(names[state], c.Name)
	}
	return names
}
