// Package scoringpolicy reconciles ScoringPolicies. Each reconciliation is one round:
// it gathers the clusters and the source, evaluates the scores, publishes them, and
// reports the round in status, metrics, events and the log.
package scoringpolicy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	// minRoundInterval is the time between two rounds of an unchanged policy.
	minRoundInterval = time.Second
	// maxConcurrentRounds is high because a round of a slow source lasts as long as its
	// timeout, and must not delay the rounds of other policies.
	maxConcurrentRounds = 64
	// maxRoundsPerSource leaves workers for other sources if many policies read one that does
	// not respond.
	maxRoundsPerSource = 16
	// maxWriteRetry is the longest wait for the next round after a failed write of scores. It is not
	// shorter: a hub can refuse a write for good.
	maxWriteRetry = 30 * time.Second
	// busySourceInterval is the wait for a source with maxRoundsPerSource rounds.
	busySourceInterval = time.Second
)

// errBusySource is why a policy has no turn at its source.
var errBusySource = fmt.Errorf("%d policies wait for responses of the same source: raise periodSeconds or repair the source", maxRoundsPerSource)

// Options of the controller.
type Options struct {
	// Sources is the registry of query clients.
	Sources *query.Sources
	// Registerer of the controller's metrics. If it is nil, they are not registered.
	Registerer prometheus.Registerer
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Concurrency is the maximum number of concurrent writes per policy. Default 16.
	Concurrency int
	// ClusterMetrics exports a score metric per policy, score and cluster.
	ClusterMetrics bool
}

// Reconciler reconciles ScoringPolicies.
type Reconciler struct {
	client    client.Client
	recorder  events.EventRecorder
	sources   *query.Sources
	shared    sharedQueries
	publisher *publish.Publisher
	metrics   *metrics
	now       func() time.Time
	// elected is closed once this process leads.
	elected <-chan struct{}

	mu       sync.Mutex
	policies map[string]*policyState // by policy name
	running  map[string]int          // number of rounds, by source
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=scoringpolicies;metricssources,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=scoringpolicies/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=addonplacementscores,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=addonplacementscores/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller, its metrics and its explanation endpoints to the manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{
		client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-scores"), sources: opts.Sources,
		publisher: &publish.Publisher{Client: mgr.GetClient(), Concurrency: opts.Concurrency},
		now:       opts.Now, elected: mgr.Elected(), policies: map[string]*policyState{},
	}
	r.metrics = newMetrics(opts.Registerer, opts.ClusterMetrics, r.lastRounds)
	if err := publish.AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
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
		Watches(&v1alpha1.MetricsSource{}, handler.EnqueueRequestsFromMapFunc(r.policiesOfSource), builder.WithPredicates(sourceChanged())).
		Watches(&clusterv1.ManagedCluster{}, r.clusterHandler()).
		Watches(&clusterv1alpha1.AddOnPlacementScore{}, r.scoreHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentRounds, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "scoringpolicy", "")}).
		Complete(r)
}

// Reconcile runs one round of a policy: gather, evaluate, publish, report. If the source is busy
// for too long, a round without responses renews the published scores and ends keep times.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := r.client.Get(ctx, req.NamespacedName, policy); apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.deletePolicy(ctx, req.Name)
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if policy.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	if wait := r.untilNextRound(policy); wait > 0 {
		return skip(ctx, "the last round started less than a second ago", wait), nil
	}
	source := policy.Spec.SourceRef.Name
	hasTurn := r.beginRound(source)
	switch {
	case hasTurn:
		defer r.endRound(source)
	case !r.isLate(policy):
		return skip(ctx, errBusySource.Error(), busySourceInterval), nil
	}
	started := r.now()
	in, err := r.gather(ctx, policy)
	switch {
	case errors.Is(err, hubstate.ErrSourceNotRegistered):
		return skip(ctx, err.Error(), timing.SourceRetry), nil
	case err != nil:
		return reconcile.Result{}, err
	case in.specErr != nil:
		return reconcile.Result{}, r.writeInvalidSpec(ctx, policy, in.specErr)
	}
	if !hasTurn {
		in.request.Querier = failingQuerier(query.ReasonTimeout, errBusySource)
	}
	report := in.run(ctx)
	if ctx.Err() != nil {
		// The process stops or loses the leadership. The failed queries of this round
		// must not be published.
		return reconcile.Result{}, nil
	}
	published := r.publisher.Publish(ctx, in.publishRequest(report.Result))
	done := &completedRound{in: in, report: report, published: published, took: r.now().Sub(started)}
	previous := r.remember(policy, done)
	r.metrics.observe(policy.Name, done)
	logRound(ctx, policy.Name, previous, done)
	r.reportDeleted(ctx, policy, published.Deleted)
	next := timeToNextRound(policy, done, r.now())
	if published.Failed > 0 || len(published.NoNamespace) > 0 {
		next = min(next, maxWriteRetry)
	}
	if !hasTurn {
		next = min(next, busySourceInterval)
	}
	if err := r.writeStatus(ctx, policy, done); err != nil {
		next = min(next, r.statusBackoff(policy))
		log.FromContext(ctx).Error(err, "Could not write the status; the next round writes it", "policy", policy.Name, "retryAfter", next.String())
		return reconcile.Result{RequeueAfter: next}, nil
	}
	r.endStatusBackoff(policy)
	return reconcile.Result{RequeueAfter: next}, nil
}

// skip logs that no round runs now, and schedules the next attempt.
func skip(ctx context.Context, reason string, wait time.Duration) reconcile.Result {
	log.FromContext(ctx).V(1).Info("Round skipped", "reason", reason, "retryAfter", wait.String())
	return reconcile.Result{RequeueAfter: wait}
}

// deletePolicy removes the state, the metrics and the scores of a deleted policy.
// Garbage collection deletes the scores as well, but later.
func (r *Reconciler) deletePolicy(ctx context.Context, name string) error {
	r.mu.Lock()
	state := r.policies[name]
	delete(r.policies, name)
	r.mu.Unlock()
	r.metrics.delete(name)
	r.shared.remove(name)
	if state == nil {
		return nil
	}
	published := r.publisher.Publish(ctx, publish.Request{Owner: state.last.in.owner, Name: state.last.in.name})
	log.FromContext(ctx).Info("Policy deleted", "policy", name, "scoresDeleted", published.Deleted)
	return published.Err
}
