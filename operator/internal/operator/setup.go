// Package operator adds the controllers of the hub to a manager. The command plimsoll-operator and
// the simulation in virtual time run the same ones.
package operator

import (
	"cmp"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/admissioncheck"
	"plimsoll.dev/plimsoll/operator/internal/controller/capacitypolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/jobprofile"
	"plimsoll.dev/plimsoll/operator/internal/controller/metricssource"
	"plimsoll.dev/plimsoll/operator/internal/controller/placementgate"
	"plimsoll.dev/plimsoll/operator/internal/controller/reclaimpolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/scoringpolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/trial"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// Options of the controllers.
type Options struct {
	// Namespace of the operator, for the Secrets of MetricsSources.
	Namespace string
	// CredentialsDir is the directory of the token files that MetricsSources may name; empty = none.
	CredentialsDir string
	// AllowLoopback permits MetricsSources at loopback addresses.
	AllowLoopback bool
	// Transport replaces the network to MetricsSources; nil = the network.
	Transport http.RoundTripper
	// ScoreWrites is the maximum number of concurrent writes of scores, per policy; 0 = 16.
	ScoreWrites int
	// ClusterMetrics exports a score metric per policy, score and cluster.
	ClusterMetrics bool
	// Trials: jobs are tried as TrialPolicies say.
	Trials bool
	// Nominate: the operator is Kueue's external dispatcher. NominateAs is its field manager.
	Nominate   bool
	NominateAs workload.NominateAs
	// Decide is that of workload.Options.
	Decide gate.Decider
	// Workers is the number of workloads that are reconciled at a time; 0 = the default.
	Workers int
	// LedgerSettle is that of ledger.New.
	LedgerSettle time.Duration
	// Registerer of the metrics.
	Registerer prometheus.Registerer
}

// ledgerTTL is the time for which the devices of a nomination are reserved if nothing more is known
// about it.
const ledgerTTL = 10 * time.Minute

// Gates are the parts of the operator that need Kueue.
type Gates struct {
	Workloads *workload.Reconciler
	Ledger    *ledger.Ledger
}

// NewScheme returns the kinds that the controllers read and write.
func NewScheme() (*runtime.Scheme, error) {
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

// Trim reduces the size of the cached objects. AddOnPlacementScores keep their managedFields,
// which state who wrote a score and when. Writes of other kinds that need managedFields read
// the object from the API server.
func Trim(obj any) (any, error) {
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

// Setup adds all controllers to the manager.
func Setup(mgr ctrl.Manager, o Options) (*Gates, error) {
	sources := &query.Sources{}
	err := metricssource.Setup(mgr, metricssource.Options{
		Sources: sources, Metrics: query.NewMetrics(o.Registerer), Namespace: o.Namespace, CredentialsDir: o.CredentialsDir, AllowLoopback: o.AllowLoopback, Transport: o.Transport,
	})
	if err != nil {
		return nil, err
	}
	err = scoringpolicy.Setup(mgr, scoringpolicy.Options{
		Sources: sources, Registerer: o.Registerer, Concurrency: cmp.Or(o.ScoreWrites, 16), ClusterMetrics: o.ClusterMetrics,
	})
	if err != nil {
		return nil, err
	}
	return setupGate(mgr, o, sources)
}

// setupGate adds what needs Kueue. On a hub without it scores are still published.
func setupGate(mgr ctrl.Manager, o Options, sources *query.Sources) (*Gates, error) {
	workloads := kueue.SchemeGroupVersion.WithKind("Workload")
	if _, err := mgr.GetRESTMapper().RESTMapping(workloads.GroupKind(), workloads.Version); meta.IsNoMatchError(err) {
		mgr.GetLogger().Info("Kueue v1beta2 is not installed on this hub: no gates until it is and the operator is started again")
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	gates, reservations := gatestate.New(), ledger.New(o.LedgerSettle, ledgerTTL)
	if err := placementgate.Setup(mgr, placementgate.Options{Registry: gates, Ledger: reservations, Nominate: o.Nominate}); err != nil {
		return nil, err
	}
	if err := admissioncheck.Setup(mgr); err != nil {
		return nil, err
	}
	if err := capacitypolicy.Setup(mgr, capacitypolicy.Options{Sources: sources}); err != nil {
		return nil, err
	}
	if err := jobprofile.Setup(mgr, jobprofile.Options{Sources: sources, Registerer: o.Registerer}); err != nil {
		return nil, err
	}
	if err := trial.Setup(mgr, trial.Options{Enabled: o.Trials, Sources: sources, Registerer: o.Registerer}); err != nil {
		return nil, err
	}
	r, err := workload.Setup(mgr, workload.Options{
		Registry: gates, Ledger: reservations, Sources: sources,
		Nominate: o.Nominate, NominateAs: o.NominateAs, Registerer: o.Registerer, Decide: o.Decide, Workers: o.Workers,
	})
	if err != nil {
		return nil, err
	}
	err = reclaimpolicy.Setup(mgr, reclaimpolicy.Options{Sources: sources, Gates: r, Nominate: o.Nominate, Registerer: o.Registerer})
	if err != nil {
		return nil, err
	}
	return &Gates{Workloads: r, Ledger: reservations}, mgr.AddMetricsServerExtraHandler(workload.Prefix, r.Handler())
}
