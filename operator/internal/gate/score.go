package gate

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Score of a ScoringPolicy for one cluster.
type Score struct {
	Value int32 `json:"value"`
	// Written is when it was last written: when it moved, or was confirmed because a
	// third of its validity was used up; zero = unknown.
	Written time.Time `json:"written,omitzero"`
	// ValidUntil is when the score expires; zero = never.
	ValidUntil time.Time `json:"validUntil,omitzero"`
	// State where the data behind it are not fresh: Held, Stale or Missing.
	State string `json:"state,omitempty"`
}

// ScoreKey of a policy's score.
func ScoreKey(policy, score string) string { return policy + "/" + score }

// ScoresOf an AddOnPlacementScore, ours or another's, by ScoreKey.
func ScoresOf(object *clusterv1alpha1.AddOnPlacementScore) map[string]Score {
	all := map[string]Score{}
	for _, item := range object.Status.Scores {
		s := Score{Value: item.Value, Written: lastStatusWrite(object.ManagedFields)}
		if object.Status.ValidUntil != nil {
			s.ValidUntil = object.Status.ValidUntil.Time
		}
		if c := apimeta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionDataFresh); c != nil && c.Status != metav1.ConditionTrue {
			s.State = c.Reason
		}
		all[ScoreKey(object.Name, item.Name)] = s
	}
	return all
}

// written is when anybody last wrote the status; zero = unknown.
func lastStatusWrite(fields []metav1.ManagedFieldsEntry) time.Time {
	var last time.Time
	for _, f := range fields {
		if f.Subresource == "status" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
