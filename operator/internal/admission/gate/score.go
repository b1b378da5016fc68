package gate

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Score is a published score of one cluster.
type Score struct {
	Value int32 `json:"value"`
	// Written is when the score was last written: the value changed, or a third of its validity
	// had passed. Zero means unknown.
	Written time.Time `json:"written,omitzero"`
	// ValidUntil is when the score expires. Zero means never.
	ValidUntil time.Time `json:"validUntil,omitzero"`
	// State is the reason of the score's requirement, such as Held or Worst, if its data is not
	// fresh.
	State string `json:"state,omitempty"`
}

// ScoreKey returns the key of a policy's score in Candidate.Scores.
func ScoreKey(policy, score string) string { return policy + "/" + score }

// ScoresOf returns the scores of an AddOnPlacementScore by ScoreKey. Other components than
// Plimsoll may have written the object.
func ScoresOf(object *clusterv1alpha1.AddOnPlacementScore) map[string]Score {
	all := map[string]Score{}
	for _, item := range object.Status.Scores {
		s := Score{Value: item.Value, Written: lastStatusWrite(object.ManagedFields)}
		if object.Status.ValidUntil != nil {
			s.ValidUntil = object.Status.ValidUntil.Time
		}
		if c := apimeta.FindStatusCondition(object.Status.Conditions, v1alpha1.ScoreConditionPrefix+item.Name); c != nil && c.Status != metav1.ConditionTrue {
			s.State = c.Reason
		}
		all[ScoreKey(object.Name, item.Name)] = s
	}
	return all
}

// lastStatusWrite returns the time of the latest write of the status, by any field manager.
func lastStatusWrite(fields []metav1.ManagedFieldsEntry) time.Time {
	var last time.Time
	for _, f := range fields {
		if f.Subresource == "status" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// validScore returns a score that exists and has not expired.
func validScore(scores map[string]Score, key string, now time.Time) (int32, bool) {
	s, ok := scores[key]
	if !ok || !s.ValidUntil.IsZero() && now.After(s.ValidUntil) {
		return 0, false
	}
	return s.Value, true
}

// hasRequiredScores is the rule that every required score is valid and not below its minimum.
func hasRequiredScores(c *Candidate, e *evaluation) []BrokenRule {
	var broken []BrokenRule
	for _, p := range e.rules.Scores {
		if p.Use != v1alpha1.UseRequire {
			continue
		}
		minimum := int32(DefaultMinimum)
		if p.Minimum != nil {
			minimum = *p.Minimum
		}
		key := ScoreKey(p.ResourceName, p.ScoreName)
		switch score, ok := validScore(c.Scores, key, e.now); {
		case !ok && !e.ignoreMissing:
			broken = append(broken, BrokenRule{RejectNoScore, key})
		case ok && score < minimum:
			broken = append(broken, BrokenRule{RejectScore, key})
		}
	}
	return broken
}

// Preferred returns the mean of a cluster's preferred scores. The mean is unknown if one of
// the scores is missing or expired, and 0 if the gate prefers no score.
func Preferred(scores map[string]Score, policies []v1alpha1.GateScore, now time.Time) Number {
	sum, n := 0.0, 0
	for _, p := range policies {
		if p.Use == v1alpha1.UseRequire {
			continue
		}
		score, ok := validScore(scores, ScoreKey(p.ResourceName, p.ScoreName), now)
		if !ok {
			return Number{}
		}
		sum += float64(score)
		n++
	}
	if n == 0 {
		return Known(0)
	}
	return Known(sum / float64(n))
}
