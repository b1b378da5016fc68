package hub

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// processManager is the real manager, with the parts replaced that would need the network.
type processManager struct {
	ctrl.Manager
	view *View
}

func (m *processManager) GetAPIReader() client.Reader { return m.view.Reader() }

func (m *processManager) GetEventRecorder(string) events.EventRecorder {
	return events.NewFakeRecorder(0)
}

// newProcessManager returns the manager of a process whose caches are a view.
func newProcessManager(t *testing.T, s *Server, view *View) ctrl.Manager {
	t.Helper()
	skip, noWait := true, time.Duration(-1)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://hub.invalid"}, ctrl.Options{
		Scheme:                  s.scheme,
		Logger:                  logr.Discard(),
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return s.RESTMapper(), nil },
		NewCache:                func(*rest.Config, cache.Options) (cache.Cache, error) { return view, nil },
		NewClient:               func(*rest.Config, client.Options) (client.Client, error) { return view.Client(), nil },
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: &noWait,
		Controller:              config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &processManager{mgr, view}
}

// driver runs scheduled functions in a synctest bubble, one at a time and each after the
// goroutines of the processes have come to rest.
type driver struct {
	mu    sync.Mutex
	queue []scheduled
	count int
}

func (d *driver) schedule(delay time.Duration, do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	d.queue = append(d.queue, scheduled{time.Now().Add(delay), d.count, do})
}

func (d *driver) next() (scheduled, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 {
		return scheduled{}, false
	}
	first := slices.MinFunc(d.queue, func(a, b scheduled) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)) })
	return first, true
}

func (d *driver) remove(s scheduled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = slices.DeleteFunc(d.queue, func(other scheduled) bool { return other.order == s.order })
}

func (d *driver) run(duration time.Duration) {
	end := time.Now().Add(duration)
	for {
		synctest.Wait()
		next, ok := d.next()
		step := min(10*time.Millisecond, time.Until(end))
		switch {
		case ok && !next.at.After(time.Now()):
			d.remove(next)
			next.do()
		case step <= 0:
			return
		default:
			time.Sleep(step)
		}
	}
}

// counter reconciles workloads: it counts them in an annotation.
type counter struct {
	client client.Client
	live   client.Reader
	mu     sync.Mutex
	seen   []string
}

func (c *counter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.mu.Lock()
	c.seen = append(c.seen, req.Name)
	c.mu.Unlock()
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, req.NamespacedName, wl); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.live.Get(ctx, req.NamespacedName, &kueue.Workload{}); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wl.Status.ClusterName != nil {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.client.Status().Patch(ctx, wl, client.RawPatch(types.MergePatchType, []byte(`{"status":{"clusterName":"c"}}`)))
}

func (c *counter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

func TestManager(t *testing.T) {
	scheme := newScheme(t)
	synctest.Test(t, func(t *testing.T) {
		s, d := NewServer(scheme, time.Now), &driver{}
		admin := s.Client("admin")
		for _, name := range []string{"b", "a"} {
			if err := admin.Create(t.Context(), newWorkload(name)); err != nil {
				t.Fatal(err)
			}
		}
		failures := 1
		view := s.NewView(ViewOptions{Schedule: d.schedule, Delay: delayOf(time.Second), Intercept: func(r Request) Fault {
			if r.Verb == "patch" && failures > 0 {
				failures--
				return Fault{Before: errors.New("the API server is overloaded")}
			}
			return Fault{Latency: 50 * time.Millisecond}
		}})
		mgr := newProcessManager(t, s, view)
		r := &counter{client: mgr.GetClient(), live: mgr.GetAPIReader()}
		err := ctrl.NewControllerManagedBy(mgr).For(&kueue.Workload{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Watches(&v1alpha1.PlacementGate{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: key("of-gate")}}
			})).Complete(r)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- mgr.Start(ctx) }()

		d.run(500 * time.Millisecond)
		// The first patch fails, and the controller tries again.
		if diff := gocmp.Diff([]string{"a", "b", "a"}, r.take()); diff != "" {
			t.Errorf("present objects (-want +got):\n%s", diff)
		}
		if wl := Get[*kueue.Workload](s, key("b")); wl.Status.ClusterName == nil || ownedBy(wl, "operator", updatedOp, "status") == "" {
			t.Errorf("status %+v", wl.Status)
		}
		d.run(2 * time.Second)
		if seen := r.take(); len(seen) != 0 {
			t.Errorf("the predicate must drop changes of the status: %v", seen)
		}
		if _, err := Update(s, key("a"), "user", func(wl *kueue.Workload) bool { wl.Spec.QueueName = "x"; return true }); err != nil {
			t.Fatal(err)
		}
		gate := &v1alpha1.PlacementGate{}
		gate.Name = "gate"
		if err := admin.Create(t.Context(), gate); err != nil {
			t.Fatal(err)
		}
		d.run(900 * time.Millisecond)
		if seen := r.take(); len(seen) != 0 {
			t.Errorf("the events came too early: %v", seen)
		}
		d.run(200 * time.Millisecond)
		if diff := gocmp.Diff([]string{"a", "of-gate"}, r.take()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}

		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := view.Client().Create(t.Context(), newWorkload("late")); !errors.Is(err, ErrStopped) {
			t.Errorf("the end of the manager must end the process: %v", err)
		}
	})
}

// A request takes its latency, and ends with its context or its process.
func TestLatency(t *testing.T) {
	scheme := newScheme(t)
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(scheme, time.Now)
		view := s.NewView(ViewOptions{Schedule: (&driver{}).schedule, Intercept: func(Request) Fault { return Fault{Latency: 10 * time.Second} }})
		began := time.Now()
		if err := view.Client().Create(t.Context(), newWorkload("a")); err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := view.Client().Create(ctx, newWorkload("b")); !errors.Is(err, context.DeadlineExceeded) || Get[*kueue.Workload](s, key("b")) != nil {
			t.Errorf("context that ends before the API server serves the request: %v", err)
		}
		time.AfterFunc(7*time.Second, view.Stop)
		if err := view.Client().Create(t.Context(), newWorkload("c")); !errors.Is(err, ErrStopped) || Get[*kueue.Workload](s, key("c")) == nil {
			t.Errorf("process that ends before it gets the response: %v", err)
		}
	})
}
