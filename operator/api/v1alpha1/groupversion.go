// Package v1alpha1 is the API of Plimsoll: where to ask (MetricsSource), what to
// ask and how an answer becomes a score (ScoringPolicy), and which workloads may
// go where, now (PlacementGate).
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
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// ControllerName is the controllerName of AdmissionChecks that a PlacementGate decides.
	ControllerName = "plimsoll.dev/placement"
	// DispatcherName is the multiKueue.dispatcherName in Kueue's configuration
	// that leaves nominations to the operator.
	DispatcherName = "plimsoll.dev/dispatcher"
	// DispatchAnnotation on a Workload keeps what must outlive an eviction
	// (attempt, nominated at, ever nominated, widened at, last yield, reason), as JSON.
	DispatchAnnotation = "plimsoll.dev/dispatch"
	// ClusterAnnotation in the podSetUpdates of a Ready check names the cluster that the
	// gate chose. The gate sets it where a Ready check is its last decision: without
	// MultiKueue, or if Kueue's built-in dispatcher nominates clusters.
	ClusterAnnotation = "plimsoll.dev/cluster"
	// ManagedByLabel marks MultiKueueConfigs and MultiKueueClusters that a gate
	// created; its value is the gate's name. No ownerReference does: collecting
	// these objects would evict what runs on the clusters they name.
	ManagedByLabel = "plimsoll.dev/gate"
)

// LocalReference names a cluster-scoped object of this group.
type LocalReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SecretKeyReference names a key of a Secret in the operator's own namespace.
// Secrets elsewhere can't be named: whoever may create our objects gains no Secret.
type SecretKeyReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}
