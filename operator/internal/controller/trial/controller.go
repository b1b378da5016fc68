// Package trial runs trials of jobs. Each reconciliation looks at one Workload with a check of
// the controller plimsoll.dev/trial, and takes the next step of its trial. The check always ends
// Ready: a trial delays a job by a limited time, and never blocks it.
package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	// retryInterval is the wait after a failed step. The time limit of the trial ends the repetition.
	retryInterval = 15 * time.Second
	// rereadDelay is the wait after a write that the API server refused because the cache was stale.
	rereadDelay = time.Second
	// maxConcurrentSteps keeps a slow source from delaying the jobs of other namespaces.
	maxConcurrentSteps = 8
	// queryTimeout limits the queries about one copy.
	queryTimeout = 30 * time.Second
)

// Options of the controller.
type Options struct {
	// Enabled permits trials. Otherwise, the operator may not create Jobs, and every job passes.
	Enabled bool
	// Sources is the registry of query clients.
	Sources *query.Sources
	// Registerer of the controller's metrics; nil = not registered.
	Registerer prometheus.Registerer
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Reconciler runs trials.
type Reconciler struct {
	client client.Client
	// live reads Jobs and whole Workloads from the API server: the cache has only copies, and no
	// commands.
	live    client.Reader
	sources *query.Sources
	enabled bool
	metrics *metrics
	now     func() time.Time
}

// The permissions on Jobs are in config/trials, for operators with --trials only.
//
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;localqueues,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=trialpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=trialpolicies/status,verbs=patch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources;placementgates,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=jobprofiles,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=plimsoll.dev,resources=jobprofiles/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch

// Setup adds the controllers of trials and of TrialPolicies to the manager. The hub must have
// Kueue's CRDs.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), sources: opts.Sources, enabled: opts.Enabled, metrics: newMetrics(opts.Registerer), now: opts.Now}
	trials := ctrl.NewControllerManagedBy(mgr).
		Named("trial").
		For(&kueue.Workload{}, builder.WithPredicates(concerned)).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(r.workloadsOfCheck), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentSteps, NewQueue: fairqueue.NewForRequests, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "trial", "workload")})
	if opts.Enabled {
		// At the start, each copy that exists leads to a look at its Workload.
		trials = trials.Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(workloadOfCopy), builder.WithPredicates(predicate.NewPredicateFuncs(isCopy)))
	}
	if err := trials.Complete(r); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("trialpolicy").
		For(&v1alpha1.TrialPolicy{}).
		Watches(&v1alpha1.MetricsSource{}, handler.EnqueueRequestsFromMapFunc(r.policiesOfSource)).
		WithOptions(controller.Options{RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "trialpolicy", "policy")}).
		Complete(reconcile.Func(r.reconcilePolicy))
}

// concerned selects Workloads that have admission checks, or had them before an update.
var concerned = predicate.Funcs{
	UpdateFunc:  func(e event.UpdateEvent) bool { return hasChecks(e.ObjectOld) || hasChecks(e.ObjectNew) },
	CreateFunc:  func(e event.CreateEvent) bool { return hasChecks(e.Object) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return hasChecks(e.Object) },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func hasChecks(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && len(wl.Status.AdmissionChecks) > 0
}

func isCopy(obj client.Object) bool { return obj.GetLabels()[v1alpha1.TrialOfLabel] != "" }

// workloadOfCopy returns the Workload that owns a copy.
func workloadOfCopy(_ context.Context, obj client.Object) []reconcile.Request {
	for _, owner := range obj.GetOwnerReferences() {
		if string(owner.UID) == obj.GetLabels()[v1alpha1.TrialOfLabel] {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}}}
		}
	}
	return nil
}

// workloadsOfCheck returns the Workloads with an entry of a check for trials. A check that is deleted
// and created again leaves the entries as they are.
func (r *Reconciler) workloadsOfCheck(ctx context.Context, obj client.Object) []reconcile.Request {
	if check, ok := obj.(*kueue.AdmissionCheck); !ok || check.Spec.ControllerName != v1alpha1.TrialControllerName {
		return nil
	}
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "The Workloads of an AdmissionCheck could not be listed", "check", obj.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if kueuestate.FindCheck(&list.Items[i], obj.GetName()) != nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile takes the next step of a Workload's trial.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	wl := &kueue.Workload{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, wl)
	if err != nil {
		return reconcile.Result{}, err
	}
	t := &trialRun{wl: wl}
	if found && (kueuestate.AcceptsCheckUpdate(wl) || kueuestate.IsBeingEvicted(wl)) {
		if err := r.findCheck(ctx, t); err != nil {
			return reconcile.Result{}, err
		}
	}
	if t.entry == nil {
		return r.retry(ctx, t, reconcile.Result{}, r.end(ctx, req.NamespacedName))
	}
	if t.exempt == "" {
		if err := r.gather(ctx, t); err != nil {
			return r.retry(ctx, t, reconcile.Result{}, fmt.Errorf("gather the state of the trial: %w", err))
		}
	}
	result, err := r.apply(ctx, t, t.next())
	return r.retry(ctx, t, result, err)
}

// retry returns the result, or another look before the time limit if the step failed. The work
// queue itself would wait longer after each failure, for up to a quarter of an hour.
func (r *Reconciler) retry(ctx context.Context, t *trialRun, result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case err == nil || ctx.Err() != nil: // the process stops
		return result, nil
	case errors.Is(err, hubstate.ErrSourceNotRegistered):
		return reconcile.Result{RequeueAfter: timing.SourceRetry}, nil
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: rereadDelay}, nil // the object changed since it was read
	}
	log.FromContext(ctx).Error(err, "The step is repeated")
	wait := retryInterval
	if remaining := t.state.Remaining(); t.entry != nil && remaining > 0 {
		wait = max(rereadDelay, min(wait, remaining))
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// apply takes a step.
func (r *Reconciler) apply(ctx context.Context, t *trialRun, step trial.Step) (reconcile.Result, error) {
	switch step.Action {
	case trial.Reserve:
		return reconcile.Result{RequeueAfter: rereadDelay}, r.reserve(ctx, t, step.Models)
	case trial.Create:
		if err := r.create(ctx, t, step.Models); err != nil {
			return r.pass(ctx, t, trial.Step{Message: "no trial: " + err.Error(), Result: trial.Stopped})
		}
		return reconcile.Result{RequeueAfter: rereadDelay}, r.writeCheck(ctx, t, kueue.CheckStatePending, step.Message)
	case trial.Measure:
		return reconcile.Result{RequeueAfter: rereadDelay}, r.measureCopies(ctx, t, step.Models)
	case trial.Wait:
		return reconcile.Result{RequeueAfter: step.After}, r.writeCheck(ctx, t, kueue.CheckStatePending, step.Message)
	default:
		return r.pass(ctx, t, step)
	}
}

// pass makes the check Ready. The change of the Workload leads to the removal of the copies.
func (r *Reconciler) pass(ctx context.Context, t *trialRun, step trial.Step) (reconcile.Result, error) {
	if err := r.writeCheck(ctx, t, kueue.CheckStateReady, step.Message); err != nil {
		return reconcile.Result{}, err
	}
	if t.state.IsRunning() {
		r.metrics.count(t.policy.Name, step.Result)
		log.FromContext(ctx).Info("The trial has ended", "policy", t.policy.Name, "result", step.Result, "message", step.Message)
	} else {
		log.FromContext(ctx).V(1).Info("The job passes without a trial", "message", step.Message)
	}
	return reconcile.Result{RequeueAfter: rereadDelay}, nil
}
