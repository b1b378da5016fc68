package capacitypolicy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
)

// Bounds of messages: an event has 1024 bytes, and a condition names only some clusters.
const (
	maxMessage      = 900
	maxListedNames  = 5
	reasonAllFresh  = "Fresh"
	reasonNotFresh  = "NotFresh"
	reasonUnusable  = "SourceFailed"
	reasonCanWork   = "QuotaFollows"
	reasonAllParsed = "Parsed"
)

// recordQuotas writes the quotas of a round to the status if the Cohort is about to be written, and
// returns the recorded policy. If the process ends in between, the next round writes the Cohort. In the
// other order, the next round would continue from the quota before, and after a gap give a lowered quota
// back.
func (r *Reconciler) recordQuotas(ctx context.Context, before, policy *v1alpha1.CapacityPolicy, cohort *cohortState) (*v1alpha1.CapacityPolicy, error) {
	if decideApply(policy, cohort) != nil || !needsWrite(policy, cohort) {
		return before, nil
	}
	if err := r.client.Status().Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, err
	}
	return policy.DeepCopy(), nil
}

// writeStatus writes the status if it changed. It logs transitions of conditions and sends
// an event for each.
func (r *Reconciler) writeStatus(ctx context.Context, before, policy *v1alpha1.CapacityPolicy, measured *measurement, applied condition.Decision) error {
	valid, fresh := decideQueriesValid(measured), decideMeasured(measured, policy.Status.Quotas)
	for _, c := range []struct {
		conditionType string
		decision      condition.Decision
	}{
		{v1alpha1.ConditionReady, decideReady(valid, fresh, applied)},
		{v1alpha1.ConditionQueriesValid, valid},
		{v1alpha1.ConditionMeasured, fresh},
		{v1alpha1.ConditionApplied, applied},
	} {
		c.decision.Message = condition.Truncate(c.decision.Message, maxMessage)
		condition.Set(&policy.Status.Conditions, c.conditionType, c.decision, policy.Generation)
	}
	policy.Status.ObservedGeneration = policy.Generation
	if equality.Semantic.DeepEqual(before.Status, policy.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, policy, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, c := range condition.Transitions(before.Status.Conditions, policy.Status.Conditions) {
		log.FromContext(ctx).Info("Condition changed", "type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		if c.Type == v1alpha1.ConditionReady {
			continue // it repeats another condition
		}
		eventType := corev1.EventTypeNormal
		if c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonShadow {
			eventType = corev1.EventTypeWarning
		}
		r.recorder.Eventf(policy, nil, eventType, c.Reason, c.Type, "%s: %s", c.Type, c.Message)
	}
	return nil
}

func decideQueriesValid(measured *measurement) condition.Decision {
	if len(measured.invalid) > 0 {
		return condition.False(v1alpha1.ReasonParseError, strings.Join(measured.invalid, "; "))
	}
	return condition.True(reasonAllParsed, "every query parses")
}

// decideMeasured decides the condition Measured.
func decideMeasured(measured *measurement, quotas []v1alpha1.QuotaStatus) condition.Decision {
	switch {
	case measured.tooMany > 0:
		limit, with := clusterLimit(len(measured.readings)), ""
		if limit < maxClusters {
			with = fmt.Sprintf(" with %d quotas", len(measured.readings))
		}
		return condition.False(v1alpha1.ReasonTooManyClusters, fmt.Sprintf(
			"the policy selects %d clusters, at most %d are allowed%s; every quota stays. Narrow spec.clusterSelector", measured.tooMany, limit, with))
	case len(measured.failures)+len(measured.invalid) > 0:
		return condition.False(reasonUnusable, "quotas without a usable response stay: "+strings.Join(append(measured.failures, measured.invalid...), "; "))
	}
	var kept, missing []string
	for i := range quotas {
		for _, c := range quotas[i].Clusters {
			text := fmt.Sprintf("%s (%s, %s)", c.Name, c.Reason, quotas[i].Flavor)
			switch c.State {
			case v1alpha1.CapacityFresh:
			case v1alpha1.CapacityKept:
				kept = append(kept, text)
			case v1alpha1.CapacityMissing:
				missing = append(missing, text)
			}
		}
	}
	switch {
	case len(missing) > 0:
		return condition.False(v1alpha1.ReasonMissing, "clusters that count 0: "+list(missing)+andKept(kept))
	case len(kept) > 0:
		return condition.False(v1alpha1.ReasonKept, "clusters whose last number counts: "+list(kept))
	}
	return condition.True(reasonAllFresh, "every cluster has a fresh number")
}

func andKept(kept []string) string {
	if len(kept) == 0 {
		return ""
	}
	return "; clusters whose last number counts: " + list(kept)
}

// list joins the first names and counts the others.
func list(names []string) string {
	if len(names) <= maxListedNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListedNames], ", "), len(names)-maxListedNames)
}

// decideReady repeats the first condition that keeps the policy from its work. Shadow mode
// and kept or missing clusters do not.
func decideReady(valid, fresh, applied condition.Decision) condition.Decision {
	switch {
	case !valid.IsTrue():
		return valid
	case !fresh.IsTrue() && fresh.Reason != v1alpha1.ReasonKept && fresh.Reason != v1alpha1.ReasonMissing:
		return fresh
	case !applied.IsTrue() && applied.Reason != v1alpha1.ReasonShadow:
		return applied
	}
	return condition.True(reasonCanWork, "the quota follows the measured devices")
}
