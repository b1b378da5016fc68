package query

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// ClusterPlaceholder stands in a URL template where the cluster's name goes.
const ClusterPlaceholder = "{cluster}"

var hostPart = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// CheckURL says what is wrong with a base URL.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("url can't be parsed")
	}
	return checkURL(u)
}

func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("url must begin with http:// or https://")
	case u.Host == "":
		return errors.New("url must name a host")
	case u.User != nil:
		return errors.New("url must not hold user or password: set spec.auth")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("url must end with its path")
	}
	return nil
}

// Endpoint sets a cluster's name into a URL template. The name may stand in host
// name and path, where it is escaped, never in scheme or port.
func Endpoint(template, cluster string) (string, error) {
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
		return "", fmt.Errorf("urlTemplate must not hold %s in its port", ClusterPlaceholder)
	}
	if !strings.Contains(name, ClusterPlaceholder) && !strings.Contains(path, ClusterPlaceholder) {
		return "", fmt.Errorf("urlTemplate must hold %s in host name or path", ClusterPlaceholder)
	}
	if !hostPart.MatchString(cluster) {
		return "", fmt.Errorf("cluster name %q can't stand in a URL", cluster)
	}
	full := scheme + "://" + strings.ReplaceAll(name, ClusterPlaceholder, cluster) + port +
		"/" + strings.ReplaceAll(path, ClusterPlaceholder, url.PathEscape(cluster))
	return full, CheckURL(full)
}
