// Package admissioncheck sets the condition Active of the AdmissionChecks that a
// PlacementGate or a TrialPolicy decides. Kueue stops every ClusterQueue with an inactive check, so Active is
// False only if the configuration is invalid or missing.
package admissioncheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Reconciler reconciles AdmissionChecks.
type Reconciler struct {
	client   client.Client
	recorder events.EventRecorder
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks,verbs=list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks/status,verbs=patch

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager) error {
	r := &Reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-gate")}
	return ctrl.NewControllerManagedBy(mgr).
		Named("admissioncheck").
		For(&kueue.AdmissionCheck{}).
		Watches(&v1alpha1.PlacementGate{}, handler.EnqueueRequestsFromMapFunc(r.checksOfGate)).
		WithOptions(controller.Options{RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "admissioncheck", "")}).
		Complete(r)
}

// Reconcile reads a check and its gate, decides the condition Active and writes it. It
// ignores the checks of other controllers.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	check := &kueue.AdmissionCheck{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, check)
	if err != nil || !found {
		return reconcile.Result{}, err
	}
	if check.Spec.ControllerName == v1alpha1.TrialControllerName {
		return reconcile.Result{}, r.writeActive(ctx, check, decideTrialActive(check))
	}
	if check.Spec.ControllerName != v1alpha1.ControllerName {
		return reconcile.Result{}, nil
	}
	pg, err := r.findGate(ctx, check)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("find the gate of AdmissionCheck %s: %w", check.Name, err)
	}
	active, ok := decideActive(check, pg)
	if !ok {
		log.FromContext(ctx).V(1).Info("Gate status is not up to date yet", "check", check.Name, "gate", pg.Name)
		return reconcile.Result{}, nil
	}
	if err := r.writeActive(ctx, check, active); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of AdmissionCheck %s: %w", check.Name, err)
	}
	return reconcile.Result{}, nil
}

// findGate returns the gate that a check names. It is nil if the check names none or the
// gate does not exist.
func (r *Reconciler) findGate(ctx context.Context, check *kueue.AdmissionCheck) (*v1alpha1.PlacementGate, error) {
	name, _ := kueuestate.GateOf(check)
	if name == "" {
		return nil, nil
	}
	pg := &v1alpha1.PlacementGate{}
	found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: name}, pg)
	if !found {
		return nil, err
	}
	return pg, nil
}

// writeActive writes the condition Active if it changed, and reports the change.
func (r *Reconciler) writeActive(ctx context.Context, check *kueue.AdmissionCheck, active condition.Decision) error {
	changed := check.DeepCopy()
	if !condition.Set(&changed.Status.Conditions, kueue.AdmissionCheckActive, active, check.Generation) {
		log.FromContext(ctx).V(1).Info("Status unchanged", "check", check.Name)
		return nil
	}
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(check)); err != nil {
		return client.IgnoreNotFound(err)
	}
	from := metav1.ConditionUnknown
	if old := meta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive); old != nil {
		from = old.Status
	}
	log.FromContext(ctx).Info("Condition changed", "check", check.Name, "type", kueue.AdmissionCheckActive,
		"from", from, "to", active.Status, "reason", active.Reason, "message", active.Message)
	eventType := corev1.EventTypeNormal
	if !active.IsTrue() {
		eventType = corev1.EventTypeWarning
	}
	r.recorder.Eventf(changed, nil, eventType, active.Reason, "Check", "%s", active.Message)
	return nil
}

// checksOfGate returns the checks that name a gate.
func (r *Reconciler) checksOfGate(ctx context.Context, pg client.Object) []reconcile.Request {
	checks := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, checks); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the AdmissionChecks of a changed PlacementGate", "gate", pg.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range checks.Items {
		if name, _ := kueuestate.GateOf(&checks.Items[i]); name == pg.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&checks.Items[i])})
		}
	}
	return requests
}
