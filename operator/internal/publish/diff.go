package publish

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
)

// WriteReason states why an object is written. It is also a label value of metrics.
type WriteReason string

const (
	reasonNew       WriteReason = "new"       // the object does not exist
	reasonOwner     WriteReason = "owner"     // a deleted policy of the same name owns the object
	reasonScore     WriteReason = "score"     // a score changed
	reasonCondition WriteReason = "condition" // the condition DataFresh changed
	// ReasonValidity means that only the validity is renewed or shortened.
	ReasonValidity WriteReason = "validity"
)

// diff returns why the live status must be written. It is empty if the status is up to
// date. Validity alone is renewed after a third of it has passed.
func diff(live *clusterv1alpha1.AddOnPlacementScoreStatus, want *Desired, now time.Time, valid time.Duration) WriteReason {
	switch {
	case !sameScores(live.Scores, want.Scores):
		return reasonScore
	case !sameConditions(live.Conditions, want.Conditions):
		return reasonCondition
	case live.ValidUntil == nil, live.ValidUntil.After(want.ValidUntil.Add(time.Second)):
		return ReasonValidity
	case want.ValidUntil.After(live.ValidUntil.Time) && live.ValidUntil.Sub(now) <= valid*2/3:
		return ReasonValidity
	}
	return ""
}

// sameScores compares two lists of scores without regard to their order.
func sameScores(live, want []clusterv1alpha1.AddOnPlacementScoreItem) bool {
	if len(live) != len(want) {
		return false
	}
	for _, w := range want {
		if !slices.Contains(live, w) {
			return false
		}
	}
	return true
}

// sameConditions reports whether the live conditions have the desired ones, and no
// condition of a score beside them. Conditions of other field managers do not count.
func sameConditions(live, want []metav1.Condition) bool {
	for i := range want {
		if c := meta.FindStatusCondition(live, want[i].Type); c == nil || !sameCondition(c, &want[i]) {
			return false
		}
	}
	return !slices.ContainsFunc(live, func(c metav1.Condition) bool {
		return isScoreCondition(c.Type) && meta.FindStatusCondition(want, c.Type) == nil
	})
}

func sameCondition(live, want *metav1.Condition) bool {
	return live.Status == want.Status && live.Reason == want.Reason && live.Message == want.Message &&
		(want.LastTransitionTime.IsZero() || live.LastTransitionTime.Equal(&want.LastTransitionTime))
}

// transitionTime returns the transition time of a condition. Without a time of its own, it
// is the live one if the status stays, and now otherwise.
func transitionTime(live []metav1.Condition, want *metav1.Condition, now time.Time) time.Time {
	if !want.LastTransitionTime.IsZero() {
		return want.LastTransitionTime.Time
	}
	if c := meta.FindStatusCondition(live, want.Type); c != nil && c.Status == want.Status {
		return c.LastTransitionTime.Time
	}
	return now
}
