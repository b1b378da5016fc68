package publish

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
)

// Changed says why the live status must be written, empty when it stands.
// Validity alone is renewed only once a third of it is used up.
func Changed(live *clusterv1alpha1.AddOnPlacementScoreStatus, want *Desired, now time.Time, valid time.Duration) string {
	condition := meta.FindStatusCondition(live.Conditions, DataFresh)
	switch {
	case !sameScores(live.Scores, want.Scores):
		return "score"
	case condition == nil, condition.Status != want.Status, condition.Reason != want.Reason, condition.Message != want.Message:
		return "condition"
	case live.ValidUntil == nil, live.ValidUntil.After(want.ValidUntil.Add(time.Second)):
		return "validity"
	case want.ValidUntil.After(live.ValidUntil.Time) && live.ValidUntil.Sub(now) <= valid*2/3:
		return "validity"
	}
	return ""
}

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

// transition keeps the time of a condition whose status stays.
func transition(live *clusterv1alpha1.AddOnPlacementScoreStatus, want *Desired, now time.Time) metav1.Time {
	if live != nil {
		if c := meta.FindStatusCondition(live.Conditions, DataFresh); c != nil && c.Status == want.Status {
			return c.LastTransitionTime
		}
	}
	return metav1.NewTime(now)
}
