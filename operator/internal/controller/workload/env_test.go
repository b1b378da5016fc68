//go:build integration

package workload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/admissioncheck"
	"plimsoll.dev/plimsoll/operator/internal/controller/placementgate"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

const h100 = "NVIDIA-H100-80GB-HBM3"

var (
	api    client.Client
	fleet  = &metrics{clusters: map[string]*measured{}}
	scheme = runtime.NewScheme()
	served *workload.Reconciler
	// hubConfig reaches the apiserver of all tests.
	hubConfig *rest.Config
	// registry of the served operator's metrics.
	metricsRegistry = prometheus.NewRegistry()
)

// measured of one cluster: 8-device slots free, devices free, on its best node, in all.
type measured struct{ slots, free, largest, total float64 }

// metrics is a Prometheus in which the recording rules' answers are set by hand.
type metrics struct {
	mu       sync.Mutex
	clusters map[string]*measured
	// quota that a cluster's queue may still reserve, where its Kueue tells.
	quota map[string]float64
	// kueue tells of some queue in these clusters.
	kueue []string
	// conditions answered by their query: 1 for these clusters.
	conditions map[string][]string
	// at is when the samples were taken; zero = now. err answers instead.
	at  time.Time
	err error
	// fails is the one question that is not answered.
	fails string
	asked []string
}

func (m *metrics) set(values map[string]*measured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clusters, m.quota, m.kueue, m.conditions, m.at, m.err, m.fails = values, nil, nil, nil, time.Time{}, nil, ""
}

// with changes some of what is measured.
func (m *metrics) with(change func(*metrics)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func ones(clusters []string) query.Result {
	var a query.Result
	for _, name := range clusters {
		a.Samples = append(a.Samples, query.Sample{Labels: map[string]string{"cluster": name}, Value: 1})
	}
	return a
}

func (m *metrics) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, expr)
	if m.err != nil {
		return query.Result{}, m.err
	}
	if expr == m.fails {
		return query.Result{}, errors.New("too heavy")
	}
	if clusters, ok := m.conditions[expr]; ok {
		return ones(clusters), nil
	}
	if strings.HasPrefix(expr, "count by (cluster) (cluster_queue:") {
		return ones(m.kueue), nil
	}
	var answer query.Result
	for name, c := range m.clusters {
		value := c.slots
		switch {
		case strings.Contains(expr, "sample_timestamp"):
			value = float64(time.Now().Unix())
			if !m.at.IsZero() {
				value = float64(m.at.Unix())
			}
		case strings.Contains(expr, "kueue_unreserved_quota"):
			quota, ok := m.quota[name]
			if !ok {
				continue
			}
			value = quota
		case strings.Contains(expr, "node_free_devices:max"):
			value = c.largest
		case strings.Contains(expr, "plimsoll_free_devices:sum"):
			value = c.free
		case strings.Contains(expr, "plimsoll_devices:sum"):
			value = c.total
		}
		answer.Samples = append(answer.Samples, query.Sample{Labels: map[string]string{"cluster": name}, Value: value})
	}
	return answer, nil
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme,
		clusterv1.Install, clusterv1alpha1.Install, clusterv1beta1.Install} {
		utilruntime.Must(add(scheme))
	}
	crds, err := definitions()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	env := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: crds, Scheme: runtime.NewScheme()}}
	cfg, err := env.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start an apiserver (KUBEBUILDER_ASSETS must name a folder with etcd and kube-apiserver):", err)
		return 1
	}
	defer func() { _ = env.Stop() }()
	hubConfig = cfg
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if api, err = operate(ctx, cfg, workload.Options{Registerer: metricsRegistry}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// operate the controllers on an apiserver, and return a client of it.
func operate(ctx context.Context, cfg *rest.Config, opts workload.Options) (client.Client, error) {
	cfg.QPS = -1
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return nil, err
	}
	if err := setup(mgr, opts); err != nil {
		return nil, err
	}
	go func() { _ = mgr.Start(ctx) }()
	return client.New(cfg, client.Options{Scheme: scheme})
}

