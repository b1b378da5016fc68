package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlacementGateSpec says which clusters can take a workload now. It is the
// parameters of an AdmissionCheck whose controllerName is plimsoll.dev/placement.
// +kubebuilder:validation:XValidation:rule="!(has(self.podSetUpdates) && has(self.multiKueue))",message="podSetUpdates must not be set together with multiKueue: they are not carried to workers"
// +kubebuilder:validation:XValidation:rule="self.unknownAfterSeconds >= self.maxSampleAgeSeconds",message="unknownAfterSeconds must be at least maxSampleAgeSeconds: a trusted sample is known"
type PlacementGateSpec struct {
	PlacementRef NamespacedReference `json:"placementRef"`
	SourceRef    LocalReference      `json:"sourceRef"`
	// PeriodSeconds between rounds while a workload waits.
	// +kubebuilder:default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// Fit answers, per cluster, how many pods of the workload's shape it could start now.
	// +optional
	Fit *GateQuery `json:"fit,omitempty"`
	// Quota answers, per cluster, the devices that the worker's queue may still
	// reserve: fit counts no more than that. By default those of the ClusterQueue
	// that has the name of the hub's, from Kueue's metrics with
	// metrics.enableClusterQueueResources; a cluster without such metrics is taken to
	// have enough, and one without such a queue takes nothing. A workload whose queue
	// may preempt is not bounded: others' reservations may have to yield to it.
	// +optional
	Quota *GateQuery `json:"quota,omitempty"`
	// Headroom answers, per cluster, the free devices that the shape may use.
	// +optional
	Headroom *GateQuery `json:"headroom,omitempty"`
	// Capacity answers, per cluster, all devices that the shape may use.
	// +optional
	Capacity *GateQuery `json:"capacity,omitempty"`
	// Queued answers, per cluster, devices asked by queued jobs of the same or a
	// smaller size. There is no default: Kueue does not tell jobs apart by size, and
	// to count all of them ranks worse than to count none.
	// +optional
	Queued *GateQuery `json:"queued,omitempty"`
	// SampleTime answers, per cluster, the Unix time of the oldest trusted sample.
	// +optional
	SampleTime *GateQuery `json:"sampleTime,omitempty"`
	// MaxSampleAgeSeconds up to which a sample is trusted.
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MaxSampleAgeSeconds int32 `json:"maxSampleAgeSeconds,omitempty"`
	// UnknownAfterSeconds from which on a cluster is unknown, which onStale decides.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	UnknownAfterSeconds int32 `json:"unknownAfterSeconds,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Policies []GatePolicy `json:"policies,omitempty"`
	// TierPoints of the best preferred score make one tier; the best tier with room wins.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=200
	// +optional
	TierPoints *int32 `json:"tierPoints,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Conditions []GateCondition `json:"conditions,omitempty"`
	// ModelFrom are the node-label keys that name a device model.
	// +kubebuilder:default={"nvidia.com/gpu.product","cloud.google.com/gke-accelerator","cloud.google.com/gke-tpu-accelerator"}
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	ModelFrom []string `json:"modelFrom,omitempty"`
	// Aliases turn a label's value into the model on the metrics.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 253)",message="aliases must be of at most 253 characters each"
	Aliases map[string]string `json:"aliases,omitempty"`
	// +optional
	OnUnplaceable OnUnplaceable `json:"onUnplaceable,omitempty"`
	// OnStale decides once scores, samples and the answers to conditions are past their hold.
	// +kubebuilder:default=Closed
	// +optional
	OnStale StaleMode `json:"onStale,omitempty"`
	// +optional
	Widen Widen `json:"widen,omitempty"`
	// MultiKueue lets the gate write a MultiKueueConfig and its clusters.
	// +optional
	MultiKueue *GateMultiKueue `json:"multiKueue,omitempty"`
	// PodSetUpdates pins the pods to the chosen cluster where no MultiKueue takes them
	// there: where clusters are virtual nodes of this one. A workload with a
	// MultiKueue check is never updated.
	// +optional
	PodSetUpdates *GatePodSetUpdates `json:"podSetUpdates,omitempty"`
}

// GatePodSetUpdates are added to every pod set of a workload that a gate lets through.
type GatePodSetUpdates struct {
	// NodeSelector to add; {cluster} in a value is the chosen cluster's name. A
	// cluster that contradicts the pods' own node selector is no candidate.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 253)",message="nodeSelector must have keys of at most 317 characters and values of at most 253"
	NodeSelector map[string]string `json:"nodeSelector"`
	// Tolerations to add, of the taints that virtual nodes carry.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// NamespacedReference names an object in a namespace.
type NamespacedReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GateQuery is PromQL over the workload's facts: $namespace $queue $cluster_queue
// $flavor $resource $model $devices_per_pod $pods $devices_total, the flavor's
// nodeLabels and the pods' node selector by their keys, with _ for what no name
// may hold ($flavor_label_nvidia_com_gpu_product,
// $node_selector_topology_kubernetes_io_zone). A variable may stand only where a
// whole label value or a number stands; an absent fact matches anything.
type GateQuery struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
}

// PolicyUse says what a score does for a gate.
// +kubebuilder:validation:Enum=Require;Prefer
type PolicyUse string

// The uses of a policy.
const (
	UseRequire PolicyUse = "Require"
	UsePrefer  PolicyUse = "Prefer"
)

// GatePolicy reads a score of a ScoringPolicy.
// +kubebuilder:validation:XValidation:rule="!has(self.minimum) || self.use == 'Require'",message="minimum must stand with use: Require alone: a preferred score ranks and rules nothing out"
type GatePolicy struct {
	// Name of the AddOnPlacementScore.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Score within it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Score string `json:"score"`
	// +kubebuilder:default=Prefer
	// +optional
	Use PolicyUse `json:"use,omitempty"`
	// Minimum that a cluster must reach, with Require only; -99 by default, so that a blind cluster is out.
	// +optional
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Minimum *int32 `json:"minimum,omitempty"`
}

// ConditionScope says whom an answer speaks of.
// +kubebuilder:validation:Enum=Cluster;Fleet
type ConditionScope string

// The scopes of a condition.
const (
	ScopeCluster ConditionScope = "Cluster"
	ScopeFleet   ConditionScope = "Fleet"
)

// GateCondition is satisfied when the answer is non-empty and non-zero. While nobody
// answers, the last answer counts for maxSampleAgeSeconds; then workloads wait, until
// onStale decides after unknownAfterSeconds.
type GateCondition struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// +kubebuilder:default=Cluster
	// +optional
	Scope ConditionScope `json:"scope,omitempty"`
}

// UnplaceableMode says what a workload does that no cluster can take.
// +kubebuilder:validation:Enum=Wait;Yield
type UnplaceableMode string

// What a workload without a place may do.
const (
	UnplaceableWait  UnplaceableMode = "Wait"
	UnplaceableYield UnplaceableMode = "Yield"
)

// OnUnplaceable says what happens while no cluster can take a workload.
type OnUnplaceable struct {
	// +kubebuilder:default=Wait
	// +optional
	Mode UnplaceableMode `json:"mode,omitempty"`
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	YieldAfterSeconds int32 `json:"yieldAfterSeconds,omitempty"`
	// GiveUpAfterSeconds without a place reject the workload for good; only where it is
	// set. Only time counts in which it holds quota and every cluster was measured and has
	// no room: never because metrics, a condition, a score or the gate are at fault.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	GiveUpAfterSeconds *int32 `json:"giveUpAfterSeconds,omitempty"`
}

// StaleMode decides when nothing is known.
// +kubebuilder:validation:Enum=Open;Closed
type StaleMode string

// What a gate may do without data.
const (
	StaleOpen   StaleMode = "Open"
	StaleClosed StaleMode = "Closed"
)

// Widen nominates more clusters when the first did not admit in time.
type Widen struct {
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	AfterSeconds int32 `json:"afterSeconds,omitempty"`
	// By this many more clusters; absent = all the rest that fit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	By *int32 `json:"by,omitempty"`
}

// CredentialsType says where a MultiKueueCluster's kubeconfig comes from.
// +kubebuilder:validation:Enum=Secret;ClusterProfile;Existing
type CredentialsType string

// Where credentials may come from.
const (
	CredentialsSecret         CredentialsType = "Secret"
	CredentialsClusterProfile CredentialsType = "ClusterProfile"
	CredentialsExisting       CredentialsType = "Existing"
)

// GateMultiKueue is the configuration that the gate writes.
type GateMultiKueue struct {
	// ConfigName of the MultiKueueConfig.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigName string `json:"configName"`
	// +optional
	Credentials Credentials `json:"credentials,omitempty"`
}

// Credentials of the MultiKueueClusters.
// +kubebuilder:validation:XValidation:rule="!has(self.nameTemplate) || size(self.nameTemplate) == 0 || self.nameTemplate.contains('{cluster}')",message="nameTemplate must contain {cluster}: without it every MultiKueueCluster connects to the same worker"
type Credentials struct {
	// +kubebuilder:default=Secret
	// +optional
	Type CredentialsType `json:"type,omitempty"`
	// NameTemplate of the Secret or ClusterProfile, both in Kueue's namespace; {cluster} is
	// the managed cluster's name. By default {cluster}-kubeconfig for a Secret and
	// {cluster}, as OCM names them, for a ClusterProfile.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NameTemplate string `json:"nameTemplate,omitempty"`
}

// Condition types of a PlacementGate, next to Ready and QueriesValid.
const (
	// ConditionPlacementFound: the Placement exists and has decisions.
	ConditionPlacementFound = "PlacementFound"
	// ConditionConfigured: the MultiKueueConfig is as the gate wants it.
	ConditionConfigured = "Configured"
	// ConditionScoresFound: every score that the gate names is published for some cluster.
	ConditionScoresFound = "ScoresFound"
	// ConditionAnswered: the source answers what the gate asks about workloads. False
	// names what it does not, and since when; held answers serve for a while.
	ConditionAnswered = "QueriesAnswered"
	// ConditionSingleCandidate warns of a Placement that leaves no choice.
	ConditionSingleCandidate = "SingleCandidate"
)

// PlacementGateStatus sums up what the gate does.
type PlacementGateStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Candidates of the Placement.
	// +optional
	Candidates int32 `json:"candidates,omitempty"`
	// Waiting workloads.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
}

// PlacementGate lets each workload through only to clusters that can take it now.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pgate,categories=plimsoll
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.spec.placementRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Candidates",type=integer,JSONPath=`.status.candidates`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementGate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PlacementGateSpec   `json:"spec"`
	Status            PlacementGateStatus `json:"status,omitempty"`
}

// PlacementGateList is a list of PlacementGates.
// +kubebuilder:object:root=true
type PlacementGateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementGate `json:"items"`
}
