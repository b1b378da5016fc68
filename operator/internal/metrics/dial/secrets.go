package dial

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// SecretUse is a key of a Secret that a source refers to, and the host that receives the
// value.
type SecretUse struct {
	Reference v1alpha1.SecretKeyReference
	Host      string
}

// SecretUses returns all keys of Secrets that a source refers to.
func SecretUses(spec *v1alpha1.MetricsSourceSpec) []SecretUse {
	server := hostOf(spec.URL)
	if IsPerCluster(spec) {
		server = hostOf(spec.Topology.URLTemplate)
	}
	var uses []SecretUse
	forEachReference(spec, func(ref *v1alpha1.SecretKeyReference, isForToken bool) {
		host := server
		if isForToken {
			host = hostOf(spec.Auth.OAuth2.TokenURL)
		}
		uses = append(uses, SecretUse{*ref, host})
	})
	return uses
}

// forEachReference calls visit for each reference to a Secret. isForToken is true if the
// value is sent to the token endpoint.
func forEachReference(spec *v1alpha1.MetricsSourceSpec, visit func(ref *v1alpha1.SecretKeyReference, isForToken bool)) {
	add := func(refs ...*v1alpha1.SecretKeyReference) {
		for _, ref := range refs {
			if ref != nil {
				visit(ref, false)
			}
		}
	}
	if t := spec.TLS; t != nil {
		add(t.CA, t.Cert, t.Key)
	}
	if a := spec.Auth; a != nil {
		switch {
		case a.Basic != nil:
			add(&a.Basic.Username, &a.Basic.Password)
		case a.Authorization != nil:
			add(a.Authorization.Credentials)
		case a.OAuth2 != nil:
			visit(&a.OAuth2.ClientID, true)
			visit(&a.OAuth2.ClientSecret, true)
		}
	}
	for i := range spec.Headers {
		add(spec.Headers[i].Secret)
	}
}

// HasClusterCredentials reports whether the name of a Secret or of a credentials file
// contains the cluster placeholder, so that each cluster has its own credentials.
func HasClusterCredentials(spec *v1alpha1.MetricsSourceSpec) bool {
	has := false
	forEachReference(spec, func(ref *v1alpha1.SecretKeyReference, _ bool) {
		has = has || strings.Contains(ref.Name, query.ClusterPlaceholder)
	})
	if a := spec.Auth; a != nil && a.Authorization != nil {
		has = has || strings.Contains(a.Authorization.CredentialsFile, query.ClusterPlaceholder)
	}
	return has
}

// ForCluster returns the spec with the URL and the credentials of one cluster.
func ForCluster(spec *v1alpha1.MetricsSourceSpec, cluster string) (*v1alpha1.MetricsSourceSpec, error) {
	expanded := spec.DeepCopy()
	var err error
	if expanded.URL, err = query.ExpandURL(spec.Topology.URLTemplate, cluster); err != nil {
		return nil, err
	}
	expanded.Topology = nil
	forEachReference(expanded, func(ref *v1alpha1.SecretKeyReference, _ bool) {
		ref.Name = strings.ReplaceAll(ref.Name, query.ClusterPlaceholder, cluster)
	})
	if a := expanded.Auth; a != nil && a.Authorization != nil {
		a.Authorization.CredentialsFile = strings.ReplaceAll(a.Authorization.CredentialsFile, query.ClusterPlaceholder, cluster)
	}
	return expanded, nil
}

// CheckSecret returns an error if a Secret with these labels and annotations must not be
// sent to the host. Without the label, a source could name any Secret of the operator's
// namespace.
func CheckSecret(labels, annotations map[string]string, host string) error {
	if labels[v1alpha1.SourceSecretLabel] != "true" {
		return errors.New("it has no label " + v1alpha1.SourceSecretLabel + `: "true", which permits its use by MetricsSources`)
	}
	hosts, isLimited := annotations[v1alpha1.SourceHostsAnnotation]
	if !isLimited {
		return nil
	}
	for pattern := range strings.FieldsFuncSeq(hosts, func(r rune) bool { return r == ',' || r == ' ' }) {
		if matchesHost(strings.ToLower(pattern), host) {
			return nil
		}
	}
	return fmt.Errorf("its annotation %s does not contain the host %s", v1alpha1.SourceHostsAnnotation, host)
}

// matchesHost reports whether host equals the pattern, or is below it if the pattern
// begins with "*.".
func matchesHost(pattern, host string) bool {
	suffix, isWildcard := strings.CutPrefix(pattern, "*")
	if isWildcard {
		return strings.HasPrefix(suffix, ".") && strings.HasSuffix(host, suffix)
	}
	return host == pattern
}

// hostOf returns the host name of a URL or URL template in lower case, without the port.
func hostOf(raw string) string {
	const standIn = "cluster-placeholder"
	u, err := url.Parse(strings.ReplaceAll(raw, query.ClusterPlaceholder, standIn))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(u.Hostname()), standIn, query.ClusterPlaceholder)
}
