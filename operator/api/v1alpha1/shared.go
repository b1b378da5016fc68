package v1alpha1

// Mode states whether an object acts, or only reports what it would do. All kinds act by default.
// +kubebuilder:validation:Enum=Enforce;Shadow
type Mode string

const (
	// ModeEnforce acts.
	ModeEnforce Mode = "Enforce"
	// ModeShadow reports what it would do, and does nothing.
	ModeShadow Mode = "Shadow"
)

// LocalReference names a cluster-scoped object of this API group.
type LocalReference struct {
	// Name of the referenced object. At most 253 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

const (
	// SourceSecretLabel is the label of Secrets that MetricsSources may use. Its value is
	// "true".
	SourceSecretLabel = "plimsoll.dev/source"
	// SourceHostsAnnotation is the annotation of a Secret with the hosts to which it may be
	// sent: names separated by commas, each exact or "*." and a domain. Without it, a
	// labeled Secret may be sent to every host.
	SourceHostsAnnotation = "plimsoll.dev/source-hosts"
)

// SecretKeyReference names a key of a Secret in the operator's own namespace. The Secret
// must have the label plimsoll.dev/source: "true", and may limit the hosts that receive it
// by the annotation plimsoll.dev/source-hosts. Otherwise everyone who may create a
// MetricsSource could send any Secret to a server of their choice.
type SecretKeyReference struct {
	// Name of the Secret in the operator's namespace. With urlTemplate, {cluster} in the name stands for the name of the ManagedCluster, so that each
	// cluster has its own Secret. The Secret needs the label plimsoll.dev/source: "true".
	// At most 253 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key of the entry in the Secret's data. At most 253 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// Condition types that several kinds share.
const (
	// ConditionReady summarizes the other conditions of an object: True means that the
	// object does its work.
	ConditionReady = "Ready"
	// ConditionQueriesValid is True if every PromQL expression of the object parses.
	ConditionQueriesValid = "QueriesValid"
)
