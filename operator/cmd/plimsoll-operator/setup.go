package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/operator"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=plimsoll-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=plimsoll-system,resources=events,verbs=create;patch

// leaseRetryPeriod is the interval at which the other replicas try to become leader: one of them
// leads about a second after the leader gave up its Lease, and 18 s after the leader was lost.
const leaseRetryPeriod = time.Second

func newManager(cfg *rest.Config, o *options) (ctrl.Manager, error) {
	s, err := operator.NewScheme()
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
		Cache: cache.Options{DefaultTransform: operator.Trim, ByObject: map[client.Object]cache.ByObject{
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

func setup(mgr ctrl.Manager, o *options) error {
	if err := metrics.Registry.Register(buildInfo()); err != nil {
		return err
	}
	_, err := operator.Setup(mgr, operator.Options{
		Namespace: o.namespace, CredentialsDir: o.credentialsDir, AllowLoopback: o.loopback,
		ClusterMetrics: o.clusterMetrics, Trials: o.trials,
		Nominate: o.dispatch == "nominate", NominateAs: workload.NominateAsDetected,
		LedgerSettle: o.ledgerSettle, Registerer: metrics.Registry,
	})
	return err
}

// buildInfo is the metric plimsoll_build_info.
func buildInfo() prometheus.Collector {
	return versioncollector.NewCollector("plimsoll", versioncollector.WithExtraConstLabels(prometheus.Labels{"component": "operator"}))
}
