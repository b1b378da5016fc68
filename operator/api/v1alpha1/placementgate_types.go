package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlacementGateSpec states which clusters are eligible for a workload and which of
// them can start it now. An AdmissionCheck whose controllerName is
// plimsoll.dev/placement names a PlacementGate in its parameters.
// +kubebuilder:validation:XValidation:rule="!(has(self.podSetUpdates) && has(self.multiKueue))",message="podSetUpdates must not be set together with multiKueue: they are not carried to workers"
type PlacementGateSpec struct {
	// Enforce: each workload waits until a cluster can start it. Shadow: every workload passes at
	// once, under MultiKueue to all connected clusters. The gate decides all the same: status.shadow
	// compares where each workload would have gone, and when, with where it went, and whether its
	// pods started there. Default Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Placement of OCM whose decisions are the eligible clusters. Leave its
	// numberOfClusters unset. A MultiKueueConfig has at most 20 of the decided clusters at
	// a time.
	PlacementRef NamespacedReference `json:"placementRef"`
	// MetricsSource that serves the gate's queries.
	SourceRef LocalReference `json:"sourceRef"`
	// Seconds between two wake-ups while at least one workload waits. Default 15, from 1 to 3600.
	// +kubebuilder:default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// PromQL queries about a workload's shape. Each one that is absent has a default
	// over the recording rules in rules/recording-*.yaml. Facts of the workload are
	// variables, such as $model, $resource and $devices_per_pod, and $cluster_label stands
	// for the name of the source's cluster label. headroom, capacity, preference and
	// requirements may also use values of the job's JobProfile: $profile_memory_peak (bytes of a
	// device), $profile_duration (seconds), $profile_utilization (0 to 1) and $profile_best_model
	// (the device model on which the job is fastest). For a job without them, a requirement does not
	// apply, preference is not queried, and the others have their defaults.
	// +optional
	Queries GateQueries `json:"queries,omitempty"`
	// How old the metrics may be, and what happens when they are older.
	// +kubebuilder:default={}
	// +optional
	Freshness GateFreshness `json:"freshness,omitempty"`
	// Scores that filter or rank the eligible clusters. At most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Scores []GateScore `json:"scores,omitempty"`
	// PromQL requirements that a cluster, or the whole fleet, must meet. At most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Requirements []GateRequirement `json:"requirements,omitempty"`
	// Kinds of objects that must exist on a worker before the gate sends it a workload whose pods
	// refer to them. Metrics of the worker in the gate's source show which objects exist. A
	// cluster without such metrics stays a candidate, and messages name what is unknown. Only
	// workloads that MultiKueue copies are tested. Absent: no test, and no queries for it.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=9
	Prerequisites []GatePrerequisite `json:"prerequisites,omitempty"`
	// Keys of the node labels that name a device model, in order of precedence. The gate
	// looks for them in the pods' node selector, in their required node affinity, and in
	// the nodeLabels of the assigned ResourceFlavor.
	// +kubebuilder:default={"nvidia.com/gpu.product","cloud.google.com/gke-accelerator","cloud.google.com/gke-tpu-accelerator","amd.com/gpu.product-name"}
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	ModelFrom []string `json:"modelFrom,omitempty"`
	// Map from a label's value to the model's name in the metrics, for nodes whose label
	// differs from the exporter's model label. At most 64 entries.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 253 && size(self[k]) <= 253)",message="aliases must be of at most 253 characters each"
	Aliases map[string]string `json:"aliases,omitempty"`
	// Order of waiting workloads, and holding of a cluster for one that fits nowhere.
	// +kubebuilder:default={}
	// +optional
	Hold GateHold `json:"hold,omitempty"`
	// Behavior for a workload that no cluster can take. By default it waits and keeps its quota.
	// +kubebuilder:default={}
	// +optional
	WhenUnplaceable WhenUnplaceable `json:"whenUnplaceable,omitempty"`
	// MultiKueueConfig and MultiKueueClusters that the gate maintains. Absent: the gate
	// writes neither.
	// +optional
	MultiKueue *GateMultiKueue `json:"multiKueue,omitempty"`
	// Node selector and tolerations that pin the pods to the chosen cluster, for hubs
	// whose clusters appear as virtual nodes. Workloads with a MultiKueue check never get
	// them. Mutually exclusive with multiKueue.
	// +optional
	PodSetUpdates *GatePodSetUpdates `json:"podSetUpdates,omitempty"`
	// JobProfiles of the workloads that pass this gate, from the metrics of their successful
	// runs. No decision depends on them, except through queries with $profile_memory_peak,
	// $profile_duration, $profile_utilization or $profile_best_model. Absent: the gate keeps none.
	// +optional
	Profiles *GateProfiles `json:"profiles,omitempty"`
	// Settings that few fleets need.
	// +kubebuilder:default={}
	// +optional
	Advanced AdvancedGate `json:"advanced,omitempty"`
}

