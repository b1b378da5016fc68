package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	workv1 "open-cluster-management.io/api/work/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/components"
)

// Hub is the name of the hub cluster.
const Hub = "hub"

// Scheme contains all kinds of the fleet's clusters that Plimsoll and its tests use.
var Scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install,
		clusterv1beta1.Install, clusterv1beta2.Install, addonv1alpha1.Install, workv1.Install, kueue.AddToScheme, plimsoll.AddToScheme,
	} {
		utilruntime.Must(add(Scheme))
	}
}

// Fleet is a running hub with its workers.
type Fleet struct {
	Hub     *Cluster
	Workers []*Cluster
	// Thanos is the base URL of the query API for the metrics of all clusters.
	Thanos string
	// OperatorMetrics is the host:port of the operator's metrics endpoint.
	OperatorMetrics string

	opts    Options
	bin     components.Binaries
	ca      *authority
	procs   *Processes
	lock    *os.File
	etcd    string // URL
	targets targets
	cancel  context.CancelFunc
	servers sync.WaitGroup

	kueueOnce sync.Once
	kueueYAML string
	kueueErr  error

	kueueCAOnce sync.Once
	kueueCA     *authority
	kueueCAErr  error

	started time.Time
	stateMu sync.Mutex // held while the state file is written

	mu       sync.Mutex
	nodes    map[string]*simulatedNode // by name
	sidecars []string                  // host:port of each Thanos sidecar
}

// Up builds missing programs, starts a fleet and returns once all programs are
// ready. If it fails, it ends all programs that it started.
func Up(ctx context.Context, opts Options) (*Fleet, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	bin, err := components.Build(ctx, opts.Root, opts.Progress, components.OfFleet()...)
	if err != nil {
		return nil, err
	}
	if qps := opts.WorkerClientQPS; qps != 0 {
		if err := bin.BuildKueueWithClientQPS(ctx, opts.Root, opts.Progress, qps); err != nil {
			return nil, err
		}
	}
	if !opts.Bare {
		if err := bin.BuildOwn(ctx, opts.Root, opts.Progress); err != nil {
			return nil, err
		}
	}
	f, lifetime, err := newFleet(ctx, opts, bin)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := f.boot(ctx, lifetime, start); err != nil {
		f.Stop()
		return nil, err
	}
	f.started = start
	f.procs.onChange(f.writeState)
	if err := f.writeState(); err != nil {
		f.Stop()
		return nil, err
	}
	f.logProgress(start, "ready: %d programs are running; kubeconfigs are in %s, logs in %s", len(f.procs.Names()),
		filepath.Join(opts.Dir, "kubeconfigs"), filepath.Join(opts.Dir, "logs"))
	return f, nil
}

// newFleet locks the folder of the state. lifetime ends with Stop.
func newFleet(ctx context.Context, opts Options, bin components.Binaries) (f *Fleet, lifetime context.Context, err error) {
	lock, err := acquireLock(opts.Dir)
	if err != nil {
		return nil, nil, err
	}
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &Fleet{opts: opts, bin: bin, lock: lock, cancel: cancel, procs: newProcesses(opts.Dir), nodes: map[string]*simulatedNode{}}, lifetime, nil
}

