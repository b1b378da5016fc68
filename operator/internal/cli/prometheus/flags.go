// Package prometheus connects to the source of --prometheus: flags, credentials, and the clusters that
// its series name.
package prometheus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/config"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/dial"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Help describes where queries go, in the help of a command.
const Help = `Queries go to --prometheus. Without it, they go to the MetricsSource of the hub, and else to a Service in
the cluster of the kubeconfig that looks like Thanos or Prometheus. Services are reached through the API
server, which needs the right to get and create services/proxy; no port needs to be forwarded.`

// Flags configure the connection to a metrics source. They override a
// MetricsSource. Credentials are read from files, because other users can see the command
// line of a process.
type Flags struct {
	URL                       string
	hubSource                 string        // name of a MetricsSource of the hub
	Timeout                   time.Duration // of one query; 0 keeps the limit of the source
	sourceType, Label, tenant string
	headers                   []string
	bearerFile                string
	basicUser, basicFile      string
	caFile, certFile, keyFile string
	serverName                string
	skipVerify                bool
}

var sourceTypes = []string{string(v1alpha1.SourcePrometheus), string(v1alpha1.SourceThanos)}

// Add adds all flags except --timeout and --source, which not all commands share.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.URL, "prometheus", "", "URL of Prometheus, Thanos Query or Mimir, in which {cluster} stands for the name of each cluster, or NAMESPACE/NAME:PORT of a Service")
	flags.StringVar(&f.sourceType, "source-type", "", "type of the source: one of "+strings.Join(sourceTypes, "|"))
	flags.StringVar(&f.Label, "cluster-label", "", `label of a series that identifies its cluster (default "cluster")`)
	flags.StringVar(&f.tenant, "tenant", "", "tenant of Mimir or Thanos")
	flags.StringArrayVar(&f.headers, "header", nil, "NAME=VALUE of an HTTP header to send with every query")
	flags.StringVar(&f.bearerFile, "bearer-token-file", "", "file with a bearer token")
	flags.StringVar(&f.basicUser, "basic-user", "", "user name for basic authentication")
	flags.StringVar(&f.basicFile, "basic-password-file", "", "file with the password of --basic-user")
	flags.StringVar(&f.caFile, "tls-ca", "", "file with the CA of the server's certificate")
	flags.StringVar(&f.certFile, "tls-cert", "", "file with a client certificate")
	flags.StringVar(&f.keyFile, "tls-key", "", "file with the key of --tls-cert")
	flags.StringVar(&f.serverName, "tls-server", "", "host name to expect in the server's certificate")
	flags.BoolVar(&f.skipVerify, "tls-skip-verify", false, "accept any certificate of the server")
	_ = cmd.RegisterFlagCompletionFunc("source-type", cobra.FixedCompletions(sourceTypes, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

// Check returns a usage error if flags contradict each other.
func (f *Flags) Check() error {
	switch {
	case f.Timeout < 0:
		return command.Usagef("--timeout must not be negative, is %s", f.Timeout)
	case f.URL != "" && !isAddress(f.URL):
		return command.Usagef("--prometheus must be a URL with http:// or https://, or NAMESPACE/NAME:PORT of a Service, not %q", f.URL)
	case f.sourceType != "" && !slices.Contains(sourceTypes, f.sourceType):
		return command.Usagef("--source-type must be one of %s, not %q", strings.Join(sourceTypes, "|"), f.sourceType)
	case (f.basicUser == "") != (f.basicFile == ""):
		return command.Usagef("--basic-user and --basic-password-file must be set together")
	case f.basicUser != "" && f.bearerFile != "":
		return command.Usagef("--basic-user and --bearer-token-file exclude each other")
	case (f.certFile == "") != (f.keyFile == ""):
		return command.Usagef("--tls-cert and --tls-key must be set together")
	}
	return nil
}

// Source is a connected metrics source.
type Source struct {
	Client *query.Client
	Info   query.SourceInfo
	Spec   *v1alpha1.MetricsSourceSpec
}

// Connect returns a client of src with the overrides of the flags. src may be nil. Without an address, the source is a
// Service of the cluster. secrets must hold all values that src refers to.
func (f *Flags) Connect(ctx context.Context, a *command.App, src *v1alpha1.MetricsSource, secrets map[v1alpha1.SecretKeyReference]string) (*Source, error) {
	if src == nil {
		src = &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "flags"}}
	}
	if err := f.override(&src.Spec); err != nil {
		return nil, err
	}
	address, transport, err := f.route(ctx, a, src)
	if err != nil {
		return nil, err
	}
	if err := checkSecrets(src.Name, &src.Spec, secrets); err != nil {
		return nil, err
	}
	cfg, err := dial.ClientConfig(src, secrets, "")
	if err != nil {
		return nil, err
	}
	if dial.HasClusterCredentials(&src.Spec) {
		cfg.HTTPFor = func(_ context.Context, cluster string) (config.HTTPClientConfig, error) {
			expanded, err := dial.ForCluster(&src.Spec, cluster)
			if err != nil {
				return config.HTTPClientConfig{}, err
			}
			if err := checkSecrets(src.Name, expanded, secrets); err != nil {
				return config.HTTPClientConfig{}, err
			}
			return dial.HTTPConfig(expanded, secrets, "")
		}
	}
	cfg.URL, cfg.Transport = address, transport
	// Users query through port forwards, and see every label.
	cfg.AllowLoopback, cfg.AllLabels = true, true
	cfg.Clusters = func(ctx context.Context) ([]string, error) { return hubClusterNames(ctx, a) }
	if err := f.readCredentials(&cfg.HTTP); err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(f.Timeout, cfg.Timeout)
	if cfg.HTTP.TLSConfig.InsecureSkipVerify {
		_, _ = fmt.Fprintln(a.ErrOut, "warning: server certificates are not verified: an attacker on the network can read credentials and falsify scores")
	}
	client, err := query.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Source{Client: client, Info: dial.SourceInfo(src), Spec: &src.Spec}, nil
}

