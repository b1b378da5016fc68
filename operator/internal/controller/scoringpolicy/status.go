package scoringpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
)

// maxEventMessage keeps event messages below the API's limit of 1024 bytes.
const maxEventMessage = 900

// writeStatus writes the status after a round, and then reports the condition
// transitions.
func (r *Reconciler) writeStatus(ctx context.Context, policy *v1alpha1.ScoringPolicy, done *completedRound) error {
	before := policy.DeepCopy()
	for _, d := range decideConditions(done) {
		condition.Set(&policy.Status.Conditions, d.conditionType, d.Decision, policy.Generation)
	}
	policy.Status.ObservedGeneration = policy.Generation
	lastRound := summarize(done.report.Result).RoundStatus
	lastRound.Time, lastRound.DurationMilliseconds = metav1.NewTime(done.in.request.Now), done.took.Milliseconds()
	policy.Status.LastRound, policy.Status.Source, policy.Status.ClusterLabel = &lastRound, done.in.sourceID, done.in.source.ClusterLabel
	policy.Status.Scores = scoreStatuses(done.report)
	policy.Status.Warnings = done.in.warnings
	if err := r.client.Status().Patch(ctx, policy, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.reportTransitions(ctx, policy, before.Status.Conditions)
	return nil
}

// reportDeleted reports the scores that a round deleted, whether or not its status can be written.
func (r *Reconciler) reportDeleted(ctx context.Context, policy *v1alpha1.ScoringPolicy, n int) {
	if n == 0 {
		return
	}
	log.FromContext(ctx).Info("Scores deleted", "policy", policy.Name, "count", n)
	r.recorder.Eventf(policy, nil, corev1.EventTypeNormal, "ScoresDeleted", "Publish", "deleted %d AddOnPlacementScores that the policy no longer publishes", n)
}

// writeInvalidSpec reports a spec that can't be evaluated. Published scores stay until
// they expire.
func (r *Reconciler) writeInvalidSpec(ctx context.Context, policy *v1alpha1.ScoringPolicy, specErr error) error {
	before := policy.DeepCopy()
	invalid := condition.False("InvalidSpec", specErr.Error())
	if !condition.Set(&policy.Status.Conditions, v1alpha1.ConditionReady, invalid, policy.Generation) {
		return nil
	}
	policy.Status.ObservedGeneration = policy.Generation
	if err := r.client.Status().Patch(ctx, policy, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Spec can't be evaluated", "policy", policy.Name, "problem", specErr.Error())
	r.recorder.Eventf(policy, nil, corev1.EventTypeWarning, invalid.Reason, "Evaluate", "%s", condition.Truncate(invalid.Message, maxEventMessage))
	return nil
}

// reportTransitions logs every condition whose status or reason changed, and sends an
// event for each. Ready only repeats another condition, so it gets no event.
func (r *Reconciler) reportTransitions(ctx context.Context, policy *v1alpha1.ScoringPolicy, before []metav1.Condition) {
	for _, c := range condition.Transitions(before, policy.Status.Conditions) {
		log.FromContext(ctx).Info("Condition changed", "policy", policy.Name, "type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		if c.Type == v1alpha1.ConditionReady {
			continue
		}
		eventType := corev1.EventTypeNormal
		if c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonShadow {
			eventType = corev1.EventTypeWarning
		}
		r.recorder.Eventf(policy, nil, eventType, c.Reason, c.Type, "%s: %s", c.Type, condition.Truncate(c.Message, maxEventMessage))
	}
}

func scoreStatuses(report *round.Report) []v1alpha1.ScoreStatus {
	var statuses []v1alpha1.ScoreStatus
	for _, q := range queriesOf(report) {
		s := scoreStatus(q)
		s.Unmatched = !report.Result.Matched[q.Query]
		statuses = append(statuses, s)
	}
	return statuses
}

// scoreStatus returns the status of one query, within the limits of the API.
func scoreStatus(q *round.QueryReport) v1alpha1.ScoreStatus {
	s := v1alpha1.ScoreStatus{
		Name: nameOf(q), Names: q.Names, Query: q.Query, Series: int32(q.Series), DurationMilliseconds: q.Duration.Milliseconds(),
	}
	for i, w := range q.Warnings {
		if i == 7 && len(q.Warnings) > 8 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("and %d more", len(q.Warnings)-7))
			break
		}
		s.Warnings = append(s.Warnings, condition.Truncate(w, 500))
	}
	switch {
	case q.Problems != nil:
		s.Error = condition.Truncate(promql.Strings(q.Problems), 1000)
	case q.Err != nil:
		s.Error = condition.Truncate(q.Err.Error(), 1000)
	}
	return s
}
