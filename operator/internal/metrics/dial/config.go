// Package dial converts a MetricsSource into the configuration of a query client and into
// the mapping from series to clusters. The operator and the CLI share it.
package dial

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/common/config"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// maxResponseBytes is the maximum size of a response, before and after decompression.
const maxResponseBytes = 64 << 20

// ClientConfig returns the configuration of a query client. secrets must hold the value of
// each of the SecretReferences. credentialsDir is the directory that credential files must
// be in; if it is empty, a source with a credentials file is an error. If the source
// HasClusterCredentials, the caller must set HTTPFor.
func ClientConfig(src *v1alpha1.MetricsSource, secrets map[v1alpha1.SecretKeyReference]string, credentialsDir string) (query.Config, error) {
	spec := &src.Spec
	cfg := query.Config{
		Name: src.Name, URL: spec.URL, URLTemplate: spec.URLTemplate, ClusterLabel: clusterLabel(spec),
		HTTP:             config.DefaultHTTPClientConfig,
		Parameters:       thanosParameters(spec),
		Timeout:          queryTimeout(spec),
		MaxConcurrency:   int(cmp.Or(spec.Advanced.MaxConcurrency, 4)),
		QueriesPerSecond: int(cmp.Or(spec.Advanced.QueriesPerSecond, 20)),
		MaxResponseBytes: maxResponseBytes,
		MaxSeries:        int(cmp.Or(spec.Advanced.MaxSeries, 100000)),
	}
	switch {
	case !HasClusterCredentials(spec):
		var err error
		cfg.HTTP, err = HTTPConfig(spec, secrets, credentialsDir)
		return cfg, err
	case cfg.URLTemplate == "":
		return cfg, fmt.Errorf("%s in the name of a Secret or of a credentials file requires urlTemplate", query.ClusterPlaceholder)
	}
	return cfg, nil
}

// HTTPConfig returns the credentials, headers and TLS settings of requests.
func HTTPConfig(spec *v1alpha1.MetricsSourceSpec, secrets map[v1alpha1.SecretKeyReference]string, credentialsDir string) (config.HTTPClientConfig, error) {
	http := config.DefaultHTTPClientConfig
	http.TLSConfig = tlsConfig(spec.TLS, secrets)
	if err := setAuth(&http, spec.Auth, secrets, credentialsDir); err != nil {
		return http, err
	}
	var err error
	http.HTTPHeaders, err = headers(spec, secrets)
	return http, err
}

func queryTimeout(spec *v1alpha1.MetricsSourceSpec) time.Duration {
	return time.Duration(cmp.Or(spec.Advanced.TimeoutSeconds, 10)) * time.Second
}

// IsPerCluster reports whether each cluster has its own endpoint.
func IsPerCluster(spec *v1alpha1.MetricsSourceSpec) bool {
	return spec.URLTemplate != ""
}

// SourceInfo returns how to interpret the results of a source. If each cluster has its own
// endpoint, the client sets the cluster label itself, to the name of the ManagedCluster.
func SourceInfo(src *v1alpha1.MetricsSource) query.SourceInfo {
	mapping := src.Spec.ClusterMapping
	info := query.SourceInfo{
		Name: src.Name, ClusterLabel: clusterLabel(&src.Spec), Match: string(cmp.Or(mapping.Match, v1alpha1.MatchName)), Key: mapping.Key,
		Partial: src.Spec.Type == v1alpha1.SourceThanos, Timeout: queryTimeout(&src.Spec),
	}
	if IsPerCluster(&src.Spec) {
		info.Match, info.Key = string(v1alpha1.MatchName), ""
	}
	info.Settings = hashSettings(&src.Spec, info)
	return info
}

// hashSettings returns a hash of the settings that select the data of responses, and of the
// mapping to clusters in info. Of Secrets it has the names, and not the values: a rotated token
// reads the same data. Limits, compression and the verification of the server change no data.
func hashSettings(spec *v1alpha1.MetricsSourceSpec, info query.SourceInfo) string {
	settings := struct {
		Type, URL, Template, Label, Match, Key, Tenant string
		Headers                                        []v1alpha1.Header
		Auth                                           *v1alpha1.Auth
		Certificate                                    *v1alpha1.SecretKeyReference
		Parameters                                     string
	}{
		Type: string(cmp.Or(spec.Type, v1alpha1.SourcePrometheus)), URL: spec.URL, Template: spec.URLTemplate, Label: info.ClusterLabel, Match: info.Match, Key: info.Key,
		Tenant: spec.Tenant, Auth: spec.Auth, Parameters: thanosParameters(spec).Encode(),
		Headers: slices.SortedFunc(slices.Values(spec.Headers), func(a, b v1alpha1.Header) int { return strings.Compare(a.Name, b.Name) }),
	}
	if spec.TLS != nil {
		settings.Certificate = spec.TLS.Cert
	}
	text, _ := json.Marshal(settings) // text, numbers and pointers to them can always be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func clusterLabel(spec *v1alpha1.MetricsSourceSpec) string {
	return cmp.Or(spec.ClusterMapping.Label, "cluster")
}

