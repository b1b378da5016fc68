// Package condition decides, sets and compares the conditions of an object's status.
package condition

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is the length of a condition's message in characters.
const maxMessage = 2048

// Decision is the content of one condition.
type Decision struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// True returns a decision for the good state.
func True(reason, message string) Decision {
	return Decision{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// False returns a decision for the bad state.
func False(reason, message string) Decision {
	return Decision{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// Unknown returns a decision for a state that could not be determined yet.
func Unknown(reason, message string) Decision {
	return Decision{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// IsTrue reports whether the decision is the good state.
func (d Decision) IsTrue() bool { return d.Status == metav1.ConditionTrue }

// Set sets one condition and reports whether anything changed. The transition time
// changes only with the status. Long messages are truncated.
func Set(conditions *[]metav1.Condition, conditionType string, d Decision, generation int64) bool {
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: conditionType, Status: d.Status, Reason: d.Reason, Message: Truncate(d.Message, maxMessage), ObservedGeneration: generation,
	})
}

// Transitions returns the conditions whose status or reason differs from before, in
// the order of after. A condition that is set for the first time counts only if it is
// not True.
func Transitions(before, after []metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for _, c := range after {
		old := meta.FindStatusCondition(before, c.Type)
		switch {
		case old == nil && c.Status == metav1.ConditionTrue:
		case old == nil, old.Status != c.Status, old.Reason != c.Reason:
			changed = append(changed, c)
		}
	}
	return changed
}

// Truncate limits a text to n characters. A truncated text ends in "...".
func Truncate(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-3]) + "..."
}
