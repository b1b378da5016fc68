package query

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// ClusterPlaceholder is replaced by the name of a cluster in a URL template.
const ClusterPlaceholder = "{cluster}"

var hostPart = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// CheckURL returns an error if raw is not a valid base URL. The error never contains the
// URL, which can hold a password.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("url can't be parsed")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("url must begin with http:// or https://")
	case u.Host == "":
		return errors.New("url must name a host")
	case u.User != nil:
		return errors.New("url must not contain a user or password: set spec.auth")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("url must not have a query or fragment")
	}
	return nil
}

// ExpandURL replaces ClusterPlaceholder in a URL template with the name of a cluster. The
// placeholder is allowed in the host name and in the path, where the name is escaped, but
// not in the scheme or the port.
func ExpandURL(template, cluster string) (string, error) {
	scheme, rest, ok := strings.Cut(template, "://")
	if !ok || strings.Contains(scheme, ClusterPlaceholder) {
		return "", errors.New("urlTemplate must begin with http:// or https://")
	}
	host, path, _ := strings.Cut(rest, "/")
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i:]
	}
	if strings.Contains(port, ClusterPlaceholder) {
		return "", fmt.Errorf("urlTemplate must not contain %s in its port", ClusterPlaceholder)
	}
	if !strings.Contains(name, ClusterPlaceholder) && !strings.Contains(path, ClusterPlaceholder) {
		return "", fmt.Errorf("urlTemplate must contain %s in its host name or path", ClusterPlaceholder)
	}
	if !hostPart.MatchString(cluster) {
		return "", fmt.Errorf("cluster name %q can't be part of a URL", cluster)
	}
	expanded := scheme + "://" + strings.ReplaceAll(name, ClusterPlaceholder, cluster) + port +
		"/" + strings.ReplaceAll(path, ClusterPlaceholder, url.PathEscape(cluster))
	return expanded, CheckURL(expanded)
}