// thanosParameters returns the URL parameters that only Thanos has. They reject partial
// results, which Thanos by default returns with a warning only.
func thanosParameters(spec *v1alpha1.MetricsSourceSpec) url.Values {
	if spec.Type != v1alpha1.SourceThanos {
		return nil
	}
	values := url.Values{"dedup": {"true"}, "partial_response": {"false"}}
	if t := spec.Thanos; t != nil {
		if t.Dedup != nil && !*t.Dedup {
			values.Set("dedup", "false")
		}
		for _, m := range t.StoreMatch {
			values.Add("storeMatch[]", m)
		}
	}
	return values
}

func tlsConfig(t *v1alpha1.TLSConfig, secrets map[v1alpha1.SecretKeyReference]string) config.TLSConfig {
	if t == nil {
		return config.TLSConfig{}
	}
	value := func(ref *v1alpha1.SecretKeyReference) string {
		if ref == nil {
			return ""
		}
		return secrets[*ref]
	}
	return config.TLSConfig{
		CA: value(t.CA), Cert: value(t.Cert), Key: config.Secret(value(t.Key)),
		ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify,
	}
}

func setAuth(h *config.HTTPClientConfig, a *v1alpha1.Auth, secrets map[v1alpha1.SecretKeyReference]string, dir string) error {
	switch {
	case a == nil:
	case a.Basic != nil:
		h.BasicAuth = &config.BasicAuth{Username: secrets[a.Basic.Username], Password: config.Secret(secrets[a.Basic.Password])}
	case a.Authorization != nil:
		auth := &config.Authorization{Type: cmp.Or(a.Authorization.Type, "Bearer")}
		h.Authorization = auth
		if a.Authorization.Credentials != nil {
			auth.Credentials = config.Secret(strings.TrimSpace(secrets[*a.Authorization.Credentials]))
			return checkHeaderValue(secretName(a.Authorization.Credentials), string(auth.Credentials))
		}
		file, err := credentialsFile(dir, a.Authorization.CredentialsFile)
		auth.CredentialsFile = file
		return err
	case a.OAuth2 != nil:
		h.OAuth2 = &config.OAuth2{
			ClientID: secrets[a.OAuth2.ClientID], ClientSecret: config.Secret(secrets[a.OAuth2.ClientSecret]),
			TokenURL: a.OAuth2.TokenURL, Scopes: a.OAuth2.Scopes, EndpointParams: a.OAuth2.EndpointParams,
			TLSConfig: h.TLSConfig,
		}
	}
	return nil
}

// credentialsFile returns the absolute path of a credentials file. The file must be in dir,
// the directory that the operator allows.
func credentialsFile(dir, path string) (string, error) {
	if dir == "" {
		return "", errors.New("auth.authorization.credentialsFile requires the operator flag --credentials-dir")
	}
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(dir, path)
	}
	if rel, err := filepath.Rel(dir, full); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("auth.authorization.credentialsFile must be in %s", dir)
	}
	return filepath.Clean(full), nil
}

// headers returns the additional HTTP headers of each request, the tenant included.
func headers(spec *v1alpha1.MetricsSourceSpec, secrets map[v1alpha1.SecretKeyReference]string) (*config.Headers, error) {
	byName := map[string]config.Header{}
	for _, h := range spec.Headers {
		value, source := config.Header{Values: []string{h.Value}}, "the header "+h.Name
		text := h.Value
		if h.Secret != nil {
			text, source = strings.TrimSpace(secrets[*h.Secret]), secretName(h.Secret)
			value = config.Header{Secrets: []config.Secret{config.Secret(text)}}
		}
		if err := checkHeaderValue(source, text); err != nil {
			return nil, err
		}
		byName[h.Name] = value
	}
	if err := checkHeaderValue("tenant", spec.Tenant); err != nil {
		return nil, err
	}
	if spec.Tenant != "" {
		name := "X-Scope-OrgID"
		if spec.Type == v1alpha1.SourceThanos {
			name = "THANOS-TENANT"
		}
		byName[name] = config.Header{Values: []string{spec.Tenant}}
	}
	if len(byName) == 0 {
		return nil, nil
	}
	h := &config.Headers{Headers: byName}
	return h, h.Validate()
}

// checkHeaderValue returns an error if value can't be the value of an HTTP header. The
// error names the source of the value and never contains it.
func checkHeaderValue(source, value string) error {
	if i := strings.IndexFunc(value, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%s must not contain line breaks or other control characters: character %d is one", source, i+1)
	}
	return nil
}

func secretName(ref *v1alpha1.SecretKeyReference) string {
	return fmt.Sprintf("the key %q of Secret %s", ref.Key, ref.Name)
}
