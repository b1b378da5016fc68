package publish

import (
	"encoding/json"
	"fmt"
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
	reasonAdopted   WriteReason = "adopted"   // nothing controlled the object
	reasonScore     WriteReason = "score"     // a score changed
	reasonCondition WriteReason = "condition" // the condition DataFresh changed
	reasonSeries    WriteReason = "series"    // a complete response has another number of series
	// ReasonValidity means that only the validity is renewed or shortened.
	ReasonValidity WriteReason = "validity"
)

// diff returns why the live status must be written. It is empty if the status is up to
// date. Validity alone is renewed after a third of it has passed.
func diff(object *clusterv1alpha1.AddOnPlacementScore, want *Desired, now time.Time, valid time.Duration) WriteReason {
	live := &object.Status
	switch {
	case !sameScores(object, want.Scores):
		return reasonScore
	case !sameConditions(live.Conditions, want.Conditions):
		return reasonCondition
	case !sameSeries(object, want):
		return reasonSeries
	case live.ValidUntil == nil, live.ValidUntil.After(want.ValidUntil.Add(time.Second)):
		return ReasonValidity
	case want.ValidUntil.After(live.ValidUntil.Time) && live.ValidUntil.Sub(now) <= valid*2/3:
		return ReasonValidity
	}
	return ""
}

// sameScores reports whether the object has the wanted scores, and no other score that a
// Publisher wrote. Scores of other field managers do not count: an apply does not remove
// them, so that the object would be written in every round.
func sameScores(object *clusterv1alpha1.AddOnPlacementScore, want []clusterv1alpha1.AddOnPlacementScoreItem) bool {
	live := object.Status.Scores
	for _, w := range want {
		if !slices.Contains(live, w) {
			return false
		}
	}
	if len(live) == len(want) {
		return true
	}
	owned := ownedScores(object.ManagedFields)
	return !slices.ContainsFunc(live, func(l clusterv1alpha1.AddOnPlacementScoreItem) bool {
		return owned(l.Name) && !slices.Contains(want, l)
	})
}

// ownedScores returns a function that reports whether a Publisher applied the score with
// the given name.
func ownedScores(entries []metav1.ManagedFieldsEntry) func(name string) bool {
	var fields struct {
		Status struct {
			// Keys have the form k:{"name":"free"}.
			Scores map[string]json.RawMessage `json:"f:scores"`
		} `json:"f:status"`
	}
	i := slices.IndexFunc(entries, isStatusApply)
	if i < 0 || entries[i].FieldsV1 == nil || json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &fields) != nil {
		// Without a record, every score may be one of ours. A write restores the record.
		return func(string) bool { return true }
	}
	return func(name string) bool {
		_, ok := fields.Status.Scores[fmt.Sprintf("k:{%q:%q}", "name", name)]
		return ok
	}
}

// isStatusApply selects the record of the fields that a Publisher applied.
func isStatusApply(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == string(FieldOwner) && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "status"
}

// isUpdate selects the record of the fields that a Publisher wrote outside of the status.
func isUpdate(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == string(FieldOwner) && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
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
