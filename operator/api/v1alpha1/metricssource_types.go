package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SourceType selects the request parameters that a server understands.
// +kubebuilder:validation:Enum=Prometheus;Thanos
type SourceType string

const (
	// SourcePrometheus sends only the parameters of the Prometheus HTTP API, which Mimir and other
	// servers have, too.
	SourcePrometheus SourceType = "Prometheus"
	// SourceThanos adds the parameters of Thanos Query, such as deduplication.
	SourceThanos SourceType = "Thanos"
)

// MetricsSourceSpec describes a server and how to query it.
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.urlTemplate)",message="exactly one of url, urlTemplate must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.urlTemplate) || self.urlTemplate.contains('{cluster}')",message="urlTemplate must hold {cluster}"
// +kubebuilder:validation:XValidation:rule="!has(self.thanos) || self.type == 'Thanos'",message="thanos must be set only when type is Thanos"
type MetricsSourceSpec struct {
	// Base URL of the HTTP API of a server with the series of all clusters, with an optional path prefix. For example
	// https://thanos-query.monitoring.svc:9090. Credentials, a query and a fragment are
	// not allowed. Redirects are not followed. The host must not resolve to a link-local
	// or cloud metadata address, and to a loopback address only if the operator runs with
	// --allow-loopback-sources. At most 2048 characters. Exactly one of url and urlTemplate
	// must be set.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+(/[^?#\s]*)?$`
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
	// URL of the endpoint of each ManagedCluster, in which {cluster} stands for its name. The
	// placeholder may be part of the host name and of the path, where it is escaped, but
	// not of the scheme or port. The operator adds the cluster label to the series. The rules of url
	// apply. At most 2048 characters.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+(/[^?#\s]*)?$`
	// +kubebuilder:validation:MaxLength=2048
	URLTemplate string `json:"urlTemplate,omitempty"`
	// Kind of the server: Thanos, or Prometheus for every other server with the HTTP API of
	// Prometheus, such as Mimir. It selects the request parameters and the tenant header.
	// Default Prometheus.
	// +kubebuilder:default=Prometheus
	// +optional
	Type SourceType `json:"type,omitempty"`
	// Rule that maps series to ManagedClusters. By default, the label "cluster" holds
	// the name of the ManagedCluster.
	// +optional
	ClusterMapping ClusterMapping `json:"clusterMapping,omitempty"`
	// TLS settings of the connection. By default, the server's certificate is verified
	// with the system's certificate authorities.
	// +optional
	TLS *TLSConfig `json:"tls,omitempty"`
	// Credentials of requests. By default, requests are not authenticated.
	// +optional
	Auth *Auth `json:"auth,omitempty"`
	// Additional HTTP headers of every request. At most 32. The header Authorization is
	// not allowed here: use spec.auth.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(h, h.name.lowerAscii() != 'authorization')",message="Authorization must be set by spec.auth"
	Headers []Header `json:"headers,omitempty"`
	// Tenant of every request: the header THANOS-TENANT if type is Thanos, and
	// X-Scope-OrgID otherwise. By default, no tenant header is sent. At most 150
	// printable ASCII characters.
	// +optional
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	// +kubebuilder:validation:MaxLength=150
	Tenant string `json:"tenant,omitempty"`
	// Query parameters of Thanos. Allowed only if type is Thanos.
	// +optional
	Thanos *ThanosOptions `json:"thanos,omitempty"`
	// Settings that few sources need: limits of the load on the server and of the series in its responses.
	// +optional
	Advanced AdvancedSource `json:"advanced,omitempty"`
}

// ClusterMatch states what identifies a ManagedCluster in series.
// +kubebuilder:validation:Enum=Name;Label;ClusterClaim
type ClusterMatch string

const (
	// MatchName compares the series label with the name of the ManagedCluster.
	MatchName ClusterMatch = "Name"
	// MatchLabel compares the series label with a label of the ManagedCluster.
	MatchLabel ClusterMatch = "Label"
	// MatchClusterClaim compares the series label with a ClusterClaim.
	MatchClusterClaim ClusterMatch = "ClusterClaim"
)

