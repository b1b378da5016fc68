package prometheus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// installations are the labels of Services in front of Thanos and Prometheus, as charts and operators set them. Those that
// see more clusters come first. The Prometheus Operator sets the last one for each Prometheus object.
var installations = []labels.Set{
	{"app.kubernetes.io/name": "thanos", "app.kubernetes.io/component": "query-frontend"},
	{"app.kubernetes.io/name": "thanos", "app.kubernetes.io/component": "query"},
	{"app.kubernetes.io/name": "thanos-query"},
	{"app": "thanos-query"},
	{"app": "thanos-querier"},
	{"app": "kube-prometheus-stack-prometheus"},
	{"app": "rancher-monitoring-prometheus"},
	{"app": "prometheus-operator-prometheus"},
	{"app": "prometheus-prometheus"},
	{"app": "prometheus-server"},
	{"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "server"},
	{"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "prometheus"},
	{"app": "prometheus", "component": "server"},
	{"operated-prometheus": "true"},
}

// service is a port of a Service in the cluster of the kubeconfig. The API server connects to it, with the rights of the
// kubeconfig's user, so that no port needs to be forwarded.
type service struct{ scheme, namespace, name, port, path string }

// String returns the Service as --prometheus takes it.
func (s service) String() string { return s.namespace + "/" + s.name + ":" + s.port }

// url returns the address for pods of the cluster.
func (s service) url() string {
	return fmt.Sprintf("%s://%s.%s.svc:%s%s", s.scheme, s.name, s.namespace, s.port, s.path)
}

// parseService reads NAMESPACE/NAME:PORT.
func parseService(text string) (service, bool) {
	namespace, rest, slash := strings.Cut(text, "/")
	name, port, colon := strings.Cut(rest, ":")
	ok := slash && colon && namespace != "" && name != "" && port != "" && !strings.ContainsAny(text, "{}. ") && !strings.ContainsAny(port, "/:")
	return service{"http", namespace, name, port, ""}, ok
}

// isAddress reports whether a text is a URL or a Service.
func isAddress(text string) bool {
	_, isService := parseService(text)
	return isService || strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// serviceOf returns the Service that an address for pods names, as NAME.NAMESPACE.svc, or as NAME.NAMESPACE if such a Service
// exists. It returns false for other addresses.
func serviceOf(ctx context.Context, a *command.App, address string) (service, bool) {
	u, err := url.Parse(address)
	if err != nil || net.ParseIP(u.Hostname()) != nil || strings.Contains(u.Path, "..") {
		return service{}, false
	}
	parts := strings.Split(u.Hostname(), ".")
	if len(parts) < 2 || len(parts) > 2 && parts[2] != "svc" {
		return service{}, false
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	s := service{u.Scheme, parts[1], parts[0], port, strings.TrimSuffix(u.Path, "/")}
	return s, len(parts) > 2 || s.exists(ctx, a)
}

// exists is false if the cluster has no such Service: an address with two labels can be that of another host.
func (s service) exists(ctx context.Context, a *command.App) bool {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return false
	}
	return !apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, &corev1.Service{}))
}

// isInCluster is true in a pod of the cluster that the kubeconfig names: there, Services are reached at their addresses.
func isInCluster(a *command.App) bool {
	host, ok := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	if !ok {
		return false
	}
	cfg, err := hubclient.RESTConfig(a)
	return err == nil && strings.Contains(cfg.Host, host)
}

// connect returns the address of the Service at the API server, and a transport with the credentials of the kubeconfig.
func (s service) connect(a *command.App) (string, http.RoundTripper, error) {
	cfg, err := hubclient.RESTConfig(a)
	if err != nil {
		return "", nil, fmt.Errorf("Service %s is reached through the API server: %w", s, err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return "", nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return "", nil, err
	}
	base := server.JoinPath("api/v1/namespaces", s.namespace, "services", s.scheme+":"+s.name+":"+s.port, "proxy", s.path)
	return base.String(), &statusTransport{transport}, nil
}

// statusTransport turns errors of the API server into those of Prometheus, so that users read them.
type statusTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *statusTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	status := metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		resp.Header.Set("Content-Type", "application/json")
		body, err = json.Marshal(map[string]string{"status": "error", "errorType": "proxy", "error": status.Message})
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, err
}

// find sets the address of the source, unless the command line or a MetricsSource names one: it is that of a Service of the
// cluster with the labels of a known installation.
func (f *Flags) find(ctx context.Context, a *command.App, spec *v1alpha1.MetricsSourceSpec) (others []string, err error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, fmt.Errorf("--prometheus is not set, and can't be found: %w", err)
	}
	list := &corev1.ServiceList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("--prometheus is not set, and can't be found: %w", hubclient.Reading("Services", err))
	}
	var found []service
	for _, set := range installations {
		for i := range list.Items {
			s := &list.Items[i]
			port := httpPort(s)
			if port == nil || s.Spec.Type == corev1.ServiceTypeExternalName || !set.AsSelector().Matches(labels.Set(s.Labels)) {
				continue
			}
			scheme := "http"
			if port.Name == "https" || port.Port == 443 || ptr.Deref(port.AppProtocol, "") == "https" {
				scheme = "https"
			}
			found = append(found, service{scheme, s.Namespace, s.Name, strconv.Itoa(int(port.Port)), ""})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no Prometheus or Thanos was found: no MetricsSource of the hub applies, and no Service of the cluster has the labels of a known installation: set --prometheus")
	}
	spec.URL = found[0].url()
	for _, other := range found[1:] {
		if !slices.Contains(others, other.String()) && other != found[0] {
			others = append(others, other.String())
		}
	}
	return others, nil
}

