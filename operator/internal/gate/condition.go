package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Condition is what one cluster answered to a condition of scope Cluster, or all
// together to one of scope Fleet: 1 where it holds, else 0.
type ConditionResult struct {
	Name string `json:"name"`
	Number
	// Answered is when the answer was asked for; zero = nobody answered. One that is
	// not a number is an empty answer, which says no.
	EvaluatedAt time.Time `json:"answered,omitzero"`
	// InPart: not all answered, and who did says nothing of this, since Answered. One
	// that is a number is a no, which others might have contradicted.
	Partial bool `json:"inPart,omitempty"`
}

// standing of a condition.
type conditionState int

const (
	conditionMet conditionState = iota
	conditionUnmet
	// unanswered for longer than a sample would be trusted.
	conditionFailing
	// forgiven by onStale: unanswered for so long that nothing is known any longer.
	conditionIgnored
)

// stands by the last answer for as long as a sample would be trusted.
func (c ConditionResult) state(rules Rules, now time.Time) conditionState {
	age := now.Sub(c.EvaluatedAt)
	switch {
	case c.Partial && age <= rules.UnknownAfter:
		return conditionFailing
	case age <= rules.MaxSampleAge && c.Known && c.Value != 0:
		return conditionMet
	case age <= rules.MaxSampleAge:
		return conditionUnmet
	case rules.OnStale == v1alpha1.StaleOpen && age > rules.UnknownAfter:
		return conditionIgnored
	}
	return conditionFailing
}

// out says whether the condition keeps its cluster out. open forgives one without
// an answer about a cluster of which nothing is known at all.
func (c ConditionResult) rejection(rules Rules, open bool, now time.Time) Rejection {
	switch c.state(rules, now) {
	case conditionUnmet:
		if c.Known || !open {
			return RejectCondition
		}
	case conditionFailing:
		if !c.Partial || !open {
			return RejectConditionFailing
		}
	case conditionMet, conditionIgnored:
	}
	return RejectNone
}

// terms of the fleet or of one cluster: its conditions' names by where they stand.
type conditionNames [conditionIgnored + 1][]string

func groupByState(conditions []ConditionResult, rules Rules, now time.Time) (t conditionNames) {
	for _, c := range conditions {
		at := c.state(rules, now)
		t[at] = append(t[at], c.Name)
	}
	return t
}