// ClusterMapping maps series to ManagedClusters.
// +kubebuilder:validation:XValidation:rule="!has(self.match) || self.match == 'Name' || has(self.key)",message="key must name the label or claim when match is not Name"
type ClusterMapping struct {
	// Series label that identifies the cluster. Queries must keep it, as in
	// sum by (cluster) (...). Default "cluster". At most 253 characters.
	// +kubebuilder:default=cluster
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Label string `json:"label,omitempty"`
	// Property of the ManagedCluster that equals the value of the series label: Name,
	// Label or ClusterClaim. If several ManagedClusters share a value, its series are
	// ignored. Default Name.
	// +kubebuilder:default=Name
	// +optional
	Match ClusterMatch `json:"match,omitempty"`
	// Key of the ManagedCluster's label if match is Label, or name of the ClusterClaim
	// if match is ClusterClaim. Ignored if match is Name. At most 317 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`
}

// TLSConfig configures TLS connections to a source.
// +kubebuilder:validation:XValidation:rule="has(self.cert) == has(self.key)",message="cert and key must be set together"
type TLSConfig struct {
	// Certificate authorities that sign the server's certificate, as PEM. Default: the
	// certificate authorities of the operator's system.
	// +optional
	CA *SecretKeyReference `json:"ca,omitempty"`
	// Client certificate, as PEM. Requires key. By default, no client certificate is
	// presented.
	// +optional
	Cert *SecretKeyReference `json:"cert,omitempty"`
	// Private key of the client certificate, as PEM. Requires cert.
	// +optional
	Key *SecretKeyReference `json:"key,omitempty"`
	// Host name in the server's certificate. Default: the host name of the URL. At most
	// 253 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
	// Accept any server certificate. An attacker on the network can then read
	// credentials and change scores. The condition Secure becomes False. Default false.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// Auth configures the credentials of requests. Exactly one method must be set.
// +kubebuilder:validation:XValidation:rule="[has(self.basic), has(self.authorization), has(self.oauth2)].filter(x, x).size() == 1",message="exactly one of basic, authorization, oauth2 must be set"
type Auth struct {
	// User name and password (HTTP basic authentication).
	// +optional
	Basic *BasicAuth `json:"basic,omitempty"`
	// Value of the Authorization header, such as a bearer token.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`
	// OAuth 2.0 client credentials grant.
	// +optional
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
}

// BasicAuth is HTTP basic authentication.
type BasicAuth struct {
	// Secret key with the user name. Required.
	Username SecretKeyReference `json:"username"`
	// Secret key with the password. Required.
	Password SecretKeyReference `json:"password"`
}

// Authorization is authentication by a token. A rotated token takes effect without a
// restart.
// +kubebuilder:validation:XValidation:rule="has(self.credentials) != has(self.credentialsFile)",message="exactly one of credentials, credentialsFile must be set"
type Authorization struct {
	// Authentication scheme, the first word of the Authorization header. Default
	// Bearer. Letters, digits and hyphens, at most 64 characters.
	// +kubebuilder:default=Bearer
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type,omitempty"`
	// Secret key with the token. Exactly one of credentials and credentialsFile must be
	// set.
	// +optional
	Credentials *SecretKeyReference `json:"credentials,omitempty"`
	// Path of a file with the token in the operator's container, such as a projected
	// service account token. The file must be in the directory of the operator's flag
	// --credentials-dir, and relative paths start there. With urlTemplate,
	// {cluster} stands for the name of the ManagedCluster. At most 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CredentialsFile string `json:"credentialsFile,omitempty"`
}

// OAuth2 is the OAuth 2.0 client credentials grant.
type OAuth2 struct {
	// Secret key with the client ID. Required.
	ClientID SecretKeyReference `json:"clientID"`
	// Secret key with the client secret. Required.
	ClientSecret SecretKeyReference `json:"clientSecret"`
	// URL of the token endpoint. At most 2048 characters. Required.
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+([/?][^#\s]*)?$`
	// +kubebuilder:validation:MaxLength=2048
	TokenURL string `json:"tokenURL"`
	// Scopes of the requested token. At most 32, each of at most 256 characters. By
	// default, no scope is requested.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	Scopes []string `json:"scopes,omitempty"`
	// Additional parameters of token requests. At most 16, with keys of at most 128 and
	// values of at most 2048 characters.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && size(self[k]) <= 2048)",message="endpointParams must have keys of at most 128 characters and values of at most 2048"
	EndpointParams map[string]string `json:"endpointParams,omitempty"`
}

// Header is an HTTP header of every request. Exactly one of value and secret must be
// set.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.secret)",message="exactly one of value, secret must be set"
type Header struct {
	// Name of the header: letters, digits and hyphens, at most 128 characters. Required.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// Literal value of the header. At most 4096 printable ASCII characters.
	// +optional
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
	// Secret key with the value of the header.
	// +optional
	Secret *SecretKeyReference `json:"secret,omitempty"`
}

// ThanosOptions are query parameters of Thanos.
type ThanosOptions struct {
	// Merge the series of replicas (parameter dedup). Default true.
	// +kubebuilder:default=true
	// +optional
	Dedup *bool `json:"dedup,omitempty"`
	// Selectors of the stores that queries read (parameter storeMatch[]). At most 16,
	// each of at most 1024 characters. By default, queries read every store.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=1024
	StoreMatch []string `json:"storeMatch,omitempty"`
}

// AdvancedSource bounds the load on a server and the number of series in its responses.
type AdvancedSource struct {
	// Time after which a query fails, in seconds. Default 10, from 1 to 300. All queries of a round
	// together end after 240 s.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Maximum number of concurrent queries to each endpoint. Further queries wait.
	// Default 4, from 1 to 64.
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	MaxConcurrency int32 `json:"maxConcurrency,omitempty"`
	// Maximum rate of queries per second to each endpoint. Further queries wait. Default
	// 20, from 1 to 1000.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	QueriesPerSecond int32 `json:"queriesPerSecond,omitempty"`
	// Maximum number of series in a response. More series fail the query, as do a response of
	// more than 64 MiB and a result of more than 48 MiB in the operator's memory. Default 100000, from 1 to
	// 500000.
	// +kubebuilder:default=100000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500000
	// +optional
	MaxSeries int32 `json:"maxSeries,omitempty"`
}

// Condition types of a MetricsSource, beside ConditionReady. True is the good state of
// each.
const (
	// ConditionReachable is True if the last query succeeded.
	ConditionReachable = "Reachable"
	// ConditionSecure is True if requests are encrypted and certificates are verified.
	ConditionSecure = "Secure"
	// ConditionCompleteResponses is False if responses of the source lack data, such as that
	// of stores which did not respond. Types other than Thanos have it only while it is False.
	ConditionCompleteResponses = "CompleteResponses"
)

// MetricsSourceStatus is the observed state of a MetricsSource.
type MetricsSourceStatus struct {
	// Conditions of the source: Ready, Reachable, Secure, and for Thanos
	// CompleteResponses, which other types have while their responses lack data.
	// True is the good state of each.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Generation of the spec that the conditions refer to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Version of the server, from its build information endpoint. Empty if unknown.
	// +optional
	Version string `json:"version,omitempty"`
	// Time of the last successful query, updated at most once a minute.
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// Message of the last failure. Empty while the source is reachable. At most 1024
	// characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`
}

// MetricsSource is a Prometheus, Thanos or other server with the HTTP API of Prometheus that ScoringPolicies and
// PlacementGates query.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=msrc,categories=plimsoll
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Last success",type=date,JSONPath=`.status.lastSuccessTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MetricsSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Desired state of the source.
	Spec MetricsSourceSpec `json:"spec"`
	// Observed state of the source.
	Status MetricsSourceStatus `json:"status,omitempty"`
}

// MetricsSourceList is a list of MetricsSources.
// +kubebuilder:object:root=true
type MetricsSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MetricsSource `json:"items"`
}
