package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/admissioncheck"
	"plimsoll.dev/plimsoll/operator/internal/controller/capacitypolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/jobprofile"
	"plimsoll.dev/plimsoll/operator/internal/controller/metricssource"
	"plimsoll.dev/plimsoll/operator/internal/controller/placementgate"
	"plimsoll.dev/plimsoll/operator/internal/controller/reclaimpolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/scoringpolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/trial"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/profile"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=plimsoll-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=plimsoll-system,resources=events,verbs=create;patch

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, kueue.AddToScheme,
		clusterv1.Install, clusterv1beta1.Install, clusterv1alpha1.Install,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// leaseRetryPeriod is the interval at which the other replicas try to become leader: one of them
// leads about a second after the leader gave up its Lease, and 18 s after the leader was lost.
const leaseRetryPeriod = time.Second

func newManager(cfg *rest.Config, o *options) (ctrl.Manager, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	copies, err := labels.Parse(v1alpha1.TrialOfLabel)
	if err != nil {
		return nil, err
	}
	listener := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.metricsSecure, CertDir: o.metricsCerts}
	if o.metricsSecure {
		listener.FilterProvider = authorize
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        s,
		Metrics:                       listener,
		HealthProbeBindAddress:        o.probeAddress,
		LivenessEndpointName:          "/livez",
		PprofBindAddress:              o.pprofAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "plimsoll-operator",
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		RetryPeriod:                   ptr.To(leaseRetryPeriod),
		Cache: cache.Options{DefaultTransform: trim, ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.namespace: {}}},
			&batchv1.Job{}:   {Label: copies}, // of all Jobs, only the copies for trials
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("loops", loopsTurn(metrics.Registry)); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("caches", cachesAreSynced(mgr.GetCache()))
}

// trim reduces the size of the cached objects. AddOnPlacementScores keep their managedFields,
// which state who wrote a score and when. Writes of other kinds that need managedFields read
// the object from the API server.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *kueue.Workload:
		profile.RecordName(o)
		kueuestate.Trim(o)
	case *clusterv1alpha1.AddOnPlacementScore:
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func setup(mgr ctrl.Manager, o *options) error {
	if err := metrics.Registry.Register(buildInfo()); err != nil {
		return err
	}
	sources := &query.Sources{}
	err := metricssource.Setup(mgr, metricssource.Options{
		Sources: sources, Metrics: query.NewMetrics(metrics.Registry), Namespace: o.namespace, CredentialsDir: o.credentialsDir, AllowLoopback: o.loopback,
	})
	if err != nil {
		return err
	}
	err = scoringpolicy.Setup(mgr, scoringpolicy.Options{
		Sources: sources, Registerer: metrics.Registry, Concurrency: o.concurrency, ClusterMetrics: o.clusterMetrics,
	})
	if err != nil {
		return err
	}
	return setupGate(mgr, o, sources)
}

// buildInfo is the metric plimsoll_build_info.
func buildInfo() prometheus.Collector {
	return versioncollector.NewCollector("plimsoll", versioncollector.WithExtraConstLabels(prometheus.Labels{"component": "operator"}))
}

// setupGate adds what needs Kueue. On a hub without it scores are still published.
func setupGate(mgr ctrl.Manager, o *options, sources *query.Sources) error {
	workloads := kueue.SchemeGroupVersion.WithKind("Workload")
	if _, err := mgr.GetRESTMapper().RESTMapping(workloads.GroupKind(), workloads.Version); meta.IsNoMatchError(err) {
		mgr.GetLogger().Info("Kueue v1beta2 is not installed on this hub: no gates until it is and the operator is started again")
		return nil
	} else if err != nil {
		return err
	}
	gates, nominate := registry.New(), o.dispatch == "nominate"
	reservations := ledger.New(o.ledgerSettle, o.ledgerTTL)
	if err := placementgate.Setup(mgr, placementgate.Options{Registry: gates, Ledger: reservations, Nominate: nominate}); err != nil {
		return err
	}
	if err := admissioncheck.Setup(mgr); err != nil {
		return err
	}
	if err := capacitypolicy.Setup(mgr, capacitypolicy.Options{Sources: sources}); err != nil {
		return err
	}
	if err := jobprofile.Setup(mgr, jobprofile.Options{Sources: sources, Registerer: metrics.Registry}); err != nil {
		return err
	}
	if err := trial.Setup(mgr, trial.Options{Enabled: o.trials, Sources: sources, Registerer: metrics.Registry}); err != nil {
		return err
	}
	r, err := workload.Setup(mgr, workload.Options{
		Registry: gates, Ledger: reservations, Sources: sources,
		Nominate: nominate, NominateAs: workload.NominateAs(o.nominateAs), Registerer: metrics.Registry,
	})
	if err != nil {
		return err
	}
	err = reclaimpolicy.Setup(mgr, reclaimpolicy.Options{Sources: sources, Gates: r, Nominate: nominate, Registerer: metrics.Registry})
	if err != nil {
		return err
	}
	return mgr.AddMetricsServerExtraHandler(workload.Prefix, r.Handler())
}
