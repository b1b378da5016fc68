// Package v1alpha1 is the API of Plimsoll. A MetricsSource describes a Prometheus,
// Thanos or other server with the same API. A ScoringPolicy queries the server and turns the results
// into scores of clusters. A PlacementGate admits workloads only to clusters that
// have room for them. A CapacityPolicy turns measured devices into the quota of a Cohort.
// A JobProfile holds what the operator learned from the runs of similar jobs. A ReclaimPolicy
// returns workloads with idle devices to their queues. A TrialPolicy runs copies of jobs on device
// models that their profiles do not know.
//
// +kubebuilder:object:generate=true
// +groupName=plimsoll.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "plimsoll.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the kinds of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&MetricsSource{}, &MetricsSourceList{},
		&ScoringPolicy{}, &ScoringPolicyList{},
		&PlacementGate{}, &PlacementGateList{},
		&CapacityPolicy{}, &CapacityPolicyList{},
		&JobProfile{}, &JobProfileList{},
		&ReclaimPolicy{}, &ReclaimPolicyList{},
		&TrialPolicy{}, &TrialPolicyList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// ControllerName is the controllerName of AdmissionChecks that a PlacementGate decides.
	ControllerName = "plimsoll.dev/placement"
	// DispatcherName is the value of multiKueue.dispatcherName in Kueue's configuration
	// with which the operator nominates clusters for workloads.
	DispatcherName = "plimsoll.dev/dispatcher"
	// DispatchAnnotation on a Workload holds the dispatch state that must survive an
	// eviction, as JSON: the attempt, the nominated clusters, the times of nomination
	// and widening, and the last yield.
	DispatchAnnotation = "plimsoll.dev/dispatch"
	// GateFirst is a label of LocalQueues, with the value "true": the gate decides the
	// workloads of such a queue before Kueue reserves quota for them. The policy of
	// config/gate-first creates them inactive, with an annotation of the same name and value.
	GateFirst = "plimsoll.dev/gate-first"
	// ClusterAnnotation in the podSetUpdates of a Ready check names the cluster that the
	// gate chose. The gate sets it where a Ready check is its last decision: without
	// MultiKueue, or if Kueue's built-in dispatcher nominates clusters.
	ClusterAnnotation = "plimsoll.dev/cluster"
	// ManagedByLabel marks the MultiKueueConfigs and MultiKueueClusters that a gate
	// created. Its value is the name of the gate. An ownerReference would be unsafe:
	// garbage collection of these objects evicts the workloads on their clusters.
	ManagedByLabel = "plimsoll.dev/gate"
)
