package v1alpha1

// ScoreUse is the effect of a score on a gate's decisions.
// +kubebuilder:validation:Enum=Require;Prefer
type ScoreUse string

// Uses of a score.
const (
	// UseRequire excludes clusters whose score is below the minimum.
	UseRequire ScoreUse = "Require"
	// UsePrefer ranks clusters by the score.
	UsePrefer ScoreUse = "Prefer"
)

// GateScore applies one score of a ScoringPolicy to the gate's decisions.
// +kubebuilder:validation:XValidation:rule="!has(self.minimum) || self.use == 'Require'",message="minimum is allowed only with use: Require; use: Prefer only ranks clusters"
type GateScore struct {
	// Name of the AddOnPlacementScore, which is the ScoringPolicy's name unless that states
	// publish.name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ResourceName string `json:"resourceName"`
	// Name of the score in the AddOnPlacementScore, such as total.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ScoreName string `json:"scoreName"`
	// Require excludes clusters below the minimum; Prefer ranks clusters by the score.
	// Default Prefer.
	// +kubebuilder:default=Prefer
	// +optional
	Use ScoreUse `json:"use,omitempty"`
	// Lowest score in points of a cluster that takes workloads, only with use: Require.
	// Default -99, which excludes the clusters that a policy sets to -100 for lack of data,
	// from -100 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Minimum *int32 `json:"minimum,omitempty"`
}

// RequirementScope is what a requirement's result applies to.
// +kubebuilder:validation:Enum=Cluster;Fleet
type RequirementScope string

// Scopes of a requirement.
const (
	// ScopeCluster applies each series to the cluster that its label names.
	ScopeCluster RequirementScope = "Cluster"
	// ScopeFleet applies the whole result to all clusters, such as a budget or a freeze.
	ScopeFleet RequirementScope = "Fleet"
)

// GateRequirement is met when its query returns a value other than 0. If the query fails, the
// last result counts for maxSampleAgeSeconds. After that workloads wait, until onStale
// applies after unknownAfterSeconds.
type GateRequirement struct {
	// Name of the requirement, which messages and explanations show.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// PromQL query. It may use the variables of spec.queries. If it uses a value of a profile that
	// the job does not have, the requirement does not apply.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// Cluster: each cluster must meet the requirement by itself. Fleet: any series with a value
	// other than 0 meets it for all clusters. Default Cluster.
	// +kubebuilder:default=Cluster
	// +optional
	Scope RequirementScope `json:"scope,omitempty"`
	// What a complete result without a series for a cluster means; for scope Fleet, one without any
	// series. Unmet: the requirement is not met. Met: it is met, as for counters that are born with their
	// first event. Default Unmet.
	// +kubebuilder:default=Unmet
	// +optional
	Absent AbsentRequirement `json:"absent,omitempty"`
}

// AbsentRequirement states what a requirement without a series means.
// +kubebuilder:validation:Enum=Unmet;Met
type AbsentRequirement string

// Meanings of a requirement without a series.
const (
	// AbsentUnmet does not meet the requirement.
	AbsentUnmet AbsentRequirement = "Unmet"
	// AbsentMet meets the requirement.
	AbsentMet AbsentRequirement = "Met"
)

// PrerequisiteKind is a kind of objects that the pods of a workload may refer to.
// +kubebuilder:validation:Enum=Namespace;LocalQueue;ServiceAccount;ConfigMap;Secret;PersistentVolumeClaim;PriorityClass;RuntimeClass;ResourceClaimTemplate
type PrerequisiteKind string

// Kinds of prerequisites.
const (
	PrerequisiteNamespace             PrerequisiteKind = "Namespace"
	PrerequisiteLocalQueue            PrerequisiteKind = "LocalQueue"
	PrerequisiteServiceAccount        PrerequisiteKind = "ServiceAccount"
	PrerequisiteConfigMap             PrerequisiteKind = "ConfigMap"
	PrerequisiteSecret                PrerequisiteKind = "Secret"
	PrerequisitePersistentVolumeClaim PrerequisiteKind = "PersistentVolumeClaim"
	PrerequisitePriorityClass         PrerequisiteKind = "PriorityClass"
	PrerequisiteRuntimeClass          PrerequisiteKind = "RuntimeClass"
	PrerequisiteResourceClaimTemplate PrerequisiteKind = "ResourceClaimTemplate"
)

// GatePrerequisite is one kind of objects that must exist on a worker.
// +kubebuilder:validation:XValidation:rule="has(self.query) || !(self.kind in ['PriorityClass', 'RuntimeClass', 'ResourceClaimTemplate'])",message="query must be set for this kind: neither kube-state-metrics nor Kueue reports such objects"
type GatePrerequisite struct {
	// Kind of the objects. References to them in the pod templates count, except optional ones
	// and those to objects that each cluster creates itself, such as the ServiceAccount default.
	// Namespace is the workload's namespace, LocalQueue its queue.
	Kind PrerequisiteKind `json:"kind"`
	// PromQL query with one series for each existing object: its label name is the object's
	// name, beside the label of the cluster. Select the workload's namespace with $namespace.
	// Without this selection, the query must return at least one series from every cluster
	// that reports the kind. Default: the series of kube-state-metrics, and of Kueue for
	// LocalQueue. PriorityClass, RuntimeClass and ResourceClaimTemplate have no default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Query string `json:"query,omitempty"`
}
