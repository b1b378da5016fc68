// Package dial reads how a MetricsSource is asked: the configuration of a client, and
// how series name clusters. The controller and the CLI's preview and backtest share it.
package dial

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/config"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// References are all Secret keys that a source names.
func References(spec *v1alpha1.MetricsSourceSpec) []v1alpha1.SecretKeyReference {
	var refs []v1alpha1.SecretKeyReference
	add := func(ref *v1alpha1.SecretKeyReference) {
		if ref != nil {
			refs = append(refs, *ref)
		}
	}
	if t := spec.TLS; t != nil {
		add(t.CA)
		add(t.Cert)
		add(t.Key)
	}
	if a := spec.Auth; a != nil {
		switch {
		case a.Basic != nil:
			add(&a.Basic.Username)
			add(&a.Basic.Password)
		case a.Authorization != nil:
			add(a.Authorization.Credentials)
		case a.OAuth2 != nil:
			add(&a.OAuth2.ClientID)
			add(&a.OAuth2.ClientSecret)
		}
	}
	for i := range spec.Headers {
		add(spec.Headers[i].Secret)
	}
	return refs
}

// Config makes a client's configuration of a source and the Secrets that it names.
func Config(src *v1alpha1.MetricsSource, secrets map[v1alpha1.SecretKeyReference]string, credentialsDir string) (query.Config, error) {
	spec := &src.Spec
	cfg := query.Config{
		Name: src.Name, URL: spec.URL, ClusterLabel: cmp.Or(spec.ClusterMapping.Label, "cluster"),
		HTTP:             config.DefaultHTTPClientConfig,
		Parameters:       parameters(spec),
		Timeout:          timeout(spec),
		MaxConcurrency:   int(cmp.Or(spec.Limits.MaxConcurrency, 4)),
		QueriesPerSecond: int(cmp.Or(spec.Limits.QueriesPerSecond, 20)),
		MaxResponseBytes: cmp.Or(spec.Limits.MaxResponseBytes, 64<<20),
		MaxSeries:        int(cmp.Or(spec.Limits.MaxSeries, 100000)),
	}
	if PerCluster(spec) {
		cfg.URLTemplate = spec.Topology.URLTemplate
	}
	cfg.HTTP.TLSConfig = tlsConfig(spec.TLS, secrets)
	if err := setAuth(&cfg.HTTP, spec.Auth, secrets, credentialsDir); err != nil {
		return query.Config{}, err
	}
	headers, err := headersOf(spec, secrets)
	cfg.HTTP.HTTPHeaders = headers
	return cfg, err
}

func timeout(spec *v1alpha1.MetricsSourceSpec) time.Duration {
	return time.Duration(cmp.Or(spec.Limits.TimeoutSeconds, 10)) * time.Second
}

// PerCluster says that each cluster has its own endpoint.
func PerCluster(spec *v1alpha1.MetricsSourceSpec) bool {
	return spec.Topology != nil && spec.Topology.Type == v1alpha1.TopologyPerCluster
}

// Info says how series name clusters. An endpoint of a cluster's own is named by us.
func Info(src *v1alpha1.MetricsSource) query.SourceInfo {
	m := src.Spec.ClusterMapping
	i := query.SourceInfo{
		Name: src.Name, ClusterLabel: cmp.Or(m.Label, "cluster"), Match: string(cmp.Or(m.Match, v1alpha1.MatchName)), Key: m.Key,
		Partial: src.Spec.Type == v1alpha1.SourceThanos, Timeout: timeout(&src.Spec),
	}
	if PerCluster(&src.Spec) {
		i.Match, i.Key = string(v1alpha1.MatchName), ""
	}
	return i
}

// parameters are what Thanos understands beside Prometheus's own. Partial answers
// are refused: by default Thanos sends them as mere warnings.
func parameters(spec *v1alpha1.MetricsSourceSpec) url.Values {
	if spec.Type != v1alpha1.SourceThanos {
		return nil
	}
	values := url.Values{"dedup": {"true"}, "partial_response": {"false"}}
	if t := spec.Thanos; t != nil {
		if t.Dedup != nil && !*t.Dedup {
			values.Set("dedup", "false")
		}
		if t.MaxSourceResolutionSeconds != nil {
			values.Set("max_source_resolution", (time.Duration(*t.MaxSourceResolutionSeconds) * time.Second).String())
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
			return nil
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

// credentialsFile keeps the path within the directory that the operator allows.
func credentialsFile(dir, path string) (string, error) {
	if dir == "" {
		return "", errors.New("auth.authorization.credentialsFile needs the operator's flag --credentials-dir")
	}
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(dir, path)
	}
	if rel, err := filepath.Rel(dir, full); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("auth.authorization.credentialsFile must lie in %s", dir)
	}
	return filepath.Clean(full), nil
}

func headersOf(spec *v1alpha1.MetricsSourceSpec, secrets map[v1alpha1.SecretKeyReference]string) (*config.Headers, error) {
	headers := map[string]config.Header{}
	for _, h := range spec.Headers {
		value := config.Header{Values: []string{h.Value}}
		if h.Secret != nil {
			value = config.Header{Secrets: []config.Secret{config.Secret(secrets[*h.Secret])}}
		}
		headers[h.Name] = value
	}
	if spec.Tenant != "" {
		name := "X-Scope-OrgID"
		if spec.Type == v1alpha1.SourceThanos {
			name = "THANOS-TENANT"
		}
		headers[name] = config.Header{Values: []string{spec.Tenant}}
	}
	if len(headers) == 0 {
		return nil, nil
	}
	h := &config.Headers{Headers: headers}
	return h, h.Validate()
}
