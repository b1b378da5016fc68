package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SourceType sets the parameters that a server understands, nothing else.
// +kubebuilder:validation:Enum=Prometheus;Thanos;Mimir
type SourceType string

// The types of a source.
const (
	SourcePrometheus SourceType = "Prometheus"
	SourceThanos     SourceType = "Thanos"
	SourceMimir      SourceType = "Mimir"
)

// MetricsSourceSpec says where and how to ask.
// +kubebuilder:validation:XValidation:rule="has(self.url) || (has(self.topology) && self.topology.type == 'PerCluster')",message="url must be set unless topology.type is PerCluster"
// +kubebuilder:validation:XValidation:rule="!has(self.thanos) || self.type == 'Thanos'",message="thanos must be set only when type is Thanos"
type MetricsSourceSpec struct {
	// URL is the base URL of the server's HTTP API; a path prefix is allowed.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
	// +kubebuilder:default=Prometheus
	// +optional
	Type SourceType `json:"type,omitempty"`
	// +optional
	Topology *Topology `json:"topology,omitempty"`
	// +optional
	ClusterMapping ClusterMapping `json:"clusterMapping,omitempty"`
	// +optional
	TLS *TLSConfig `json:"tls,omitempty"`
	// +optional
	Auth *Auth `json:"auth,omitempty"`
	// Headers are sent with every request. Authorization must be set by auth.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(h, h.name.lowerAscii() != 'authorization')",message="Authorization must be set by spec.auth"
	Headers []Header `json:"headers,omitempty"`
	// Tenant is sent as X-Scope-OrgID (Mimir) or THANOS-TENANT (Thanos).
	// +optional
	// +kubebuilder:validation:MaxLength=150
	Tenant string `json:"tenant,omitempty"`
	// +optional
	Thanos *ThanosOptions `json:"thanos,omitempty"`
	// +optional
	Limits Limits `json:"limits,omitempty"`
}

// TopologyType says how many endpoints answer.
// +kubebuilder:validation:Enum=Aggregated;PerCluster
type TopologyType string

// The topologies.
const (
	TopologyAggregated TopologyType = "Aggregated"
	TopologyPerCluster TopologyType = "PerCluster"
)

// Topology of the endpoints: one for all clusters, or one each.
// +kubebuilder:validation:XValidation:rule="self.type != 'PerCluster' || has(self.urlTemplate)",message="urlTemplate must be set when type is PerCluster"
// +kubebuilder:validation:XValidation:rule="!has(self.urlTemplate) || self.urlTemplate.contains('{cluster}')",message="urlTemplate must hold {cluster}"
type Topology struct {
	// +kubebuilder:default=Aggregated
	// +optional
	Type TopologyType `json:"type,omitempty"`
	// URLTemplate holds {cluster} where the managed cluster's name goes. It may
	// stand in host name and path, not in scheme or port, and is path-escaped.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	// +kubebuilder:validation:MaxLength=2048
	URLTemplate string `json:"urlTemplate,omitempty"`
}

// ClusterMatch says what the series label holds.
// +kubebuilder:validation:Enum=Name;Label;ClusterClaim
type ClusterMatch string

// What a series label may hold.
const (
	MatchName         ClusterMatch = "Name"
	MatchLabel        ClusterMatch = "Label"
	MatchClusterClaim ClusterMatch = "ClusterClaim"
)

// ClusterMapping finds the ManagedCluster that a series speaks of.
// +kubebuilder:validation:XValidation:rule="!has(self.match) || self.match == 'Name' || has(self.key)",message="key must name the label or claim when match is not Name"
type ClusterMapping struct {
	// Label of the series that names the cluster.
	// +kubebuilder:default=cluster
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Label string `json:"label,omitempty"`
	// +kubebuilder:default=Name
	// +optional
	Match ClusterMatch `json:"match,omitempty"`
	// Key of the ManagedCluster's label, or name of the ClusterClaim.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`
}

