package v1alpha1

// LocalReference names a cluster-scoped object of this API group.
type LocalReference struct {
	// Name of the referenced object. At most 253 characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SecretKeyReference names a key of a Secret in the operator's own namespace. Secrets
// of other namespaces can't be referenced: otherwise everyone who may create a
// MetricsSource could send any Secret to a server of their choice.
type SecretKeyReference struct {
	// Name of the Secret in the operator's namespace. At most 253 characters. Required.
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
