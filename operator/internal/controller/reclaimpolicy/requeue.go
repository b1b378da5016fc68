package reclaimpolicy

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/policies/rebalance"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// fieldOwner is the field manager of the gate, whose controller activates the workload again.
const fieldOwner = client.FieldOwner("plimsoll-gate")

// notReclaimed is why the API server did not deactivate a workload. Any other error leaves unknown
// whether the write took place.
type notReclaimed struct {
	reason string
	// isRefused is true if the API server would refuse the same write again.
	isRefused bool
}

func (e *notReclaimed) Error() string { return e.reason }

// departure is a workload that returns to its queue, and why.
type departure struct {
	*reclaim.Candidate
	// cause is for the record and for events.
	cause string
	// event of the workload, and would that of the policy in mode Shadow.
	event, would string
	// need completes the cause in events.
	need string
	// move is nil for an idle workload.
	move *rebalance.Decision
	// details are pairs of keys and values for the log.
	details []any
}

func idleReturn(d *reclaim.Decision) departure {
	return departure{Candidate: d.Candidate, cause: d.Cause(), event: dispatch.ReasonReclaimed, would: "WouldReclaim",
		need: ", and other workloads wait", details: []any{"idle", d.IdleFor.String()}}
}

func moveReturn(d *rebalance.Decision) departure {
	return departure{Candidate: d.Candidate, cause: d.Cause(), event: "Rebalanced", would: "WouldRebalance",
		move: d, details: []any{"for", d.Hold.Workload, "to", d.To}}
}

// carryOut returns a workload to its queue, or reports it in mode Shadow. It returns why the workload
// was certainly not written; nil = it was, or it may have been.
func (r *Reconciler) carryOut(ctx context.Context, policy *v1alpha1.ReclaimPolicy, queues *queues, mode v1alpha1.Mode, d departure, now time.Time) *notReclaimed {
	if mode != v1alpha1.ModeEnforce {
		r.reportShadow(ctx, policy, d)
		return nil
	}
	var refused *notReclaimed
	if err := r.requeue(ctx, policy, queues.workloads[d.UID], d, now); errors.As(err, &refused) {
		return refused
	}
	return nil
}

// requeue deactivates a workload, so that Kueue evicts it, and records until when. The controller of
// the gate activates it then, as after a yield. The write is for the version of the workload on
// which the decision rests. Its error is a notReclaimed if the workload was certainly not written.
func (r *Reconciler) requeue(ctx context.Context, policy *v1alpha1.ReclaimPolicy, wl *kueue.Workload, d departure, now time.Time) error {
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil {
		return &notReclaimed{reason: err.Error()}
	}
	inactive := false
	record = record.Reclaim(policy.Name, d.cause, d.GracePeriod, now)
	if d.move != nil {
		record = record.Avoid(d.Owner.Cluster, record.SleepsUntil.Add(timing.MoveAvoidance), "was left for "+d.move.Hold.Workload)
	}
	patch, err := record.Patch(wl.ResourceVersion, &inactive)
	if err != nil {
		return &notReclaimed{reason: err.Error()}
	}
	target := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: wl.Name}}
	logger := log.FromContext(ctx).WithValues("workload", client.ObjectKeyFromObject(wl).String(), "cluster", d.Owner.Cluster, "devices", d.Devices).WithValues(d.details...)
	if err := r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			logger.Info("The workload changed during the round and is not reclaimed")
			return &notReclaimed{reason: "it changed during the round"}
		}
		logger.Error(err, "Deactivating a workload failed")
		r.recorder.Eventf(policy, nil, corev1.EventTypeWarning, "WriteFailed", "Reclaim", "%s", condition.Truncate(
			fmt.Sprintf("%s/%s could not be deactivated: %s", wl.Namespace, wl.Name, err), maxMessage))
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return &notReclaimed{reason: condition.Truncate("the API server refused the write: "+err.Error(), maxMessage), isRefused: true}
		}
		return err
	}
	logger.Info("Workload reclaimed")
	r.metrics.count(policy.Name, v1alpha1.ModeEnforce, d.move != nil)
	r.recorder.Eventf(wl, nil, corev1.EventTypeWarning, d.event, "Reclaim", "%s", condition.Truncate(
		fmt.Sprintf("ReclaimPolicy %s returns it to its queue: %s%s", policy.Name, d.cause, d.need), maxMessage))
	return nil
}

// reportShadow reports a workload that mode Enforce would reclaim.
func (r *Reconciler) reportShadow(ctx context.Context, policy *v1alpha1.ReclaimPolicy, d departure) {
	log.FromContext(ctx).WithValues("workload", d.Namespace+"/"+d.Name, "cluster", d.Owner.Cluster, "devices", d.Devices).WithValues(d.details...).Info("Workload would be reclaimed")
	r.metrics.count(policy.Name, v1alpha1.ModeShadow, d.move != nil)
	r.recorder.Eventf(policy, nil, corev1.EventTypeNormal, d.would, "Reclaim", "%s", condition.Truncate(
		fmt.Sprintf("%s/%s would return to its queue: %s%s", d.Namespace, d.Name, d.cause, d.need), maxMessage))
}
