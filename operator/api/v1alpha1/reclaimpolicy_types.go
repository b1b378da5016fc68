package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReclaimableLabel is the label of a pod template whose workload agrees to be reclaimed. Its
// value is "true".
const ReclaimableLabel = "plimsoll.dev/reclaimable"

// ReclaimPolicySpec describes which workloads return to their queues.
type ReclaimPolicySpec struct {
	// MetricsSource that the policy queries. Required.
	SourceRef LocalReference `json:"sourceRef"`
	// Names of the ClusterQueues on the hub whose workloads the policy considers, from 1 to
	// 64. Required.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ClusterQueues []string `json:"clusterQueues"`
	// Enforce returns workloads to their queues. Shadow records in the status which ones would
	// return. Default Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Names of WorkloadPriorityClasses whose workloads may be reclaimed, at most 16. A workload
	// of another class, or of none, may be reclaimed only if its pod template has the label
	// plimsoll.dev/reclaimable: "true". By default, only the label counts.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// PromQL query that returns for how long each idle device has been idle, in seconds: one
	// sample per device, with the cluster label of the source, for which $cluster_label
	// stands, the labels node and uuid of the device, and the labels namespace, owner_kind and
	// owner_name of the pods' topmost controller. Of several samples of a device, the smallest
	// counts. A device without a sample counts as busy. Default: the devices of trusted nodes
	// whose utilization is below 1% now, by the recording rule
	// device:plimsoll_idle_since_timestamp_seconds:min. At most 4096 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	IdleQuery string `json:"idleQuery,omitempty"`
	// Limit of the age of samples. No workload on a cluster with older samples is reclaimed.
	// Default: 240 s by the recording rule cluster:plimsoll_device_sample_timestamp_seconds:min,
	// which lags by up to three evaluation intervals of the rules.
	// +optional
	Freshness *Freshness `json:"freshness,omitempty"`
	// Time in seconds for which every device of a workload must be idle. Default 1800, from 10
	// to 604800.
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	// +optional
	IdleSeconds int32 `json:"idleSeconds,omitempty"`
	// Time in seconds since its admission, and since its pods became ready, before which a
	// workload is not reclaimed. Default 1800, from 0 to 604800.
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +optional
	MinRunSeconds *int32 `json:"minRunSeconds,omitempty"`
	// Highest number of workloads that the policy reclaims within an hour. Default 4, from 1
	// to 60.
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	// +optional
	MaxPerHour int32 `json:"maxPerHour,omitempty"`
	// Time between rounds in seconds. A round reclaims at most one workload of each ClusterQueue
	// or Cohort, and only if another workload has waited for at least this time. Default 60,
	// from 10 to 3600.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// Rebalance returns a busy workload to its queue, too, if a gate holds its cluster for a
	// waiting workload of a higher priority that then has room there, and if it fits on another
	// cluster itself. It must have agreed as an idle one does. minRunSeconds and maxPerHour apply.
	// By default, only idle workloads return.
	// +optional
	Rebalance *Rebalance `json:"rebalance,omitempty"`
}

// Rebalance states whether a ReclaimPolicy moves workloads to other clusters, so that waiting ones
// can start.
type Rebalance struct {
	// Enforce moves workloads. Shadow records in the status which ones would be moved. Default: the
	// mode of the policy, which is that for idle workloads.
	// +optional
	Mode Mode `json:"mode,omitempty"`
}

// ReclaimPolicy returns workloads that agreed to it, and whose devices are idle, to their
// queues, so that waiting workloads can start. With rebalance, it also moves busy ones.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=rpol,categories=plimsoll
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Reclaimable",type=integer,JSONPath=`.status.reclaimable`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReclaimPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	Spec ReclaimPolicySpec `json:"spec"`
	// Observed state.
	// +optional
	Status ReclaimPolicyStatus `json:"status,omitempty"`
}

// ReclaimPolicyList is a list of ReclaimPolicies.
// +kubebuilder:object:root=true
type ReclaimPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Policies of the list.
	Items []ReclaimPolicy `json:"items"`
}