func setup(mgr ctrl.Manager, opts workload.Options) error {
	sources := &query.Sources{}
	everySource = append(everySource, sources)
	for name := range sourceNames {
		ask(name)
	}
	gates := registry.New()
	if err := placementgate.Setup(mgr, placementgate.Options{Registry: gates, Nominate: true}); err != nil {
		return err
	}
	if err := admissioncheck.Setup(mgr); err != nil {
		return err
	}
	opts.Registry, opts.Ledger, opts.Sources, opts.Nominate = gates, ledger.New(time.Second, time.Hour), sources, true
	r, err := workload.Setup(mgr, opts)
	if served == nil {
		served = r
	}
	return err
}

// definitions of every kind that the controllers touch. Kueue's name conversion
// webhooks, which no Kueue serves here.
func definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	paths := []string{"../../../../config/crd/plimsoll.dev_*.yaml"}
	for module, files := range map[string][]string{
		"sigs.k8s.io/kueue":              {"config/components/crd/bases/*.yaml"},
		"open-cluster-management.io/api": {"cluster/v1/*.crd.yaml", "cluster/v1beta1/*.crd.yaml", "cluster/v1alpha1/*.crd.yaml"},
	} {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return nil, fmt.Errorf("find module %s: %w", module, err)
		}
		for _, f := range files {
			paths = append(paths, filepath.Join(strings.TrimSpace(string(dir)), f))
		}
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, pattern := range paths {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			return nil, fmt.Errorf("no CRDs at %s: %w", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(text, crd); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			crd.Spec.Conversion = nil
			crds = append(crds, crd)
		}
	}
	return crds, nil
}

// hub makes a namespace with a Placement that decided two clusters, the gate,
// and both checks, and waits until workloads can be decided.
type hub struct {
	t    *testing.T
	name string
	// nodeSelector of the pods that are submitted.
	nodeSelector map[string]string
	// clusterQueue that holds their quota; empty = gpu. flavor of it; empty = h100.
	clusterQueue, flavor string
	// queued is how long a workload waited for quota before it was submitted.
	queued time.Duration
	// devices that each pod asks for; empty = 8.
	devices string
	// annotations and, where the operator is to find them in the middle of it all,
	// more of the status that workloads are submitted with.
	annotations map[string]string
	found       func(*kueue.WorkloadStatus)
}

// Each test asks a source of its own, so that no answer is held from another; every
// operator knows all of them.
var (
	everySource []*query.Sources
	sourceNames = map[string]bool{}
)

// ask the fleet as a source of that name.
func ask(name string) {
	sourceNames[name] = true
	for _, sources := range everySource {
		sources.Set(query.SourceInfo{Name: name, ClusterLabel: "cluster"}, fleet)
	}
}

func newHub(t *testing.T, name string, change func(*v1alpha1.PlacementGate)) *hub {
	t.Helper()
	h := &hub{t: t, name: name}
	h.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	h.create(&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "gpu"}})
	h.decide(name+"-1", name+"-2")
	ask(name)
	h.create(&v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MetricsSourceSpec{URL: "http://127.0.0.1:9"}})
	if err := api.Create(t.Context(), &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"},
		Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"nvidia.com/gpu.product": h100}}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	g := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementGateSpec{
		PlacementRef: v1alpha1.NamespacedReference{Namespace: name, Name: "gpu"}, SourceRef: v1alpha1.LocalReference{Name: name},
		PeriodSeconds: 1, MultiKueue: &v1alpha1.GateMultiKueue{ConfigName: name},
	}}
	if change != nil {
		change(g)
	}
	h.create(g)
	h.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name + "-plimsoll"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: v1alpha1.ControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: name}}})
	h.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name + "-multikueue"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "kueue.x-k8s.io", Kind: "MultiKueueConfig", Name: name}}})
	return h
}

func (h *hub) create(obj client.Object) {
	h.t.Helper()
	if err := api.Create(h.t.Context(), obj); err != nil {
		h.t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

func (h *hub) decide(clusters ...string) {
	h.t.Helper()
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "gpu-1",
		Labels: map[string]string{clusterv1beta1.PlacementLabel: "gpu"}}}
	h.create(d)
	for _, c := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
	}
	if err := api.Status().Update(h.t.Context(), d); err != nil {
		h.t.Fatal(err)
	}
}
