// Package jobprofile adds the runs of Workloads to JobProfiles. Each reconciliation handles
// one finished Workload: it queries what the run used, adds the run to the profile of its
// job, and reports how well the profile had predicted it.
package jobprofile

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/jobusage"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	// settleTime is the wait between the end of a run and its queries, in which the last
	// samples reach the source.
	settleTime = 15 * time.Second
	// minRetryInterval is the shortest wait after a failed query. Later, it is a quarter of the
	// time since the end of the run, so that a source that is down gets fewer queries.
	minRetryInterval = 30 * time.Second
	// maxDelay is the time after the end of a run in which it can be added. It bounds what a
	// new leader queries about the Workloads that finished before.
	maxDelay = time.Hour
	// rereadDelay is the wait after a write that the API server refused because the cache was stale.
	rereadDelay = time.Second
	// maxConcurrentRuns limits the runs that are measured at the same time.
	maxConcurrentRuns = 4
)

// Options of the controller.
type Options struct {
	// Sources is the registry of query clients.
	Sources *query.Sources
	// Registerer of the controller's metrics; nil = not registered.
	Registerer prometheus.Registerer
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Reconciler adds finished Workloads to JobProfiles.
type Reconciler struct {
	client client.Client
	// live reads whole Workloads from the API server: the cache has no commands.
	live    client.Reader
	sources *query.Sources
	metrics *metrics
	now     func() time.Time
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=placementgates;trialpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=jobprofiles,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=plimsoll.dev,resources=jobprofiles/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch

// Setup adds the controller to the manager. The hub must have Kueue's CRDs.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), sources: opts.Sources, metrics: newMetrics(opts.Registerer), now: opts.Now}
	return ctrl.NewControllerManagedBy(mgr).
		Named("jobprofile").
		For(&kueue.Workload{}, builder.WithPredicates(finishes)).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentRuns, NewQueue: fairqueue.NewForRequests, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "jobprofile", "workload")}).
		Complete(r)
}

// finishes selects Workloads that finished with success: those that exist at the start, and
// each one when it finishes.
var finishes = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return hasSucceeded(e.Object) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return hasSucceeded(e.ObjectNew) && !hasSucceeded(e.ObjectOld) },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// hasSucceeded reports whether the object is a Workload whose job succeeded. A failed run
// says little about the next one: it may have ended in its first second.
func hasSucceeded(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && successOf(wl) != nil
}

// successOf returns the condition Finished of a Workload whose job succeeded, otherwise nil.
func successOf(wl *kueue.Workload) *metav1.Condition {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	if finished == nil || finished.Status != metav1.ConditionTrue || finished.Reason != kueue.WorkloadFinishedReasonSucceeded {
		return nil
	}
	return finished
}

// Reconcile adds the run of one Workload to its profile.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	wl := &kueue.Workload{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, wl)
	finished := successOf(wl)
	if err != nil || !found || finished == nil {
		return reconcile.Result{}, err
	}
	age := r.now().Sub(finished.LastTransitionTime.Time)
	if age > maxDelay {
		return reconcile.Result{}, nil
	}
	f, err := r.finishedRunOf(ctx, wl, finished)
	if err != nil || f == nil {
		return reconcile.Result{}, err
	}
	if age < settleTime {
		return reconcile.Result{RequeueAfter: settleTime - age}, nil
	}
	return r.addRun(ctx, req, f)
}

// addRun measures the run and adds it to the profile, unless the profile has it already.
func (r *Reconciler) addRun(ctx context.Context, req reconcile.Request, f *finishedRun) (reconcile.Result, error) {
	whole := &kueue.Workload{}
	if found, err := hubstate.Find(ctx, r.live, req.NamespacedName, whole); err != nil || !found {
		return reconcile.Result{}, err
	}
	key := profile.KeyOf(whole)
	current := &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: key.Name}}
	exists, err := hubstate.Find(ctx, r.client, client.ObjectKeyFromObject(current), current)
	if err != nil || exists && profile.IsCounted(&current.Status, f.uid, f.end) {
		return reconcile.Result{}, err
	}
	run, err := r.measure(ctx, f)
	if err != nil {
		return r.retry(ctx, f, err), nil
	}
	if len(run.Models) == 0 {
		r.metrics.count(resultNoSamples)
		log.FromContext(ctx).Info("The run has no samples and is not added to a profile", "owner", f.ownerKind+"/"+f.ownerName, "cluster", f.cluster)
		return reconcile.Result{}, nil
	}
	ratios := profile.Errors(&current.Status, run)
	err = jobusage.Add(ctx, r.client, current, key, run, f.gate.Spec.Profiles)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: rereadDelay}, nil // the profile changed since it was read
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("write JobProfile %s/%s: %w", req.Namespace, key.Name, err)
	}
	r.metrics.count(resultAdded)
	r.metrics.observeErrors(ratios)
	log.FromContext(ctx).V(1).Info("The run was added to its profile", "profile", key.Name)
	return reconcile.Result{}, nil
}

// retry repeats a failed measurement until the run is too old.
func (r *Reconciler) retry(ctx context.Context, f *finishedRun, err error) reconcile.Result {
	if ctx.Err() != nil {
		return reconcile.Result{} // the process stops
	}
	age := r.now().Sub(f.end)
	wait := max(minRetryInterval, age/4)
	if age+wait > maxDelay {
		r.metrics.count(resultQueryFailed)
		log.FromContext(ctx).Info("The run could not be measured and is not added to a profile", "source", f.gate.Spec.SourceRef.Name, "error", err.Error())
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: wait}
}
