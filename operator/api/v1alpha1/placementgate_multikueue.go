package v1alpha1

// CredentialsType is the origin of a MultiKueueCluster's kubeconfig.
// +kubebuilder:validation:Enum=Secret;ClusterProfile;Existing
type CredentialsType string

// Origins of credentials.
const (
	// CredentialsSecret names a Secret with a kubeconfig.
	CredentialsSecret CredentialsType = "Secret"
	// CredentialsClusterProfile names a ClusterProfile.
	CredentialsClusterProfile CredentialsType = "ClusterProfile"
	// CredentialsExisting uses MultiKueueClusters that another component creates.
	CredentialsExisting CredentialsType = "Existing"
)

// GateMultiKueue is the MultiKueue configuration that a gate maintains.
type GateMultiKueue struct {
	// Name of the MultiKueueConfig. The gate creates it. It never changes a configuration
	// that it did not create.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigName string `json:"configName"`
	// Credentials of the MultiKueueClusters.
	// +optional
	Credentials Credentials `json:"credentials,omitempty"`
}

// Credentials state how Kueue connects to the workers.
// +kubebuilder:validation:XValidation:rule="!has(self.nameTemplate) || size(self.nameTemplate) == 0 || self.nameTemplate.contains('{cluster}')",message="nameTemplate must contain {cluster}: without it every MultiKueueCluster connects to the same worker"
type Credentials struct {
	// Secret: a Secret with a kubeconfig. ClusterProfile: a ClusterProfile. Existing: another
	// component, such as OCM's kueue add-on, creates the MultiKueueClusters. Default Secret.
	// +kubebuilder:default=Secret
	// +optional
	Type CredentialsType `json:"type,omitempty"`
	// Name of the Secret or ClusterProfile in Kueue's namespace. {cluster} becomes the managed
	// cluster's name. Default {cluster}-kubeconfig for a Secret and {cluster}, as OCM names
	// them, for a ClusterProfile.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NameTemplate string `json:"nameTemplate,omitempty"`
}