// GateQueries are PromQL templates over the workload's facts: $namespace $queue
// $cluster_queue $flavor $resource $model $devices_per_pod $pods $devices_total, the
// flavor's nodeLabels, the pods' node selector, and labels and annotations of the pod template
// or of the Workload. A label becomes a variable by its key, with _ in place of every other
// character ($flavor_label_nvidia_com_gpu_product, $node_selector_topology_kubernetes_io_zone,
// $label_team, $annotation_example_com_dataset). A variable may only stand for a whole label
// value or for a number. An absent fact matches every value. $cluster_label stands for the
// name of the source's cluster label.
type GateQueries struct {
	// Pods of the workload's shape that each cluster could start now. Default: the pods that fit on
	// each node by free devices of the model, and, where kube-state-metrics reports them, by CPU,
	// memory, number of pods and node labels. The variables $cpu_per_pod (cores) and
	// $memory_per_pod (bytes) are what each pod requests. If the query contains
	// $share_memory (bytes), $share_memory_ratio or $share_cores (0..1), pods may share devices:
	// the variables are the part of each device that a pod requests, 0 without a limit, and the
	// gate debits these parts for pods in flight.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Fit string `json:"fit,omitempty"`
	// Devices that the worker's ClusterQueue may still reserve. A cluster never offers more
	// room than that. Default: the unreserved quota of the ClusterQueue with the hub queue's
	// name, from Kueue's metrics (metrics.enableClusterQueueResources). A cluster without these
	// metrics has no bound; a cluster with these metrics but without the queue takes nothing.
	// For a workload whose queue may preempt, quota that Kueue can take from others counts, too.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Quota string `json:"quota,omitempty"`
	// Free devices of each cluster that the workload's shape may use. Ranks clusters. Default:
	// the free devices of the model.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Headroom string `json:"headroom,omitempty"`
	// All devices of each cluster that the workload's shape may use. Weights the random draw
	// of two candidates, and tells a cluster without devices from one without a result of fit.
	// Default: the devices of the model.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// How well each cluster suits the workload, in any unit. Among the clusters with room, those
	// with the highest value come first, whatever their scores; scores and headroom order clusters
	// of equal value. A cluster without a result comes last. No default: all are equal.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Preference string `json:"preference,omitempty"`
	// Pods of the workload's shape that each cluster could start if it were empty. A cluster
	// without a result is never held. Default: as fit, of what is allocatable on
	// each node.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	EmptyFit string `json:"emptyFit,omitempty"`
	// Unix time in seconds of each cluster's oldest sample that the other queries use. If recording
	// rules make the results of fit and emptyFit, the sample time must be a later rule of the same
	// group: another group is evaluated at another time. Default:
	// cluster:plimsoll_sample_timestamp_seconds:min, of the group plimsoll-nodes.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SampleTime string `json:"sampleTime,omitempty"`
}

// GateFreshness bounds the age of the metrics behind a decision.
// +kubebuilder:validation:XValidation:rule="!has(self.maxSampleAgeSeconds) || !has(self.unknownAfterSeconds) || self.unknownAfterSeconds >= self.maxSampleAgeSeconds",message="unknownAfterSeconds must not be smaller than maxSampleAgeSeconds"
type GateFreshness struct {
	// Age in seconds up to which a cluster's samples are trusted. A cluster with older
	// samples takes no workload. Default 120, from 1 to 86400.
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MaxSampleAgeSeconds int32 `json:"maxSampleAgeSeconds,omitempty"`
	// Age in seconds after which a cluster's data counts as unknown. onStale then applies.
	// Default 300, from 1 to 86400. It must not be smaller than maxSampleAgeSeconds.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	UnknownAfterSeconds int32 `json:"unknownAfterSeconds,omitempty"`
	// Behavior when the data of every cluster is unknown. Closed: workloads wait. Open: the
	// gate ignores room, expired scores and requirements without a result, and lets workloads
	// through. Default Closed.
	// +kubebuilder:default=Closed
	// +optional
	OnStale StaleMode `json:"onStale,omitempty"`
}

