// Package placementgate reconciles PlacementGates: it gathers what the Placement
// decided and the policies scored, leaves it on the board for the workloads,
// and keeps the gate's MultiKueueConfig and MultiKueueClusters.
package placementgate

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/membership"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Options of the controller.
type Options struct {
	// Registry that the workload controller reads.
	Registry *registry.Registry
	// Nominate says that the operator is Kueue's dispatcher.
	Nominate bool
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Reconciler of PlacementGates.
type Reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	opts     Options

	mu       sync.Mutex
	memories map[string]*membership.History
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=placementgates,verbs=get;list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=placementgates/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=placements;placementdecisions;addonplacementscores,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=multikueueconfigs;multikueueclusters,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads;admissionchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-gate"), opts: opts, memories: map[string]*membership.History{}}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &kueue.Workload{}, usesIndex, uses); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("placementgate").
		For(&v1alpha1.PlacementGate{}).
		Watches(&clusterv1beta1.Placement{}, r.forGates(ofPlacement)).
		Watches(&clusterv1beta1.PlacementDecision{}, r.forGates(ofDecision)).
		Watches(&clusterv1alpha1.AddOnPlacementScore{}, r.forGates(ofScore)).
		Watches(&v1alpha1.MetricsSource{}, r.forGates(ofSource)).
		Watches(&kueue.MultiKueueConfig{}, r.forGates(ofConfig)).
		Watches(&kueue.MultiKueueCluster{}, r.forGates(ofCluster)).
		Complete(r)
}

// Reconcile gathers, decides, applies.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	g := &v1alpha1.PlacementGate{}
	if err := r.client.Get(ctx, req.NamespacedName, g); apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.deleted(ctx, req.Name)
	} else if err != nil {
		return reconcile.Result{}, err
	}
	in, err := r.gather(ctx, g)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gather for gate %s: %w", g.Name, err)
	}
	in.invalid = invalidQueries(&g.Spec)
	r.opts.Registry.Put(in.board())
	configured, err := r.configure(ctx, in)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("configure MultiKueue for gate %s: %w", g.Name, err)
	}
	in.conflict = r.opts.Registry.Conflict(g.Name, r.opts.Now())
	in.waiting = r.opts.Registry.Waiting(g.Name)
	in.failingQueries = r.opts.Registry.FailingQueries(g.Name)
	if err := r.report(ctx, in, configured); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: min(max(period(&g.Spec), 10*time.Second), time.Minute)}, nil
}

func period(spec *v1alpha1.PlacementGateSpec) time.Duration {
	return timing.Seconds(spec.PeriodSeconds, timing.DefaultPeriod)
}

// deleted leaves what the gate wrote, because collecting it would evict what
// runs on those clusters, and says so.
func (r *Reconciler) deleted(ctx context.Context, name string) error {
	r.opts.Registry.Delete(name)
	r.mu.Lock()
	delete(r.memories, name)
	r.mu.Unlock()
	configs := &kueue.MultiKueueConfigList{}
	if err := r.client.List(ctx, configs, client.MatchingLabels{v1alpha1.ManagedByLabel: name}); err != nil {
		return err
	}
	for i := range configs.Items {
		r.recorder.Eventf(&configs.Items[i], nil, "Normal", "GateDeleted", "Keep",
			"PlacementGate %s is gone; its MultiKueueConfig and MultiKueueClusters stay until \"kubectl plimsoll release %s\"", name, name)
	}
	return nil
}

func (r *Reconciler) memory(name string) *membership.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories[name] == nil {
		r.memories[name] = &membership.History{}
	}
	return r.memories[name]
}

// forGates enqueues every gate that concerns an object.
func (r *Reconciler) forGates(concerns func(*v1alpha1.PlacementGateSpec, client.Object) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		gates := &v1alpha1.PlacementGateList{}
		if err := r.client.List(ctx, gates); err != nil {
			return nil
		}
		var requests []reconcile.Request
		for i := range gates.Items {
			if concerns(&gates.Items[i].Spec, obj) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&gates.Items[i])})
			}
		}
		return requests
	})
}

func ofPlacement(spec *v1alpha1.PlacementGateSpec, obj client.Object) bool {
	return obj.GetNamespace() == spec.PlacementRef.Namespace && obj.GetName() == spec.PlacementRef.Name
}

func ofDecision(spec *v1alpha1.PlacementGateSpec, obj client.Object) bool {
	return obj.GetNamespace() == spec.PlacementRef.Namespace && obj.GetLabels()[clusterv1beta1.PlacementLabel] == spec.PlacementRef.Name
}

func ofScore(spec *v1alpha1.PlacementGateSpec, obj client.Object) bool {
	for _, p := range spec.Policies {
		if p.Policy == obj.GetName() {
			return true
		}
	}
	return false
}

func ofSource(spec *v1alpha1.PlacementGateSpec, obj client.Object) bool {
	return obj.GetName() == spec.SourceRef.Name
}

func ofConfig(spec *v1alpha1.PlacementGateSpec, obj client.Object) bool {
	return spec.MultiKueue != nil && spec.MultiKueue.ConfigName == obj.GetName()
}

func ofCluster(spec *v1alpha1.PlacementGateSpec, _ client.Object) bool { return spec.MultiKueue != nil }
