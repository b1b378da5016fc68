package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// TrialControllerName is the controllerName of AdmissionChecks that a TrialPolicy decides.
	TrialControllerName = "plimsoll.dev/trial"
	// TrialLabel on a Workload, or on the pods of its templates, opts in to trial runs. Its value
	// is "true". Kueue copies the label from a job to its Workload if
	// integrations.labelKeysToCopy in Kueue's configuration lists it.
	TrialLabel = "plimsoll.dev/trial"
	// TrialOfLabel marks the copies of a job and their pods. Its value is the UID of the job's
	// Workload.
	TrialOfLabel = "plimsoll.dev/trial-of"
	// TrialVariable is the environment variable of the containers of a copy. Its value is the
	// device model.
	TrialVariable = "PLIMSOLL_TRIAL"
)

// TrialModel is a device model on which jobs are tried.
type TrialModel struct {
	// Name of the model, as in the metrics.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Node selector of the copies, which selects nodes with this model. A job whose own node
	// selector contradicts it is not tried on the model. 1 to 8 entries.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="nodeSelector must have keys of at most 317 characters and values of at most 63"
	NodeSelector map[string]string `json:"nodeSelector"`
}

// TrialPolicySpec describes the trial runs of jobs whose profile does not know a device model.
// +kubebuilder:validation:XValidation:rule="!has(self.waitSeconds) || !has(self.runSeconds) || self.waitSeconds > self.runSeconds",message="waitSeconds must be greater than runSeconds: a copy also waits for a device"
type TrialPolicySpec struct {
	// MetricsSource with the metrics of the copies. Required.
	SourceRef LocalReference `json:"sourceRef"`
	// Name of the LocalQueue for the copies, in the namespace of each job. Its ClusterQueue
	// dispatches them as any other job. It should have the lowest share of its cohort. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	QueueName string `json:"queueName"`
	// Name of the WorkloadPriorityClass of Kueue that the copies have. It should be the lowest
	// one, so that every job preempts them. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName"`
	// Device models to try, 1 to 8. A job is tried on those that its profile does not know. With
	// throughputQuery, it does not know a model that only runs measured.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Models []TrialModel `json:"models"`
	// Smallest number of devices of a job that is worth a trial. Default 8, from 1 to 100000.
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MinDevices int32 `json:"minDevices,omitempty"`
	// Seconds for which a copy runs at most. The copy has this time as activeDeadlineSeconds, so
	// that it ends without the operator. Default 300, from 30 to 3600.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=3600
	// +optional
	RunSeconds int32 `json:"runSeconds,omitempty"`
	// Seconds after the job's quota reservation in which the check becomes Ready at the latest,
	// whatever happened to the copies. A job is tried once, also if it is evicted meanwhile. Default
	// 900, from 60 to 86400.
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	// +optional
	WaitSeconds int32 `json:"waitSeconds,omitempty"`
	// Number of copies that the policy creates on one day, in UTC. Default 20, from 1 to 1000.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxCopiesPerDay int32 `json:"maxCopiesPerDay,omitempty"`
	// Number of jobs that are tried at the same time. Another job passes without a trial. Default
	// 2, from 1 to 20.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`
	// PromQL query for the throughput of a copy, such as the rate of a counter of its steps. Higher
	// is better; the unit is yours. A value outside 1e-9 to 1e18, such as 0, is dropped. $namespace,
	// $owner_kind (Job), $owner_name and $cluster are those of the copy, and $cluster_label stands
	// for the name of the source's cluster label. The query is evaluated at the end of the copy and
	// must return one series. By default, tensor activity is the only sign of throughput.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ThroughputQuery string `json:"throughputQuery,omitempty"`
	// Keys of labels that the pods of a copy take over from the job's pods, such as those that a
	// PodMonitor or a NetworkPolicy selects. A label that a Service selects makes the Service send
	// requests to copies. At most 16 keys. By default, the pods have none of the job's labels.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('kueue.x-k8s.io/') && !k.contains('plimsoll.dev/'))",message="podLabelKeys must not have labels of kueue.x-k8s.io or plimsoll.dev"
	// +optional
	PodLabelKeys []string `json:"podLabelKeys,omitempty"`
	// How the measurements are kept in JobProfiles.
	// +kubebuilder:default={}
	// +optional
	Profiles GateProfiles `json:"profiles,omitempty"`
}

// RunningTrial is a job that is being tried.
type RunningTrial struct {
	// UID of the job's Workload.
	// +kubebuilder:validation:MaxLength=63
	WorkloadUID string `json:"workloadUID"`
	// Namespace of the Workload.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the Workload.
	// +kubebuilder:validation:MaxLength=253
	Workload string `json:"workload"`
	// Name of the JobProfile of the job.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Profile string `json:"profile,omitempty"`
	// Time at which the trial began.
	StartTime metav1.Time `json:"startTime"`
	// Models whose copies have not ended.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Models []string `json:"models,omitempty"`
}

// TrialPolicyStatus is what the policy does now. It is written before a copy is created, so that
// the limits hold across restarts of the operator.
type TrialPolicyStatus struct {
	// Conditions of the policy: Ready. It is True if jobs can be tried; otherwise every job passes
	// without a trial.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Generation of the spec that the conditions refer to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Day that copiesToday counts, in UTC: 2026-05-01.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	Day string `json:"day,omitempty"`
	// Number of copies that were created on this day.
	// +optional
	CopiesToday int32 `json:"copiesToday,omitempty"`
	// Jobs that are being tried.
	// +optional
	// +listType=map
	// +listMapKey=workloadUID
	// +kubebuilder:validation:MaxItems=20
	Trials []RunningTrial `json:"trials,omitempty"`
	// UIDs of the Workloads whose trials ended last, the latest one at the end. They are not tried
	// again if they return to their queue, so that waitSeconds counts once. At most 200.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=63
	Tried []string `json:"tried,omitempty"`
}

// Reasons of the condition Ready of a TrialPolicy.
const (
	// ReasonTrialsDisabled means that the operator runs without --trials.
	ReasonTrialsDisabled = "TrialsDisabled"
)

// TrialPolicy tries jobs on device models that their profiles do not know: it runs a copy of the
// job with one pod per model for a limited time, measures it, and deletes it. It decides an
// AdmissionCheck with controllerName plimsoll.dev/trial, which always ends Ready.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=trial,categories=plimsoll
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queueName`
// +kubebuilder:printcolumn:name="Copies today",type=integer,JSONPath=`.status.copiesToday`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TrialPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired behavior.
	Spec TrialPolicySpec `json:"spec"`
	// Observed state.
	// +optional
	Status TrialPolicyStatus `json:"status,omitempty"`
}

// TrialPolicyList is a list of TrialPolicies.
// +kubebuilder:object:root=true
type TrialPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Policies of the list.
	Items []TrialPolicy `json:"items"`
}
