package reclaimpolicy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/policies/rebalance"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// maxMessage bounds messages: an event has 1024 bytes.
const maxMessage = 900

// Reasons of conditions.
const (
	reasonAllParsed    = "Parsed"
	reasonAllFresh     = "Fresh"
	reasonNothing      = "NothingToMeasure"
	reasonSourceFailed = "SourceFailed"
	reasonEnforcing    = "Enforcing"
)

// fillStatus sets the numbers, the idle workloads and the moves of the round.
func fillStatus(status *v1alpha1.ReclaimPolicyStatus, queues *queues, out outcome) {
	decisions := out.idle
	status.Reclaimable, status.Idle, status.IdleDevices, status.IdleWorkloads = int32(len(queues.candidates)), int32(len(decisions)), 0, nil //nolint:gosec // a hub has fewer workloads
	for i := range decisions {
		d := &decisions[i]
		status.IdleDevices += d.Devices
		if i < reclaim.MaxListed {
			status.IdleWorkloads = append(status.IdleWorkloads, v1alpha1.IdleWorkload{
				Namespace: d.Namespace, Name: d.Name, ClusterQueue: d.Queue, Cluster: d.Owner.Cluster, Devices: d.Devices,
				IdleSeconds: int64(d.IdleFor.Seconds()), State: d.State, Reason: d.Reason,
			})
		}
	}
	status.Moves = nil
	for i := range out.moves {
		d := &out.moves[i]
		move := v1alpha1.Move{For: d.Hold.Workload, Cluster: d.Hold.Cluster, State: d.State, Reason: condition.Truncate(d.Reason, maxMessage)}
		if c := d.Candidate; c != nil {
			move.Workload, move.To, move.Devices = c.Namespace+"/"+c.Name, d.To, c.Devices
		}
		if i < reclaim.MaxListed {
			status.Moves = append(status.Moves, move)
		}
	}
}

// writeStatus writes the status at the version that the round read, so that no round counts
// without the records of the last one. It logs transitions of conditions and sends an event for
// each.
func (r *Reconciler) writeStatus(ctx context.Context, before, policy *v1alpha1.ReclaimPolicy, queues *queues, measured *measurement) error {
	valid, fresh := decideQueriesValid(measured), decideMeasured(measured)
	for _, c := range []struct {
		conditionType string
		decision      condition.Decision
	}{
		{v1alpha1.ConditionReady, decideReady(policy, queues, valid, fresh)},
		{v1alpha1.ConditionQueriesValid, valid},
		{v1alpha1.ConditionMeasured, fresh},
	} {
		c.decision.Message = condition.Truncate(c.decision.Message, maxMessage)
		condition.Set(&policy.Status.Conditions, c.conditionType, c.decision, policy.Generation)
	}
	policy.Status.ObservedGeneration = policy.Generation
	if err := r.client.Status().Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	for _, c := range condition.Transitions(before.Status.Conditions, policy.Status.Conditions) {
		log.FromContext(ctx).Info("Condition changed", "type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		if c.Type == v1alpha1.ConditionReady && c.Reason != v1alpha1.ReasonQueueNotFound {
			continue // it repeats another condition
		}
		eventType := corev1.EventTypeNormal
		if c.Status == metav1.ConditionFalse {
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

func decideMeasured(measured *measurement) condition.Decision {
	switch {
	case len(measured.invalid) > 0:
		return condition.False(v1alpha1.ReasonParseError, "no workload is reclaimed: "+strings.Join(measured.invalid, "; "))
	case measured.failure != "":
		return condition.False(reasonSourceFailed, "no workload is reclaimed: "+measured.failure)
	case len(measured.stale) > 0:
		return condition.False(v1alpha1.ReasonStale, "no workload is reclaimed on clusters whose samples are missing or older than freshness permits: "+strings.Join(measured.stale, ", "))
	case !measured.isNeeded:
		return condition.True(reasonNothing, "no running workload of the queues agreed to be reclaimed, so nothing is queried")
	}
	return condition.True(reasonAllFresh, "every cluster with such a workload has fresh metrics")
}

// decideReady repeats the first condition that keeps the policy from its work. Single clusters
// without fresh metrics do not.
func decideReady(policy *v1alpha1.ReclaimPolicy, queues *queues, valid, fresh condition.Decision) condition.Decision {
	switch {
	case !valid.IsTrue():
		return valid
	case !fresh.IsTrue() && fresh.Reason != v1alpha1.ReasonStale:
		return fresh
	case len(queues.missing) > 0:
		return condition.False(v1alpha1.ReasonQueueNotFound, fmt.Sprintf("ClusterQueues that do not exist: %s; the others are considered", strings.Join(queues.missing, ", ")))
	case policy.Spec.Mode != v1alpha1.ModeEnforce:
		return condition.True(v1alpha1.ReasonShadow, "idle workloads are recorded, and none is changed; set spec.mode to Enforce to return them to their queues"+movesNote(policy))
	}
	return condition.True(reasonEnforcing, "idle workloads return to their queues"+movesNote(policy))
}

// movesNote states what a policy with rebalance does.
func movesNote(policy *v1alpha1.ReclaimPolicy) string {
	switch mode, isOn := rebalance.ModeOf(&policy.Spec); {
	case !isOn:
		return ""
	case mode == v1alpha1.ModeEnforce:
		return "; workloads move to other clusters"
	}
	return "; moves to other clusters are recorded"
}