func (f *Fleet) boot(ctx, lifetime context.Context, start time.Time) error {
	var err error
	if f.ca, err = newAuthority("plimsoll-lab"); err != nil {
		return err
	}
	if err := f.startEtcd(ctx); err != nil {
		return err
	}
	f.logProgress(start, "etcd is up; starting %d control planes", len(f.opts.Workers)+1)
	f.Workers = make([]*Cluster, len(f.opts.Workers))
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var err error
		f.Hub, err = f.startHub(gctx, start)
		return err
	})
	for i, w := range f.opts.Workers {
		g.Go(func() error {
			var err error
			f.Workers[i], err = f.startWorker(gctx, lifetime, w, start)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := f.connectWorkers(ctx); err != nil {
		return err
	}
	f.logProgress(start, "workers have joined the hub; starting Thanos")
	return f.startThanosQuery(ctx)
}

func (f *Fleet) startHub(ctx context.Context, start time.Time) (*Cluster, error) {
	c, err := f.startControlPlane(ctx, Hub)
	if err != nil {
		return nil, err
	}
	f.logProgress(start, "hub: kube-apiserver is up; starting OCM placement and Kueue")
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	f.OperatorMetrics = fmt.Sprintf("127.0.0.1:%d", port)
	f.targets.add(Hub, scrapeTarget{job: "plimsoll-operator", addr: f.OperatorMetrics, scheme: "https", token: c.tokens[scraper]})
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startPlacement(gctx) })
	g.Go(func() error { return c.startKueue(gctx) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, scraperRBAC); err != nil {
		return nil, err
	}
	f.logProgress(start, "hub: OCM placement and Kueue are up")
	return c, c.startPrometheus(ctx)
}

func (f *Fleet) startWorker(ctx, lifetime context.Context, w Worker, start time.Time) (*Cluster, error) {
	c, err := f.startControlPlane(ctx, w.Name)
	if err != nil {
		return nil, err
	}
	f.logProgress(start, "%s: control plane is up; starting Kueue, kwok and %d GPU nodes", w.Name, len(w.Nodes))
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startKueue(gctx) })
	g.Go(func() error { return c.startNodes(gctx, lifetime, w) })
	g.Go(func() error { return c.startKubeStateMetrics(gctx) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, scraperRBAC); err != nil {
		return nil, err
	}
	if err := c.startPrometheus(ctx); err != nil {
		return nil, err
	}
	f.logProgress(start, "%s: ready", w.Name)
	return c, nil
}

func (f *Fleet) startEtcd(ctx context.Context) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	f.etcd = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	return f.procs.Run(ctx, program{
		name: "etcd", path: f.bin.Path("etcd"),
		args: []string{"--data-dir=" + filepath.Join(f.opts.Dir, "work", "etcd", "data"), "--unsafe-no-fsync",
			"--listen-client-urls=" + f.etcd, "--advertise-client-urls=" + f.etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
			"--log-level=warn", "--snapshot-count=100000"},
		ready: httpReady(f.etcd+"/readyz", httpPlain),
	})
}

// connectWorkers registers each worker as a ManagedCluster, and stores its
// kubeconfig in a Secret for the hub's Kueue.
func (f *Fleet) connectWorkers(ctx context.Context) error {
	for _, w := range f.Workers {
		if err := f.Hub.registerWorker(ctx, w.Name); err != nil {
			return err
		}
		kubeconfig, err := os.ReadFile(w.Kubeconfig)
		if err != nil {
			return err
		}
		secret := map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": w.Name + "-kubeconfig", "namespace": kueueNamespace},
			"data":     map[string][]byte{"kubeconfig": kubeconfig}}
		manifest, err := json.Marshal(secret)
		if err != nil {
			return err
		}
		if err := f.Hub.Apply(ctx, string(manifest)); err != nil {
			return err
		}
	}
	return nil
}

// Worker returns the worker of that name, or nil if there is none.
func (f *Fleet) Worker(name string) *Cluster {
	for _, w := range f.Workers {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// Programs returns the fleet's programs, to end, signal and restart them.
func (f *Fleet) Programs() *Processes { return f.procs }

// Program returns the path of a program of the fleet, such as kubectl.
func (f *Fleet) Program(name string) string { return f.bin.Path(name) }

// Dir returns the folder with the fleet's kubeconfigs, logs and data.
func (f *Fleet) Dir() string { return f.opts.Dir }

// Failed returns a channel with an error when a program ends unexpectedly.
func (f *Fleet) Failed() <-chan error { return f.procs.failed }

// Stop ends all programs, removes their data and unlocks the folder. Logs stay.
func (f *Fleet) Stop() {
	f.cancel()
	f.procs.onChange(nil)
	err := f.procs.endAll()
	for _, s := range f.simulatedNodes(nil) {
		s.stop()
	}
	f.servers.Wait()
	state := os.Remove(filepath.Join(f.opts.Dir, stateFile))
	if errors.Is(state, os.ErrNotExist) { // Up failed before it wrote the file
		state = nil
	}
	err = errors.Join(err, os.RemoveAll(filepath.Join(f.opts.Dir, "work")), state, f.lock.Close())
	if err != nil {
		fmt.Fprintf(f.opts.Progress, "lab: cleanup is incomplete, the next start retries it: %v\n", err)
	}
}

// logProgress writes one line with the time since start.
func (f *Fleet) logProgress(start time.Time, format string, args ...any) {
	fmt.Fprintf(f.opts.Progress, "lab: %5.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
}