// hubClusterNames returns the names of the hub's clusters, for a source with one endpoint per
// cluster.
func hubClusterNames(ctx context.Context, a *command.App) ([]string, error) {
	managed, err := hubclient.ListManagedClusters(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("each cluster has its own endpoint, and the clusters of the hub can't be read: %w", err)
	}
	if len(managed) == 0 {
		return nil, errors.New("each cluster has its own endpoint, and the hub has no accepted ManagedCluster")
	}
	return hubstate.SelectNames(managed, nil)
}

// checkSecrets returns an error if secrets lacks a value that the spec refers to, except
// those that depend on the cluster.
func checkSecrets(source string, spec *v1alpha1.MetricsSourceSpec, secrets map[v1alpha1.SecretKeyReference]string) error {
	for _, use := range dial.SecretUses(spec) {
		ref := use.Reference
		if _, ok := secrets[ref]; !ok && !strings.Contains(ref.Name, query.ClusterPlaceholder) {
			return fmt.Errorf("MetricsSource %s needs key %q of Secret %q: pass a file with the Secret to -f, or set the credentials with flags", source, ref.Key, ref.Name)
		}
	}
	return nil
}

// Address returns the URL or URL template of the source.
func (s *Source) Address() string { return cmp.Or(s.Spec.URLTemplate, s.Spec.URL) }

// override applies the flags to the spec of a MetricsSource.
func (f *Flags) override(spec *v1alpha1.MetricsSourceSpec) error {
	switch {
	case strings.Contains(f.URL, query.ClusterPlaceholder):
		spec.URL, spec.URLTemplate = "", f.URL
	case f.URL != "":
		spec.URL, spec.URLTemplate = f.URL, "" // route replaces NAMESPACE/NAME:PORT
	}
	if f.sourceType != "" {
		spec.Type = v1alpha1.SourceType(f.sourceType)
	}
	if f.Label != "" {
		spec.ClusterMapping.Label = f.Label
	}
	if f.tenant != "" {
		spec.Tenant = f.tenant
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return command.Usagef("--header must be NAME=VALUE")
		}
		spec.Headers = append(slices.DeleteFunc(spec.Headers, func(h v1alpha1.Header) bool { return strings.EqualFold(h.Name, name) }), v1alpha1.Header{Name: name, Value: value})
	}
	return f.overrideCredentials(spec)
}

// overrideCredentials removes the credentials that flags replace.
func (f *Flags) overrideCredentials(spec *v1alpha1.MetricsSourceSpec) error {
	if f.bearerFile != "" || f.basicUser != "" {
		spec.Auth = nil
	}
	if a := spec.Auth; a != nil && a.Authorization != nil && a.Authorization.CredentialsFile != "" {
		return fmt.Errorf("auth.authorization.credentialsFile %s is in the operator's container: set --bearer-token-file", a.Authorization.CredentialsFile)
	}
	if t := spec.TLS; t != nil {
		if f.caFile != "" {
			t.CA = nil
		}
		if f.certFile != "" {
			t.Cert, t.Key = nil, nil
		}
	}
	return nil
}

// readCredentials reads the credential files into the configuration of an HTTP client.
// The client gets the values instead of the file names, so that it can redact them in
// responses.
func (f *Flags) readCredentials(h *config.HTTPClientConfig) error {
	var errs []error
	read := func(file string) config.Secret {
		content, err := os.ReadFile(file)
		errs = append(errs, err)
		return config.Secret(strings.TrimSpace(string(content)))
	}
	if f.bearerFile != "" {
		h.Authorization = &config.Authorization{Type: "Bearer", Credentials: read(f.bearerFile)}
	}
	if f.basicUser != "" {
		h.BasicAuth = &config.BasicAuth{Username: f.basicUser, Password: read(f.basicFile)}
	}
	if f.caFile != "" {
		h.TLSConfig.CAFile = f.caFile
	}
	if f.certFile != "" {
		h.TLSConfig.CertFile, h.TLSConfig.KeyFile = f.certFile, f.keyFile
	}
	if f.serverName != "" {
		h.TLSConfig.ServerName = f.serverName
	}
	h.TLSConfig.InsecureSkipVerify = h.TLSConfig.InsecureSkipVerify || f.skipVerify
	return errors.Join(errs...)
}
