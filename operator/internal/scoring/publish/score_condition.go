package publish

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// reasonUnmatched is the reason of a score whose query has matched no cluster yet: a score that
// is kept although its query has changed, or an omitted one.
const reasonUnmatched = "Unmatched"

func isScoreCondition(conditionType string) bool {
	return strings.HasPrefix(conditionType, v1alpha1.ScoreConditionPrefix)
}

// scoreConditions returns one condition for each score whose value does not come from a
// sample of this round, or is vetoed. A restarted operator reads its state from them:
//
//   - The reason is the state of the score.
//     A kept or omitted score whose present query has matched no cluster yet has a reason of
//     its own.
//   - The transition time is the time of the last usable sample while the score is kept,
//     and the time from which a value is missing after the keep time.
//
// A score without a condition had a fresh value when the object was written. The times of a
// total follow from its parts.
func scoreConditions(names []string, row []score.Cell, hasTotal bool) []metav1.Condition {
	var conditions []metav1.Condition
	for i := range row {
		c := &row[i]
		condition := metav1.Condition{Type: v1alpha1.ScoreConditionPrefix + names[i], Status: metav1.ConditionFalse, Reason: c.State.String()}
		switch {
		case c.Outcome == score.OK && c.State == score.Scored:
			continue
		case c.Outcome == score.OK:
			condition.Status, condition.Message = metav1.ConditionTrue, "the value is fresh"
		case c.Outcome == score.None:
			condition.Status, condition.Message = metav1.ConditionTrue, "no series, which missing.absent accepts"
		case hasTotal && i == len(row)-1:
			condition.Message = fmt.Sprintf("a part of the total is %s", c.Outcome)
		case !c.KeptUntil.IsZero():
			condition.Message = fmt.Sprintf("%s, last usable sample at %s", c.Outcome, formatTime(c.SampleTime.Time()))
			condition.LastTransitionTime = toSeconds(c.SampleTime)
			if c.Outcome == score.Unmatched {
				condition.Reason = reasonUnmatched
			}
		default:
			condition.Message = fmt.Sprintf("%s since %s", c.Outcome, formatTime(c.Since.Time()))
			condition.LastTransitionTime = toSeconds(c.Since)
			if c.State == score.Omitted && !c.HasMatched() {
				condition.Reason = reasonUnmatched
			}
		}
		conditions = append(conditions, condition)
	}
	return conditions
}

// toSeconds converts a time to the precision of the API.
func toSeconds(i score.Instant) metav1.Time { return metav1.NewTime(i.Time().Truncate(time.Second)) }