// TLSConfig of the connection.
// +kubebuilder:validation:XValidation:rule="has(self.cert) == has(self.key)",message="cert and key must be set together"
type TLSConfig struct {
	// +optional
	CA *SecretKeyReference `json:"ca,omitempty"`
	// Cert and Key are the client certificate.
	// +optional
	Cert *SecretKeyReference `json:"cert,omitempty"`
	// +optional
	Key *SecretKeyReference `json:"key,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
	// InsecureSkipVerify accepts any certificate; the condition Secure says so.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// Auth of a request; exactly one form.
// +kubebuilder:validation:XValidation:rule="[has(self.basic), has(self.authorization), has(self.oauth2)].filter(x, x).size() == 1",message="exactly one of basic, authorization, oauth2 must be set"
type Auth struct {
	// +optional
	Basic *BasicAuth `json:"basic,omitempty"`
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`
	// +optional
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
}

// BasicAuth by user name and password.
type BasicAuth struct {
	Username SecretKeyReference `json:"username"`
	Password SecretKeyReference `json:"password"`
}

// Authorization by a token that is read again when it rotates.
// +kubebuilder:validation:XValidation:rule="has(self.credentials) != has(self.credentialsFile)",message="exactly one of credentials, credentialsFile must be set"
type Authorization struct {
	// +kubebuilder:default=Bearer
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type,omitempty"`
	// +optional
	Credentials *SecretKeyReference `json:"credentials,omitempty"`
	// CredentialsFile is a path in the operator's container that stands in its
	// flag --credentials-dir, such as a projected service account token.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CredentialsFile string `json:"credentialsFile,omitempty"`
}

// OAuth2 client credentials.
type OAuth2 struct {
	ClientID     SecretKeyReference `json:"clientID"`
	ClientSecret SecretKeyReference `json:"clientSecret"`
	// +kubebuilder:validation:Pattern=`^https?://`
	// +kubebuilder:validation:MaxLength=2048
	TokenURL string `json:"tokenURL"`
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	Scopes []string `json:"scopes,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && size(self[k]) <= 2048)",message="endpointParams must have keys of at most 128 characters and values of at most 2048"
	EndpointParams map[string]string `json:"endpointParams,omitempty"`
}

// Header of a request; exactly one of value and secret.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.secret)",message="exactly one of value, secret must be set"
type Header struct {
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
	// +optional
	Secret *SecretKeyReference `json:"secret,omitempty"`
}

// ThanosOptions are sent to servers of type Thanos.
type ThanosOptions struct {
	// +kubebuilder:default=true
	// +optional
	Dedup *bool `json:"dedup,omitempty"`
	// +optional
	MaxSourceResolution *metav1.Duration `json:"maxSourceResolution,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=1024
	StoreMatch []string `json:"storeMatch,omitempty"`
}

// Limits of what one source may cost.
type Limits struct {
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	MaxConcurrency int32 `json:"maxConcurrency,omitempty"`
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	QueriesPerSecond int32 `json:"queriesPerSecond,omitempty"`
	// +kubebuilder:default=67108864
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1073741824
	// +optional
	MaxResponseBytes int64 `json:"maxResponseBytes,omitempty"`
	// +kubebuilder:default=100000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	// +optional
	MaxSeries int32 `json:"maxSeries,omitempty"`
}

// Condition types of a MetricsSource.
const (
	// ConditionReachable: the source answered its last question.
	ConditionReachable = "Reachable"
	// ConditionSecure is False while certificates are not verified.
	ConditionSecure = "Secure"
	// ConditionPartialResponse: some stores behind the source did not answer.
	ConditionPartialResponse = "PartialResponse"
)

// MetricsSourceStatus is what the last questions showed.
type MetricsSourceStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Version is what the server's buildinfo endpoint says.
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`
}

// MetricsSource is a Prometheus, Thanos or Mimir that policies and gates ask.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=msrc,categories=plimsoll
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].reason`
// +kubebuilder:printcolumn:name="Last success",type=date,JSONPath=`.status.lastSuccessTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MetricsSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MetricsSourceSpec   `json:"spec"`
	Status            MetricsSourceStatus `json:"status,omitempty"`
}

// MetricsSourceList is a list of MetricsSources.
// +kubebuilder:object:root=true
type MetricsSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MetricsSource `json:"items"`
}
