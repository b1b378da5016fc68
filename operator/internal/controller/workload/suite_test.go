//go:build integration

package workload_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"github.com/prometheus/client_golang/prometheus"
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

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/admissioncheck"
	"plimsoll.dev/plimsoll/operator/internal/controller/placementgate"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/test/crds"
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
	gates, reservations := gatestate.New(), ledger.New(time.Second, time.Hour)
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
	definitions, err := crds.Hub()
	if err != nil {
		return nil, err
	}
	return &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: definitions, Scheme: runtime.NewScheme()}}, nil
}
