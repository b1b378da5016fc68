package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityPolicySpec describes how measured devices become the quota of a Cohort.
type CapacityPolicySpec struct {
	// MetricsSource that the policy queries. Required.
	SourceRef LocalReference `json:"sourceRef"`
	// Name of the Cohort of Kueue that gets the quota. The policy creates the Cohort and
	// owns its whole spec; a Cohort of another owner is never changed. ClusterQueues join
	// it by spec.cohortName. It can't be changed. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cohortName can't be changed: create another policy"
	CohortName string `json:"cohortName"`
	// Labels of the ManagedClusters whose devices count. By default, every accepted
	// ManagedCluster counts.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Enforce writes the quota to the Cohort. Shadow computes the quota and reports it in the
	// status. Default Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Time between rounds in seconds. Default 60, from 10 to 3600.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// Limit of the age of samples. By default, every sample in a response counts as fresh.
	// +optional
	Freshness *Freshness `json:"freshness,omitempty"`
	// Quotas of the Cohort, from 1 to 16. Required.
	// +listType=map
	// +listMapKey=flavor
	// +listMapKey=resource
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Quotas []MeasuredQuota `json:"quotas"`
	// Settings that few fleets need: how soon a quota follows the devices.
	// +kubebuilder:default={}
	// +optional
	Advanced AdvancedCapacity `json:"advanced,omitempty"`
}

// AdvancedCapacity states how soon a quota follows the devices.
type AdvancedCapacity struct {
	// Time in seconds for which the last number of a cluster counts after the cluster
	// disconnected or its number became unknown. Afterwards, the cluster counts 0. Default
	// 600, from 0 to 86400.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	KeepLastSeconds *int32 `json:"keepLastSeconds,omitempty"`
	// Number of consecutive rounds that must agree before a quota is raised. The smallest
	// of their numbers applies. A round less than half a periodSeconds after the last one, such as
	// after a change of the policy, does not count. Default 2, from 1 to 10.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +optional
	RaiseAfterRounds int32 `json:"raiseAfterRounds,omitempty"`
	// Time in seconds for which fewer devices must be measured before a quota is lowered.
	// The largest number of that time applies. Devices that unhealthyQuery reports lower
	// the quota at once. Default 300, from 0 to 86400.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	LowerAfterSeconds *int32 `json:"lowerAfterSeconds,omitempty"`
	// Lower a quota below what workloads have reserved. Kueue does not evict them, but
	// admits no other workload until they end. Default false: the quota stays at what is
	// reserved, or at maximum if that is less.
	// +optional
	LowerBelowReserved bool `json:"lowerBelowReserved,omitempty"`
}

// MeasuredQuota is the quota of one resource in one flavor.
// +kubebuilder:validation:XValidation:rule="!has(self.maximum) || self.maximum >= (has(self.minimum) ? self.minimum : 0)",message="maximum must not be below minimum"
type MeasuredQuota struct {
	// Name of the ResourceFlavor. At most 253 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Flavor string `json:"flavor"`
	// Name of the resource, such as nvidia.com/gpu. At most 253 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Resource string `json:"resource"`
	// PromQL query that returns the number of healthy, usable devices of each cluster, at
	// most one sample per cluster, with the cluster label of the source, for which
	// $cluster_label stands. Devices that jobs hold count, too. At most 4096 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// PromQL query that returns the number of devices of each cluster that are known to be
	// broken. As far as their increase explains a decrease of the measured devices, the
	// quota is lowered at once. By default, every decrease takes lowerAfterSeconds. At most
	// 4096 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	UnhealthyQuery string `json:"unhealthyQuery,omitempty"`
	// Lowest quota. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Minimum int64 `json:"minimum,omitempty"`
	// Highest quota. It applies at once, also if workloads have reserved more: Kueue does not evict
	// them, but admits no other workload until they end. By default, there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Maximum *int64 `json:"maximum,omitempty"`
	// Devices of one node. The number of each cluster is rounded down to a multiple, since
	// a partial node fits no job of whole nodes. Default 1, from 1 to 1024.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	RoundTo int32 `json:"roundTo,omitempty"`
	// Smallest change of the quota, in devices. Smaller changes are ignored, also those by newly
	// broken devices. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Deadband int64 `json:"deadband,omitempty"`
}

// CapacityPolicy sets the quota of a Cohort of Kueue to the devices that the clusters of the
// fleet really have.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpol,categories=plimsoll
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name must have at most 63 characters, because it is the value of a label"
// +kubebuilder:printcolumn:name="Cohort",type=string,JSONPath=`.spec.cohortName`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CapacityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	Spec CapacityPolicySpec `json:"spec"`
	// Observed state.
	// +optional
	Status CapacityPolicyStatus `json:"status,omitempty"`
}

// CapacityPolicyList is a list of CapacityPolicies.
// +kubebuilder:object:root=true
type CapacityPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Policies of the list.
	Items []CapacityPolicy `json:"items"`
}