// httpPort returns the port of a Service on which it answers queries, or nil.
func httpPort(s *corev1.Service) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; (strings.Contains(p.Name, "http") || strings.Contains(p.Name, "web")) && !isSidecar(s, p) {
			return p
		}
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; slices.Contains([]int32{80, 9090, 10902}, p.Port) && !isSidecar(s, p) {
			return p
		}
	}
	return nil
}

// isSidecar is true for the port of the Thanos sidecar beside a Prometheus, which answers no queries.
func isSidecar(s *corev1.Service, p *corev1.ServicePort) bool {
	return p.Port == 10902 && strings.Contains(s.Labels["app"], "prometheus")
}

// route returns how to reach the source, and a nil transport if its own address is reachable. An address of a MetricsSource
// is for pods of the hub: from outside, its Services are reached through the API server.
func (f *Flags) route(ctx context.Context, a *command.App, src *v1alpha1.MetricsSource) (address string, transport http.RoundTripper, err error) {
	spec := &src.Spec
	named, isService := parseService(f.URL)
	if spec.URLTemplate != "" || spec.URL != "" && !isService && isInCluster(a) {
		return spec.URL, nil, nil
	}
	how := "of MetricsSource " + src.Name
	switch {
	case isService:
		spec.URL, how = named.url(), "of --prometheus"
	case f.URL != "":
		return spec.URL, nil, nil
	case spec.URL == "":
		others, err := f.find(ctx, a, spec)
		if err != nil {
			return "", nil, err
		}
		how = "which was found by its labels"
		if len(others) > 0 {
			how += "; --prometheus NAMESPACE/NAME:PORT chooses another, such as " + format.Abbreviate(others)
		}
	}
	s, ok := serviceOf(ctx, a, spec.URL)
	if !ok {
		if u, err := url.Parse(spec.URL); err == nil && !strings.ContainsAny(u.Hostname(), ".:") && u.Hostname() != "localhost" {
			return "", nil, fmt.Errorf("only pods of the hub reach the address %s of MetricsSource %s: set --prometheus to one that you reach, or to NAMESPACE/NAME:PORT of its Service", spec.URL, src.Name)
		}
		return spec.URL, nil, nil
	}
	if err := f.checkProxied(s, spec); err != nil {
		return "", nil, err
	}
	spec.TLS = nil // the API server verifies no certificates of Services
	_, _ = fmt.Fprintf(a.ErrOut, "queries go through the API server to Service %s, %s\n", s, how)
	return s.connect(a)
}

// checkProxied returns an error if the source needs what a connection of the API server to a Service does not have.
func (f *Flags) checkProxied(s service, spec *v1alpha1.MetricsSourceSpec) error {
	switch {
	case spec.Auth != nil || f.bearerFile != "" || f.basicUser != "" || f.certFile != "":
		return fmt.Errorf("Service %s needs credentials, which the API server does not pass on: set --prometheus to the URL of a forwarded port, and flags for the credentials", s)
	case f.caFile != "" || f.serverName != "" || f.skipVerify:
		return fmt.Errorf("--tls-ca, --tls-server and --tls-skip-verify do not apply to Service %s: the API server connects to it, and verifies no certificates of Services: leave them out, or set --prometheus to the URL of a forwarded port", s)
	}
	return nil
}
