//go:build integration

package workload_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// waitTimeout limits each Eventually.
const waitTimeout = 15 * time.Second

var (
	scheme = runtime.NewScheme()
	// apiClient talks to the API server of the running test.
	apiClient client.Client
	// sharedConfig reaches the API server that most tests share.
	sharedConfig *rest.Config
	// reconciler, metricsRegistry and logs belong to the operator on the shared API server.
	reconciler      *workload.Reconciler
	metricsRegistry = prometheus.NewRegistry()
	logs            = &logRecorder{}
)

func TestMain(m *testing.M) { os.Exit(runSuite(m)) }

// runSuite starts the shared API server and an operator, then runs the tests.
func runSuite(m *testing.M) int {
	gomega.SetDefaultEventuallyTimeout(waitTimeout)
	format.TruncatedDiff = false
	ctrl.SetLogger(logs.logger())
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme,
		clusterv1.Install, clusterv1alpha1.Install, clusterv1beta1.Install} {
		utilruntime.Must(add(scheme))
	}
	env, err := newEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if sharedConfig, err = env.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "start an API server (KUBEBUILDER_ASSETS must name a folder with etcd and kube-apiserver):", err)
		return 1
	}
	defer func() { _ = env.Stop() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if apiClient, reconciler, err = runOperator(ctx, sharedConfig, workload.Options{Registerer: metricsRegistry}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// runOperator runs the controllers against an API server until ctx ends. It returns a client of
// that server and the Workload controller.
func runOperator(ctx context.Context, cfg *rest.Config, opts workload.Options) (client.Client, *workload.Reconciler, error) {
	cfg.QPS = -1 // no client-side limit
	skipNameValidation := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Logger: logs.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skipNameValidation}})
	if err != nil {
		return nil, nil, err
	}
	r, err := setupControllers(mgr, opts)
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = mgr.Start(ctx) }()
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	return c, r, err
}

func setupControllers(mgr ctrl.Manager, opts workload.Options) (*workload.Reconciler, error) {
	sources := &query.Sources{}
	allSources = append(allSources, sources)
	for name := range sourceNames {
		registerSource(name)
	}
	gates, reservations := registry.New(), ledger.New(time.Second, time.Hour)
	if err := placementgate.Setup(mgr, placementgate.Options{Registry: gates, Ledger: reservations, Nominate: true}); err != nil {
		return nil, err
	}
	if err := admissioncheck.Setup(mgr); err != nil {
		return nil, err
	}
	opts.Registry, opts.Ledger, opts.Sources, opts.Nominate = gates, reservations, sources, true
	return workload.Setup(mgr, opts)
}

// startAPIServer starts a separate API server for one test.
func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	env, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	shared := apiClient
	t.Cleanup(func() { apiClient = shared })
	return cfg
}

// startOperator starts an operator on a separate API server, to which apiClient then talks for
// the rest of the test. stop ends the operator.
func startOperator(t *testing.T, cfg *rest.Config, opts workload.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var err error
	if apiClient, _, err = runOperator(ctx, cfg, opts); err != nil {
		t.Fatal(err)
	}
	return cancel
}

func newEnvironment() (*envtest.Environment, error) {
	crds, err := readCRDs()
	if err != nil {
		return nil, err
	}
	return &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: crds, Scheme: runtime.NewScheme()}}, nil
}

// readCRDs reads the CRDs of every kind that the controllers use. Conversion is removed,
// because no Kueue runs here to serve the conversion webhooks of its CRDs.
func readCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
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
		if err != nil {
			return nil, fmt.Errorf("find CRDs at %s: %w", pattern, err)
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("no CRDs at %s", pattern)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(text, crd); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			crd.Spec.Conversion = nil
			crds = append(crds, crd)
		}
	}
	return crds, nil
}
