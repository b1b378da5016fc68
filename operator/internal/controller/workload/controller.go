// Package workload takes Kueue Workloads through the gate. It decides the gate's admission
// check of each Workload and, as Kueue's external dispatcher, nominates the clusters that
// MultiKueue copies it to.
//
// It is the edge of package admission/engine to the Kubernetes API: observe.go and its siblings read, write.go and
// its siblings write.
// operator/docs/admission.md has the diagram of the phases.
package workload

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Options of the controller.
type Options struct {
	// Registry that the gates' controller fills.
	Registry *gatestate.Registry
	// Ledger of the devices that were sent somewhere and that samples do not show yet.
	Ledger *ledger.Ledger
	// Sources to query.
	Sources *query.Sources
	// Nominate: the operator is Kueue's external dispatcher, for every MultiKueue workload.
	Nominate bool
	// NominateAs is the field manager of nominations.
	NominateAs NominateAs
	// Registerer of the controller's metrics; nil = not registered.
	Registerer prometheus.Registerer
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Decide makes the decisions of gates; nil = as usual.
	Decide gate.Decider
	// Workers is the number of concurrent reconciliations; 0 = 8.
	Workers int
}

// NominateAs is the field manager that writes nominations.
type NominateAs string

// Field managers of nominations.
const (
	// NominateAsDetected is own if a policy of the hub clears nominations, and else Kueue's.
	NominateAsDetected NominateAs = "auto"
	// NominateAsKueue writes as Kueue's own manager, so that Kueue can clear the nominations.
	NominateAsKueue NominateAs = "kueue"
	// NominateAsOwn writes as the operator's own manager. A MutatingAdmissionPolicy must clear
	// the nominations.
	NominateAsOwn NominateAs = "own"
)

// Reconciler of Workloads.
type Reconciler struct {
	client client.Client
	// live reads from the API server, with managedFields.
	live     client.Reader
	recorder events.EventRecorder
	cache    *querycache.Cache
	engine   *engine.Engine
	// claimTemplates that fit queries of shares read.
	claimTemplates claimTemplates
	pending        pendingWorkloads
	explanations   explanationLimit
	metrics        *metrics
	nominateAs     NominateAs
	now            func() time.Time
	rebuild        sync.Mutex
	rebuilt        bool
	// elected is closed once this process leads.
	elected <-chan struct{}
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;multikueueconfigs;multikueueclusters;resourceflavors;localqueues;clusterqueues;cohorts,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=jobprofiles,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newReconciler returns a reconciler with its cache and its wait queue, which are not started.
func newReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, elected <-chan struct{}, opts Options) (*Reconciler, *querycache.Cache, *waitqueue.Queue) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	cache := querycache.New(opts.Sources, opts.Ledger, c, opts.Now)
	waiting := waitqueue.New(opts.Registry, opts.Now, cache.Refresh)
	cache.OnRefreshed(waiting.Refreshed)
	cache.OnFaults(opts.Registry.SetQueryFaults)
	opts.Registry.OnChange(func(gateName string) { waiting.MarkDirty(gateName) })
	r := &Reconciler{
		client: c, live: live, recorder: recorder, nominateAs: opts.NominateAs, now: opts.Now, cache: cache, elected: elected,
		metrics: newMetrics(opts.Registerer, opts.Ledger, opts.Registry, waiting, opts.Now),
	}
	r.engine = engine.New(engine.Options{Edge: r, Registry: opts.Registry, Ledger: opts.Ledger, Waiting: waiting, Nominates: opts.Nominate, Decide: opts.Decide, Now: opts.Now})
	return r, cache, waiting
}

// NewExplainer returns a reconciler that only explains: no manager runs it, and it never writes. hub needs the indexes
// of AddIndexes, and holds all workloads whose devices are on their way.
func NewExplainer(ctx context.Context, hub client.Client, opts Options) (*Reconciler, error) {
	elected := make(chan struct{})
	close(elected)
	r, _, _ := newReconciler(hub, hub, nil, elected, opts)
	return r, r.rebuildOnce(ctx)
}

// Forget removes a workload from the order in which the gate decides.
func (r *Reconciler) Forget(key client.ObjectKey) { r.engine.Waiting.Remove(key) }

// AddIndexes adds the field indexes that the controller lists by.
func AddIndexes(add func(obj client.Object, field string, extract client.IndexerFunc) error) error {
	if err := add(&kueue.Workload{}, jobIndex, jobOf); err != nil {
		return fmt.Errorf("index Workloads by job: %w", err)
	}
	if err := add(&kueue.Workload{}, unplacedIndex, unplacedChecks); err != nil {
		return fmt.Errorf("index Workloads without a cluster: %w", err)
	}
	return nil
}

// Setup adds the controller to the manager and returns it, for its Handler.
func Setup(mgr ctrl.Manager, opts Options) (*Reconciler, error) {
	r, cache, waiting := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("plimsoll-gate"), mgr.Elected(), opts)
	if opts.Registerer != nil {
		isDispatching := func() bool { return opts.Nominate && r.isLeader() }
		opts.Registerer.MustRegister(newAdmissionCollector(r.engine, isDispatching))
	}
	for _, runnable := range []manager.Runnable{cache, waiting} {
		if err := mgr.Add(runnable); err != nil {
			return nil, err
		}
	}
	index := func(obj client.Object, field string, extract client.IndexerFunc) error {
		return mgr.GetFieldIndexer().IndexField(context.Background(), obj, field, extract)
	}
	if err := AddIndexes(index); err != nil {
		return nil, err
	}
	return r, ctrl.NewControllerManagedBy(mgr).
		Named("workload").
		For(&kueue.Workload{}, builder.WithPredicates(concernsGate)).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(r.otherComponents), builder.WithPredicates(concernsComponents)).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(r.unplacedWorkloads), builder.WithPredicates(isConnectionChange)).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(r.unplacedWorkloads)).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(r.unplacedWorkloads), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			waiting.SetEnqueuer(func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: cmp.Or(opts.Workers, 8), NewQueue: fairqueue.NewForRequests, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "workload", "workload")}).
		Complete(r)
}
