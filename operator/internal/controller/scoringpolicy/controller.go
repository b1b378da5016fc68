// Package scoringpolicy runs the rounds of ScoringPolicies: it gathers the fleet and
// the source, lets the round decide, publishes, and reports.
package scoringpolicy

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/publish"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// Options of the controller.
type Options struct {
	Sources *query.Sources
	// Registerer of the controller's metrics; nil = not registered.
	Registerer prometheus.Registerer
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Concurrency of the writes of one policy; 0 = 16.
	Concurrency int
}

// Reconciler of ScoringPolicies.
type Reconciler struct {
	client    client.Client
	recorder  events.EventRecorder
	sources   *query.Sources
	publisher *publish.Publisher
	metrics   *metrics
	now       func() time.Time

	mu       sync.Mutex
	memories map[string]*memory
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=scoringpolicies;metricssources,verbs=get;list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=scoringpolicies/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=addonplacementscores,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=addonplacementscores/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller, its metrics and its explanations to the manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{
		client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-scores"), sources: opts.Sources,
		publisher: &publish.Publisher{Client: mgr.GetClient(), Concurrency: opts.Concurrency},
		now:       opts.Now, memories: map[string]*memory{},
	}
	r.metrics = newMetrics(opts.Registerer, r.outcomes)
	if err := publish.Indices(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	for path, h := range r.handlers() {
		if err := mgr.AddMetricsServerExtraHandler(path, h); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("scoringpolicy").
		For(&v1alpha1.ScoringPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.MetricsSource{}, handler.EnqueueRequestsFromMapFunc(r.policiesOfSource), builder.WithPredicates(reachabilityChanged())).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(r.policiesOfCluster), builder.WithPredicates(membershipChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: atATime}).
		Complete(r)
}

// Reconcile runs one round of a policy: gather, decide, apply, report.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := r.client.Get(ctx, req.NamespacedName, policy); apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.forget(ctx, req.Name)
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if policy.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	if wait := r.tooSoon(policy); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	in, err := r.gather(ctx, policy)
	switch {
	case errors.Is(err, errNotYet):
		return reconcile.Result{RequeueAfter: notYet}, nil
	case err != nil:
		return reconcile.Result{}, err
	case in.invalid != nil:
		return reconcile.Result{}, r.writeInvalid(ctx, policy, in.invalid)
	}
	report := in.ask(ctx)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // leadership or process ends: nothing that we learnt may be written
	}
	published := r.publisher.Publish(ctx, in.publication(report.Result))
	done := outcome{in: in, report: report, published: published, took: r.now().Sub(in.request.Now)}
	r.remember(policy, &done)
	r.metrics.observe(policy.Name, &done)
	if err := r.writeStatus(ctx, policy, &done); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next(in, r.now())}, nil
}

// next is when the following round begins: a period after this one began, jittered
// by a tenth so that policies spread.
func next(in *gathered, now time.Time) time.Duration {
	period := in.period
	due := in.request.Now.Add(period*95/100 + rand.N(period/10))
	return max(due.Sub(now), 50*time.Millisecond)
}

const (
	calm   = time.Second
	notYet = 100 * time.Millisecond
	// atATime is how many policies have a round: those of a slow source must not
	// keep the others waiting.
	atATime = 16
)

// tooSoon keeps clusters that come in a burst from making a round each. A changed
// policy does not wait.
func (r *Reconciler) tooSoon(policy *v1alpha1.ScoringPolicy) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memories[policy.Name]
	if m == nil || m.uid != policy.UID || m.generation != policy.Generation {
		return 0
	}
	least := min(calm, period(policy)/2)
	return m.began.Add(least).Sub(r.now())
}

// forget a policy that is gone, and delete its scores. Garbage collection would do
// that too, later, and does it when the operator was not there to see.
func (r *Reconciler) forget(ctx context.Context, name string) error {
	r.mu.Lock()
	m := r.memories[name]
	delete(r.memories, name)
	r.mu.Unlock()
	r.metrics.forget(name)
	if m == nil {
		return nil
	}
	return r.publisher.Publish(ctx, publish.Request{Owner: m.last.in.owner, Name: m.last.in.name}).Err
}
