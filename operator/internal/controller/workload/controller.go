// Package workload decides the gate's check of each Workload and, as Kueue's
// external dispatcher, nominates the clusters that MultiKueue copies it to.
package workload

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
	"plimsoll.dev/plimsoll/operator/internal/waitqueue"
)

// Options of the controller.
type Options struct {
	// Board that the gates' controller fills.
	Board *registry.Registry
	// Ledger of what was sent and is not yet measured.
	Ledger *ledger.Ledger
	// Sources to ask.
	Sources *query.Sources
	// Nominate as Kueue's external dispatcher, for every MultiKueue workload.
	Nominate bool
	// OwnNominations are written as a field manager of our own, for the policy of
	// config/nomination to clear; else as Kueue's.
	OwnNominations bool
	// Registerer of the controller's metrics; nil = not registered.
	Registerer prometheus.Registerer
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Reconciler of Workloads.
type Reconciler struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	board    *registry.Registry
	ledger   *ledger.Ledger
	nominate bool
	// ownNominations: see Options.
	ownNominations bool
	now            func() time.Time
	ask            *querycache.Cache
	waiting        *waitqueue.Queue
	tracks         *tracks
	others         others
	metrics        *metrics
	rebuild        sync.Mutex
	rebuilt        bool
	// elected is closed once this process leads.
	elected <-chan struct{}
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;multikueueconfigs;multikueueclusters;resourceflavors;localqueues;clusterqueues,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager and returns it, for its Handler.
func Setup(mgr ctrl.Manager, opts Options) (*Reconciler, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("plimsoll-gate"),
		board: opts.Board, ledger: opts.Ledger, nominate: opts.Nominate, ownNominations: opts.OwnNominations, now: opts.Now,
		ask:     querycache.New(opts.Sources, opts.Ledger, mgr.GetClient(), opts.Now),
		waiting: waitqueue.New(opts.Board, opts.Now), tracks: newTracks(),
		elected: mgr.Elected(),
		metrics: newMetrics(opts.Registerer, opts.Ledger, opts.Board, opts.Now),
	}
	r.waiting.Refresh, r.ask.OnRefreshed, r.ask.ReportFailing = r.ask.Refresh, r.waiting.Refreshed, opts.Board.SetFailingQueries
	r.board.OnChange(r.waiting.MarkDirty)
	for _, runnable := range []manager.Runnable{r.ask, r.waiting} {
		if err := mgr.Add(runnable); err != nil {
			return nil, err
		}
	}
	return r, ctrl.NewControllerManagedBy(mgr).
		Named("workload").
		For(&kueue.Workload{}).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(r.unsettled)).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(r.unsettled)).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.waiting.SetEnqueuer(func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
}

// Reconcile one workload.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.rebuildOnce(ctx); err != nil {
		return reconcile.Result{}, err
	}
	wl := &kueue.Workload{}
	if err := r.client.Get(ctx, req.NamespacedName, wl); apierrors.IsNotFound(err) {
		r.gone(req.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	s, err := r.gather(ctx, wl)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.track(ctx, s)
	var result reconcile.Result
	left, err := r.wake(ctx, wl)
	switch {
	case left > 0 || err != nil:
		result.RequeueAfter = left
	case len(s.own) > 0:
		result, err = r.gated(ctx, s)
	case s.mk != "" && r.nominate:
		result, err = r.ungated(ctx, s)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	return result, err
}

// unsettled are the workloads that a change of MultiKueue's clusters may concern.
func (r *Reconciler) unsettled(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		wl := &list.Items[i]
		if kueuestate.HoldsQuota(wl) && wl.Status.ClusterName == nil && len(wl.Status.AdmissionChecks) > 0 {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wl)})
		}
	}
	return requests
}

// ungated serves a MultiKueue workload that no gate of ours decides, as stock
// Kueue would: every active cluster of its configuration is nominated.
func (r *Reconciler) ungated(ctx context.Context, s *subject) (reconcile.Result, error) {
	if result, err := r.repair(ctx, s); result.RequeueAfter > 0 || err != nil {
		return result, err
	}
	if !kueuestate.AcceptsCheckUpdate(s.wl) || !kueuestate.WantsNomination(s.wl, s.mk) || !kueuestate.OtherChecksReady(s.wl, s.mk) {
		return reconcile.Result{}, nil
	}
	nominated := s.wl.Status.NominatedClusterNames
	wider := dispatch.Record{}.WidenedList(dispatch.StageAll, nominated, nil, s.usable, v1alpha1.Widen{})
	if len(wider) == len(nominated) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.write(ctx, s, wider, nil, "NominatedAll", "no gate decides this queue: every active cluster is nominated")
}

func (r *Reconciler) event(wl *kueue.Workload, warning bool, reason, message string) {
	kind := "Normal"
	if warning {
		kind = "Warning"
	}
	r.recorder.Eventf(wl, nil, kind, reason, "Gate", "%s", message)
}

// gateOf the board, or false when its controller has not looked at it yet. A
// workload whose checks contradict the gate sees that as the gate's problem.
func (r *Reconciler) gateOf(s *subject) (registry.Gate, bool) {
	g, ok := r.board.Get(s.gateName)
	if g.Problem == "" {
		g.Problem = s.mismatch(g)
	}
	return g, ok
}

func widen(g registry.Gate) v1alpha1.Widen { return g.Spec.Widen }
