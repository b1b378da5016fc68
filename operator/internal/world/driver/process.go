package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
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

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/operator"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// process is the operator in the world. Its processes can be killed and started again.
type process struct {
	world  *world.World
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// workers of the controller of workloads.
	workers int
	// decide decides in place of the gates; nil = they decide.
	decide gate.Decider
	// replicas are the processes that run.
	replicas []*instance
	started  int
	lease    lease
	err      error
}

// instance is one run of the process.
type instance struct {
	*connection
	cancel  context.CancelFunc
	view    *hub.View
	gates   *operator.Gates
	elected <-chan struct{}
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

// Start runs a new process, unless all run.
func (p *process) Start() {
	if len(p.replicas) > p.world.Spec.Settings.Standbys {
		return
	}
	p.started++
	i := &instance{connection: &connection{done: make(chan struct{})}}
	i.view = p.world.Hub.NewView(i.options(p.world.ViewOptions(operator.Trim)))
	fail := func(err error) { panic(fmt.Sprintf("start the operator: %v", err)) }
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://hub.invalid", Transport: noNetwork{}}, ctrl.Options{
		Scheme:                  p.scheme,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: ptr.To(time.Duration(0)),
		Controller:              config.Controller{SkipNameValidation: ptr.To(true), RecoverPanic: ptr.To(false)},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.mapper, nil },
		NewCache:                func(*rest.Config, cache.Options) (cache.Cache, error) { return i.view, nil },
		NewClient:               func(*rest.Config, client.Options) (client.Client, error) { return i.view.Client(), nil },
		LeaderElection:          p.world.Spec.Settings.Standbys > 0,
		LeaderElectionResourceLockInterface: &lock{lease: &p.lease, connection: i.connection, world: p.world,
			name: fmt.Sprintf("operator %d", p.started)},
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseDuration),
		RetryPeriod:                   ptr.To(retryPeriod),
	})
	if err != nil {
		fail(err)
	}
	ours := &manager{Manager: mgr, view: i.view, recorder: recorder{note: p.world.NoteLater}}
	i.gates, err = operator.Setup(ours, operator.Options{
		Namespace: "plimsoll-system", AllowLoopback: true, Transport: p.world.Transport(), ScoreWrites: 1,
		Trials:   p.world.Spec.Settings.Trial != nil,
		Nominate: true, NominateAs: workload.NominateAsOwn, Workers: p.workers, Decide: p.decide,
		LedgerSettle: 15 * time.Second, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		fail(err)
	}
	var ctx context.Context
	ctx, i.cancel = context.WithCancel(context.Background())
	i.elected = mgr.Elected()
	p.replicas = append(p.replicas, i)
	go func() {
		err := mgr.Start(ctx)
		switch {
		case err == nil || errors.Is(err, context.Canceled):
		case err.Error() == "leader election lost":
			p.world.Loop.After(0, func() { p.ended(i) })
		default:
			p.err = fmt.Errorf("the operator ended: %w\n%s", err, debug.Stack())
		}
	}()
}

// Stop kills the process that leads, or another one if none leads: nothing that it does from now on has an
// effect.
func (p *process) Stop() {
	i := p.leader()
	if i == nil && len(p.replicas) > 0 {
		i = p.replicas[0]
	}
	if i != nil {
		i.stop()
		p.remove(i)
	}
}

func (i *instance) stop() {
	i.view.Stop()
	i.close()
	i.cancel()
}

func (p *process) remove(i *instance) {
	p.replicas = slices.DeleteFunc(p.replicas, func(other *instance) bool { return other == i })
}

// stopAll kills all processes.
func (p *process) stopAll() {
	for len(p.replicas) > 0 {
		p.Stop()
	}
}

// Running reports whether a process leads that reaches the hub.
func (p *process) Running() bool {
	i := p.leader()
	return i != nil && i.cutFor() == 0
}

// Remaining describes what the process remembers of workloads.
func (p *process) Remaining() string {
	i := p.leader()
	if i == nil {
		return "the operator does not run"
	}
	return strings.Join(i.gates.Workloads.Remembered(), "; ")
}

// Doubted are the clusters that gates doubt.
func (p *process) Doubted() map[string]bool {
	if i := p.leader(); i != nil {
		return i.gates.Workloads.Doubted()
	}
	return nil
}

// Holds are the workloads for which each cluster is held.
func (p *process) Holds() map[string][]string {
	held := map[string][]string{}
	if i := p.leader(); i != nil {
		for _, h := range i.gates.Workloads.Holds() {
			held[h.Cluster] = append(held[h.Cluster], h.Workload)
		}
	}
	return held
}
