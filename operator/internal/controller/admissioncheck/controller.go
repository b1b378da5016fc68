// Package admissioncheck keeps the Active condition of the AdmissionChecks that
// a PlacementGate decides. Kueue stops every ClusterQueue that uses an inactive
// check, so that it is False only for a bad or absent configuration.
package admissioncheck

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// Reconciler of AdmissionChecks.
type Reconciler struct {
	client   client.Client
	recorder events.EventRecorder
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks/status,verbs=get;patch;update

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager) error {
	r := &Reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-gate")}
	return ctrl.NewControllerManagedBy(mgr).
		Named("admissioncheck").
		For(&kueue.AdmissionCheck{}).
		Watches(&v1alpha1.PlacementGate{}, handler.EnqueueRequestsFromMapFunc(r.checksOf)).
		Complete(r)
}

// Reconcile gathers, decides, applies.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	check := &kueue.AdmissionCheck{}
	if err := r.client.Get(ctx, req.NamespacedName, check); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if check.Spec.ControllerName != v1alpha1.ControllerName {
		return reconcile.Result{}, nil
	}
	var pg *v1alpha1.PlacementGate
	if name, ok := kueuestate.GateOf(check); ok {
		pg = &v1alpha1.PlacementGate{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, pg); apierrors.IsNotFound(err) {
			pg = nil
		} else if err != nil {
			return reconcile.Result{}, err
		}
	}
	active, settled := decide(check, pg)
	if !settled {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.apply(ctx, check, active)
}

func (r *Reconciler) apply(ctx context.Context, check *kueue.AdmissionCheck, active metav1.Condition) error {
	active.ObservedGeneration = check.Generation
	changed := check.DeepCopy()
	if !apimeta.SetStatusCondition(&changed.Status.Conditions, active) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(check)); err != nil {
		return client.IgnoreNotFound(err)
	}
	kind := "Normal"
	if active.Status != metav1.ConditionTrue {
		kind = "Warning"
	}
	r.recorder.Eventf(changed, nil, kind, active.Reason, "Check", "%s", active.Message)
	return nil
}

// checksOf a gate.
func (r *Reconciler) checksOf(ctx context.Context, pg client.Object) []reconcile.Request {
	checks := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, checks); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range checks.Items {
		if name, ok := kueuestate.GateOf(&checks.Items[i]); ok && name == pg.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&checks.Items[i])})
		}
	}
	return requests
}