// GatePodSetUpdates are added to every pod set of a workload that the gate admits.
type GatePodSetUpdates struct {
	// Node selector to add. {cluster} in a value becomes the chosen cluster's name. A cluster
	// that contradicts the pods' own node selector is not a candidate. 1 to 8 entries.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 253)",message="nodeSelector must have keys of at most 317 characters and values of at most 253"
	NodeSelector map[string]string `json:"nodeSelector"`
	// Tolerations to add, for the taints of virtual nodes. At most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// NamespacedReference names an object in a namespace.
type NamespacedReference struct {
	// Namespace of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// HoldMode states whether a gate holds clusters.
// +kubebuilder:validation:Enum=Enforce;Shadow;Off
type HoldMode string

// Modes of holding a cluster.
const (
	// HoldEnforce keeps workloads that rank behind from a held cluster.
	HoldEnforce HoldMode = "Enforce"
	// HoldShadow reports holds without effect.
	HoldShadow HoldMode = "Shadow"
	// HoldOff holds no cluster.
	HoldOff HoldMode = "Off"
)

// GateHold states when a gate keeps a cluster free for a workload that fits nowhere. Without
// it, a workload that needs a whole node can starve behind smaller ones that always find room.
// A gate holds at most one cluster per kind of device, for the workload that ranks first:
// higher priority, then longer wait. Workloads that rank behind use other clusters, or pass if
// their maximumExecutionTimeSeconds ends before the held workload can start.
type GateHold struct {
	// Enforce: held clusters are kept free. Shadow: holds are shown in explain, status and
	// metrics, and have no effect. Off: no holds. Default Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode HoldMode `json:"mode,omitempty"`
	// Seconds from the quota reservation after which a cluster may be held for a workload.
	// Default 300, from 1 to 86400.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	AfterSeconds int32 `json:"afterSeconds,omitempty"`
	// Seconds from the quota reservation after which a workload ranks before all workloads that
	// began to wait later, whatever their priority. This bounds the wait of low priorities.
	// Default 14400, from 60 to 2592000.
	// +kubebuilder:default=14400
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	AgingSeconds int32 `json:"agingSeconds,omitempty"`
}

// StaleMode is the behavior of a gate without usable metrics.
// +kubebuilder:validation:Enum=Open;Closed
type StaleMode string

// Modes of a gate without usable metrics.
const (
	// StaleOpen lets workloads through.
	StaleOpen StaleMode = "Open"
	// StaleClosed keeps workloads waiting.
	StaleClosed StaleMode = "Closed"
)

// AdvancedGate has the settings of a gate that few fleets need.
type AdvancedGate struct {
	// Width of a tier in points. Clusters whose preferred score is at most this much
	// below the best one rank as equals; the best tier with room gets the workload. Default 20, from 0 to 200.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=200
	// +optional
	TierPoints *int32 `json:"tierPoints,omitempty"`
	// Seconds until other clusters with room are nominated as well, from when MultiKueue has copied the workload,
	// and again after each such time. After four times, also connected clusters whose room is unknown. Default 30,
	// from 1 to 86400.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	WidenAfterSeconds int32 `json:"widenAfterSeconds,omitempty"`
	// Seconds after which a nominated workload that no cluster has admitted returns to its
	// queue. The time counts from when MultiKueue has copied the workload, and is at least six
	// times widenAfterSeconds. Default 600, from 1 to 604800.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	// +optional
	NotAdmittedAfterSeconds int32 `json:"notAdmittedAfterSeconds,omitempty"`
}

// PlacementGate admits each workload only when some eligible cluster can start it, and
// nominates the best such cluster for MultiKueue.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pgate,categories=plimsoll
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.spec.placementRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Candidates",type=integer,JSONPath=`.status.candidates`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementGate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Desired behavior of the gate.
	Spec PlacementGateSpec `json:"spec"`
	// Observed state of the gate.
	Status PlacementGateStatus `json:"status,omitempty"`
}

// PlacementGateList is a list of PlacementGates.
// +kubebuilder:object:root=true
type PlacementGateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementGate `json:"items"`
}
