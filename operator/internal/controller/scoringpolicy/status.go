package scoringpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/round"
)

// writeStatus reports a round, and says as events what has turned since the last.
func (r *Reconciler) writeStatus(ctx context.Context, policy *v1alpha1.ScoringPolicy, done *outcome) error {
	before := policy.DeepCopy()
	valid, fresh, out := queriesValid(done.report), dataFresh(done), published(done)
	decisions := map[string]decision{
		v1alpha1.ConditionQueriesValid: valid,
		v1alpha1.ConditionDataFresh:    fresh,
		v1alpha1.ConditionPublished:    out,
		v1alpha1.ConditionReady:        ready(done, valid, fresh, out),
	}
	for kind, d := range decisions {
		meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
			Type: kind, Status: d.status, Reason: d.reason, Message: clip(d.message, 2048), ObservedGeneration: policy.Generation,
		})
	}
	policy.Status.ObservedGeneration = policy.Generation
	summary := count(done.report.Result).RoundStatus
	summary.Time, summary.Duration = metav1.NewTime(done.in.request.Now), metav1.Duration{Duration: done.took}
	policy.Status.LastRound = &summary
	policy.Status.Scores = scoreStatus(done.report)
	if err := r.client.Status().Patch(ctx, policy, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.tell(before, policy, decisions)
	if done.published.Deleted > 0 {
		r.recorder.Eventf(policy, nil, corev1.EventTypeNormal, "ScoresDeleted", "Publish", "deleted %d AddOnPlacementScores that are not wanted any more", done.published.Deleted)
	}
	return nil
}

// writeInvalid says what keeps a policy from being evaluated. What it has published
// stays until it expires.
func (r *Reconciler) writeInvalid(ctx context.Context, policy *v1alpha1.ScoringPolicy, problem error) error {
	before := policy.DeepCopy()
	changed := meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "InvalidSpec",
		Message: clip(problem.Error(), 2048), ObservedGeneration: policy.Generation,
	})
	if !changed {
		return nil
	}
	policy.Status.ObservedGeneration = policy.Generation
	if err := r.client.Status().Patch(ctx, policy, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.recorder.Eventf(policy, nil, corev1.EventTypeWarning, "InvalidSpec", "Evaluate", "%s", clip(problem.Error(), 900))
	return nil
}

// tell sends one event for each condition that has turned. Ready only repeats.
func (r *Reconciler) tell(before, after *v1alpha1.ScoringPolicy, decisions map[string]decision) {
	for _, kind := range []string{v1alpha1.ConditionQueriesValid, v1alpha1.ConditionDataFresh, v1alpha1.ConditionPublished} {
		d := decisions[kind]
		old := meta.FindStatusCondition(before.Status.Conditions, kind)
		if old != nil && old.Status == d.status && old.Reason == d.reason {
			continue
		}
		if old == nil && d.status == metav1.ConditionTrue {
			continue
		}
		eventType := corev1.EventTypeNormal
		if d.status == metav1.ConditionFalse && d.reason != v1alpha1.ReasonShadow {
			eventType = corev1.EventTypeWarning
		}
		r.recorder.Eventf(after, nil, eventType, d.reason, kind, "%s: %s", kind, clip(d.message, 900))
	}
}

func scoreStatus(report *round.Report) []v1alpha1.ScoreStatus {
	var list []v1alpha1.ScoreStatus
	for _, a := range all(report) {
		list = append(list, statusOf(a))
	}
	return list
}

func statusOf(a *round.QueryReport) v1alpha1.ScoreStatus {
	s := v1alpha1.ScoreStatus{
		Name: label(a), Query: a.Query, Series: int32(a.Series), Duration: &metav1.Duration{Duration: a.Duration},
	}
	for i, w := range a.Warnings {
		if i == 7 && len(a.Warnings) > 8 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("and %d more", len(a.Warnings)-7))
			break
		}
		s.Warnings = append(s.Warnings, clip(w, 500))
	}
	switch {
	case a.Problems != nil:
		s.Error = clip(promql.Strings(a.Problems), 1000)
	case a.Err != nil:
		s.Error = clip(a.Err.Error(), 1000)
	}
	return s
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}
