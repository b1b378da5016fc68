package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/operator"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// process is the operator in the world: it can be killed and started again.
type process struct {
	world  *world.World
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// workers of the controller of workloads.
	workers int
	present *instance
	err     error
}

// instance is one run of the process.
type instance struct {
	cancel context.CancelFunc
	view   *hub.View
	gates  *operator.Gates
	ended  chan struct{}
}

func newProcess(w *world.World, scheme *runtime.Scheme, workers int) *process {
	return &process{world: w, scheme: scheme, mapper: w.Hub.RESTMapper(), workers: workers}
}

// noNetwork fails requests that would leave the world.
type noNetwork struct{}

// RoundTrip implements http.RoundTripper.
func (noNetwork) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("the world has no network: %s %s", req.Method, req.URL)
}

// manager is a controller manager whose live reads and events stay in the world.
type manager struct {
	ctrl.Manager
	view *hub.View
	recorder
}

// GetAPIReader returns a reader without a cache.
func (m *manager) GetAPIReader() client.Reader { return m.view.Reader() }

// GetEventRecorder returns a recorder that writes to the world's log.
func (m *manager) GetEventRecorder(string) events.EventRecorder { return m.recorder }

// recorder notes events in the world's log.
type recorder struct{ note func(line string) }

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(regarding, _ runtime.Object, _, reason, _, format string, args ...any) {
	name := ""
	if o, ok := regarding.(client.Object); ok {
		name = o.GetName()
	}
	r.note("event " + reason + " on " + name + ": " + fmt.Sprintf(format, args...))
}

// Start runs a new process.
func (p *process) Start() {
	view := p.world.Hub.NewView(p.world.ViewOptions(operator.Trim))
	fail := func(err error) { panic(fmt.Sprintf("start the operator: %v", err)) }
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://hub.invalid", Transport: noNetwork{}}, ctrl.Options{
		Scheme:                  p.scheme,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: ptr.To(time.Duration(0)),
		Controller:              config.Controller{SkipNameValidation: ptr.To(true), RecoverPanic: ptr.To(false)},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.mapper, nil },
		NewCache:                func(*rest.Config, cache.Options) (cache.Cache, error) { return view, nil },
		NewClient:               func(*rest.Config, client.Options) (client.Client, error) { return view.Client(), nil },
	})
	if err != nil {
		fail(err)
	}
	ours := &manager{Manager: mgr, view: view, recorder: recorder{note: p.world.NoteLater}}
	gates, err := operator.Setup(ours, operator.Options{
		Namespace: "plimsoll-system", AllowLoopback: true, Transport: p.world.Transport(), ScoreWrites: 1,
		Nominate: true, NominateAs: workload.NominateAsOwn, Workers: p.workers,
		LedgerSettle: 15 * time.Second, LedgerTTL: 10 * time.Minute, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{cancel: cancel, view: view, gates: gates, ended: make(chan struct{})}
	p.present = i
	go func() {
		defer close(i.ended)
		if err := mgr.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
			p.err = fmt.Errorf("the operator ended: %w\n%s", err, debug.Stack())
		}
	}()
}

// Stop kills the process: nothing that it does from now on has an effect.
func (p *process) Stop() {
	if p.present == nil {
		return
	}
	p.present.view.Stop()
	p.present.cancel()
	p.present = nil
}

// Running reports whether a process runs.
func (p *process) Running() bool { return p.present != nil }

// Remaining describes what the process remembers of workloads.
func (p *process) Remaining() string {
	if p.present == nil {
		return "the operator does not run"
	}
	return strings.Join(p.present.gates.Workloads.Remembered(), "; ")
}

// Holds are the clusters that are held, by the workload for which they are.
func (p *process) Holds() map[string]string {
	held := map[string]string{}
	if p.present != nil {
		for _, h := range p.present.gates.Workloads.Holds() {
			held[h.Cluster] = h.Workload
		}
	}
	return held
}
