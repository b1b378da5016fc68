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
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Hub is the name of the hub cluster.
const Hub = "hub"

// Scheme knows every kind that the fleet's clusters serve and Plimsoll touches.
var Scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install,
		clusterv1beta1.Install, clusterv1beta2.Install, kueue.AddToScheme, plimsoll.AddToScheme,
	} {
		utilruntime.Must(add(Scheme))
	}
}

// Fleet is a running hub with its workers.
type Fleet struct {
	Hub     *Cluster
	Workers []*Cluster
	// Thanos is the base URL of the query API over all workers and the hub.
	Thanos string
	// OperatorMetrics is the address of the operator's metrics listener.
	OperatorMetrics string

	opts    Options
	bin     Binaries
	ca      *authority
	procs   *Processes
	lock    *os.File
	etcd    string
	targets targets
	nodes   map[string]*siliconNode
	cancel  context.CancelFunc
	servers sync.WaitGroup

	kueueOnce sync.Once
	kueueYAML string
	kueueErr  error

	kueueCAOnce sync.Once
	kueueCA     *authority
	kueueCAErr  error

	sidecarMu sync.Mutex
	sidecars  []string
}

// Up builds what is missing, starts a fleet and returns when all of it is ready.
// On an error everything that was started is ended.
func Up(ctx context.Context, opts Options) (*Fleet, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	bin, err := Build(ctx, opts.Root, opts.Out)
	if err != nil {
		return nil, err
	}
	if !opts.Bare {
		if err := bin.buildOwn(ctx, opts.Root, opts.Out); err != nil {
			return nil, err
		}
	}
	lock, err := acquire(opts.Dir)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fleet{opts: opts, bin: bin, lock: lock, cancel: cancel, procs: newProcesses(opts.Dir), nodes: map[string]*siliconNode{}}
	start := time.Now()
	if err := f.boot(ctx, life, start); err != nil {
		f.Stop()
		return nil, err
	}
	f.say(start, "ready: %d programs; kubeconfigs in %s, logs in %s", len(f.procs.Names()),
		filepath.Join(opts.Dir, "kubeconfigs"), filepath.Join(opts.Dir, "logs"))
	return f, f.writeState()
}

func (f *Fleet) boot(ctx, life context.Context, start time.Time) error {
	var err error
	if f.ca, err = newAuthority("plimsoll-lab"); err != nil {
		return err
	}
	if err := f.startEtcd(ctx); err != nil {
		return err
	}
	f.say(start, "etcd is up; starting %d control planes", len(f.opts.Workers)+1)
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
			f.Workers[i], err = f.startWorker(gctx, life, w, start)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	f.say(start, "workers joined to the hub; starting Thanos")
	return f.startThanosQuery(ctx)
}

func (f *Fleet) startHub(ctx context.Context, start time.Time) (*Cluster, error) {
	c, err := f.startControlPlane(ctx, Hub)
	if err != nil {
		return nil, err
	}
	f.say(start, "hub: kube-apiserver is up; starting OCM placement and Kueue")
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	f.OperatorMetrics = fmt.Sprintf("127.0.0.1:%d", port)
	f.targets.add(Hub, scrapeTarget{job: "plimsoll-operator", addr: f.OperatorMetrics, scheme: "https", token: c.tokens["lab-prometheus"]})
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startPlacement(gctx) })
	g.Go(func() error { return c.startKueue(gctx) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, scraperRBAC); err != nil {
		return nil, err
	}
	f.say(start, "hub: OCM placement and Kueue are up")
	return c, c.startPrometheus(ctx)
}

func (f *Fleet) startWorker(ctx, life context.Context, w Worker, start time.Time) (*Cluster, error) {
	c, err := f.startControlPlane(ctx, w.Name)
	if err != nil {
		return nil, err
	}
	f.say(start, "%s: control plane is up; starting Kueue, kwok and %d GPU nodes", w.Name, len(w.Nodes))
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startKueue(gctx) })
	g.Go(func() error { return c.startNodes(gctx, life, w) })
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
	f.say(start, "%s: ready", w.Name)
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
		ready: answers(f.etcd+"/readyz", httpPlain),
	})
}

// connect makes each worker a ManagedCluster and hands the hub's Kueue its kubeconfig.
func (f *Fleet) connect(ctx context.Context) error {
	for _, w := range f.Workers {
		if err := f.Hub.join(ctx, w.Name); err != nil {
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

// Worker by name; nil when there is none.
func (f *Fleet) Worker(name string) *Cluster {
	for _, w := range f.Workers {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// Programs of the fleet: their logs, and ending and restarting them.
func (f *Fleet) Programs() *Processes { return f.procs }

// Dir holds the fleet's kubeconfigs, logs and data.
func (f *Fleet) Dir() string { return f.opts.Dir }

// Failed carries an error when a program ends that nobody ended.
func (f *Fleet) Failed() <-chan error { return f.procs.failed }

// Stop ends every program and releases the folder; data goes, logs stay.
func (f *Fleet) Stop() {
	f.cancel()
	f.procs.stop()
	f.servers.Wait()
	// What is left over after a failure here is removed by the next Up.
	_ = errors.Join(os.RemoveAll(filepath.Join(f.opts.Dir, "work")), os.Remove(filepath.Join(f.opts.Dir, stateFile)))
	_ = f.lock.Close()
}

func (f *Fleet) say(start time.Time, format string, args ...any) {
	fmt.Fprintf(f.opts.Out, "lab: %5.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
}
