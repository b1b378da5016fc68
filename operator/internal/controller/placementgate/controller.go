// Package placementgate reconciles PlacementGates. It passes the decided clusters and
// their scores to the workload controller through the gate registry, maintains the gate's
// MultiKueueConfig and MultiKueueClusters, and reports the state of the gate in conditions.
package placementgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/membership"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// The time between two reconciliations of an unchanged gate is the gate's period, within
// these bounds.
const (
	minInterval = 10 * time.Second
	maxInterval = time.Minute
)

// Options of the controller.
type Options struct {
	// Registry passes the gates to the workload controller.
	Registry *gatestate.Registry
	// Ledger has the clusters that gates hold for waiting workloads.
	Ledger *ledger.Ledger
	// Nominate is true if the operator nominates clusters instead of Kueue's built-in
	// dispatcher.
	Nominate bool
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Reconciler reconciles PlacementGates.
type Reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	opts     Options

	mu        sync.Mutex
	histories map[string]*membership.History // by gate name
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=placementgates,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=placementgates/status,verbs=patch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters;placements;placementdecisions;addonplacementscores,verbs=list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=multikueueconfigs;multikueueclusters,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads;admissionchecks;clusterqueues;localqueues;cohorts,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{
		client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-gate"), opts: opts,
		histories: map[string]*membership.History{},
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &kueue.Workload{}, clusterUseIndex, clusterUses(opts.Nominate)); err != nil {
		return fmt.Errorf("index Workloads by cluster: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("placementgate").
		For(&v1alpha1.PlacementGate{}).
		Watches(&clusterv1beta1.Placement{}, r.enqueueGates(usesPlacement)).
		Watches(&clusterv1beta1.PlacementDecision{}, r.enqueueGates(usesPlacementDecision)).
		Watches(&clusterv1alpha1.AddOnPlacementScore{}, r.enqueueGates(usesPlacementScore)).
		Watches(&v1alpha1.MetricsSource{}, r.enqueueGates(usesSource)).
		Watches(&kueue.MultiKueueConfig{}, r.enqueueGates(namesConfig)).
		Watches(&kueue.MultiKueueCluster{}, r.enqueueGates(maintainsClusters)).
		WithOptions(controller.Options{RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "placementgate", "")}).
		Complete(r)
}

// Reconcile gathers the state of a gate, decides its MultiKueue configuration and its
// conditions, and writes both.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	g := &v1alpha1.PlacementGate{}
	found, err := hubstate.Find(ctx, r.client, req.NamespacedName, g)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !found:
		return reconcile.Result{}, r.forgetGate(ctx, req.Name)
	}
	in, err := r.gather(ctx, g)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gather the state of PlacementGate %s: %w", g.Name, err)
	}
	want := decideConfiguration(in, r.history(g.Name), r.opts.Now())
	r.opts.Registry.Put(in.registryEntry(want.leaving))
	applyErr := r.applyConfiguration(ctx, in, want)
	if applyErr != nil {
		want.configured = notWritten(applyErr)
		applyErr = fmt.Errorf("configure MultiKueue for PlacementGate %s: %w", g.Name, applyErr)
	}
	if apierrors.IsConflict(applyErr) { // the cache is stale, and the next attempt decides on the changed object
		return reconcile.Result{}, applyErr
	}
	if err := r.writeStatus(ctx, in, decideConditions(in, want.configured)); err != nil {
		return reconcile.Result{}, errors.Join(applyErr, fmt.Errorf("write the status of PlacementGate %s: %w", g.Name, err))
	}
	if applyErr != nil {
		return reconcile.Result{}, applyErr
	}
	return reconcile.Result{RequeueAfter: min(max(gate.PeriodOf(&g.Spec), minInterval), maxInterval)}, nil
}

// forgetGate removes the state of a deleted gate. Its MultiKueueConfig and
// MultiKueueClusters stay, because Kueue evicts the workloads on clusters that leave a
// configuration. An event on each MultiKueueConfig says how to delete the objects.
func (r *Reconciler) forgetGate(ctx context.Context, name string) error {
	r.opts.Registry.Delete(name)
	r.opts.Registry.Shadow.Forget(name)
	r.mu.Lock()
	delete(r.histories, name)
	r.mu.Unlock()
	configs := &kueue.MultiKueueConfigList{}
	if err := r.client.List(ctx, configs, client.MatchingLabels{v1alpha1.ManagedByLabel: name}); err != nil {
		return fmt.Errorf("list the MultiKueueConfigs of deleted PlacementGate %s: %w", name, err)
	}
	var kept []string
	for i := range configs.Items {
		kept = append(kept, configs.Items[i].Name)
		r.recorder.Eventf(&configs.Items[i], nil, corev1.EventTypeNormal, "GateDeleted", "Keep",
			"PlacementGate %s was deleted; its MultiKueueConfig and MultiKueueClusters stay until \"kubectl plimsoll release %s\"", name, name)
	}
	log.FromContext(ctx).Info("Gate deleted", "gate", name, "keptConfigs", kept)
	return nil
}

// history returns the membership history of a gate's configuration.
func (r *Reconciler) history(name string) *membership.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.histories[name] == nil {
		r.histories[name] = &membership.History{}
	}
	return r.histories[name]
}
