package gate

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Condition is what one cluster answered to a condition of scope Cluster, or all
// together to one of scope Fleet: 1 where it holds, else 0.
type Condition struct {
	Name string `json:"name"`
	Number
	// Answered is when the answer was asked for; zero = nobody answered. One that is
	// not a number is an empty answer, which says no.
	Answered time.Time `json:"answered,omitzero"`
	// InPart: not all answered, and who did says nothing of this, since Answered. One
	// that is a number is a no, which others might have contradicted.
	InPart bool `json:"inPart,omitempty"`
}

// standing of a condition.
type standing int

const (
	met standing = iota
	unmet
	// unanswered for longer than a sample would be trusted.
	unanswered
	// forgiven by onStale: unanswered for so long that nothing is known any longer.
	forgiven
)

// stands by the last answer for as long as a sample would be trusted.
func (c Condition) stands(rules Rules, now time.Time) standing {
	age := now.Sub(c.Answered)
	switch {
	case c.InPart && age <= rules.UnknownAfter:
		return unanswered
	case age <= rules.MaxSampleAge && c.Known && c.Value != 0:
		return met
	case age <= rules.MaxSampleAge:
		return unmet
	case rules.OnStale == v1alpha1.StaleOpen && age > rules.UnknownAfter:
		return forgiven
	}
	return unanswered
}

// out says whether the condition keeps its cluster out. open forgives one without
// an answer about a cluster of which nothing is known at all.
func (c Condition) out(rules Rules, open bool, now time.Time) Out {
	switch c.stands(rules, now) {
	case unmet:
		if c.Known || !open {
			return OutCondition
		}
	case unanswered:
		if !c.InPart || !open {
			return OutUnanswered
		}
	case met, forgiven:
	}
	return OutNone
}

// terms of the fleet or of one cluster: its conditions' names by where they stand.
type terms [forgiven + 1][]string

func termsOf(conditions []Condition, rules Rules, now time.Time) (t terms) {
	for _, c := range conditions {
		at := c.stands(rules, now)
		t[at] = append(t[at], c.Name)
	}
	return t
}
