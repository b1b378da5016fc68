package reclaimpolicy

import (
	"context"
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
	"plimsoll.dev/plimsoll/operator/internal/condition"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/reclaim"
)

// fieldOwner is the field manager of the gate, whose controller activates the workload again.
const fieldOwner = client.FieldOwner("plimsoll-gate")

// notReclaimed is why the API server did not deactivate a workload. Any other error leaves unknown
// whether the write took place.
type notReclaimed struct{ reason string }

func (e *notReclaimed) Error() string { return e.reason }

// requeue deactivates a workload, so that Kueue evicts it, and records until when. The controller of
// the gate activates it then, as after a yield. The write is for the version of the workload on
// which the decision rests. Its error is a notReclaimed if the workload was certainly not written.
func (r *Reconciler) requeue(ctx context.Context, policy *v1alpha1.ReclaimPolicy, wl *kueue.Workload, d *reclaim.Decision, now time.Time) error {
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil {
		return &notReclaimed{err.Error()}
	}
	inactive := false
	patch, err := record.Reclaim(policy.Name, d.Cause(), d.GracePeriod, now).Patch(wl.ResourceVersion, &inactive)
	if err != nil {
		return &notReclaimed{err.Error()}
	}
	target := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: wl.Name}}
	logger := log.FromContext(ctx).WithValues("workload", client.ObjectKeyFromObject(wl).String(), "cluster", d.Owner.Cluster, "devices", d.Devices, "idle", d.IdleFor.String())
	if err := r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			logger.Info("The workload changed during the round and is not reclaimed")
			return &notReclaimed{"it changed during the round"}
		}
		logger.Error(err, "Deactivating an idle workload failed")
		r.recorder.Eventf(policy, nil, corev1.EventTypeWarning, "WriteFailed", "Reclaim", "%s", condition.Truncate(
			fmt.Sprintf("%s/%s could not be deactivated: %s", wl.Namespace, wl.Name, err), maxMessage))
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return &notReclaimed{condition.Truncate("the API server refused the write: "+err.Error(), maxMessage)}
		}
		return err
	}
	logger.Info("Workload reclaimed")
	r.metrics.count(policy.Name, v1alpha1.ReclaimEnforce)
	r.recorder.Eventf(wl, nil, corev1.EventTypeWarning, dispatch.ReasonReclaimed, "Reclaim", "%s", condition.Truncate(
		fmt.Sprintf("ReclaimPolicy %s returns it to its queue: %s, and other workloads wait", policy.Name, d.Cause()), maxMessage))
	return nil
}

// reportShadow reports a workload that mode Enforce would reclaim.
func (r *Reconciler) reportShadow(ctx context.Context, policy *v1alpha1.ReclaimPolicy, d *reclaim.Decision) {
	log.FromContext(ctx).Info("Workload would be reclaimed", "workload", d.Namespace+"/"+d.Name, "cluster", d.Owner.Cluster, "devices", d.Devices, "idle", d.IdleFor.String())
	r.metrics.count(policy.Name, v1alpha1.ReclaimShadow)
	r.recorder.Eventf(policy, nil, corev1.EventTypeNormal, "WouldReclaim", "Reclaim", "%s", condition.Truncate(
		fmt.Sprintf("%s/%s would return to its queue: %s, and other workloads wait", d.Namespace, d.Name, d.Cause()), maxMessage))
}
