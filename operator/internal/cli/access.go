package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/common/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// access are the flags that say how a metrics source is reached, in place of what a
// MetricsSource says. Credentials are files: what stands on a command line, others see.
type access struct {
	kind, label, tenant      string
	headers                  []string
	bearerFile               string
	basicUser, basicFile     string
	ca, cert, key, tlsServer string
	skipVerify               bool
}

var sourceTypes = []string{string(v1alpha1.SourcePrometheus), string(v1alpha1.SourceThanos), string(v1alpha1.SourceMimir)}

func (f *access) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kind, "source-type", "", "one of "+strings.Join(sourceTypes, "|"))
	flags.StringVar(&f.label, "cluster-label", "", `label by which series name clusters (default "cluster")`)
	flags.StringVar(&f.tenant, "tenant", "", "tenant of Mimir or Thanos")
	flags.StringArrayVar(&f.headers, "header", nil, "NAME=VALUE to send with every question")
	flags.StringVar(&f.bearerFile, "bearer-token-file", "", "file with a bearer token")
	flags.StringVar(&f.basicUser, "basic-user", "", "user name for basic authentication")
	flags.StringVar(&f.basicFile, "basic-password-file", "", "file with the password of --basic-user")
	flags.StringVar(&f.ca, "tls-ca", "", "file with the CA of the server's certificate")
	flags.StringVar(&f.cert, "tls-cert", "", "file with a client certificate")
	flags.StringVar(&f.key, "tls-key", "", "file with the key of --tls-cert")
	flags.StringVar(&f.tlsServer, "tls-server", "", "name that the server's certificate must bear")
	flags.BoolVar(&f.skipVerify, "tls-skip-verify", false, "accept any certificate of the server")
}

// completeSourceType after the flag was added.
func completeSourceType(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("source-type", cobra.FixedCompletions(sourceTypes, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

func (f *access) check() error {
	switch {
	case f.kind != "" && !slices.Contains(sourceTypes, f.kind):
		return usagef("--source-type must be one of %s, not %q", strings.Join(sourceTypes, "|"), f.kind)
	case (f.basicUser == "") != (f.basicFile == ""):
		return usagef("--basic-user and --basic-password-file must be set together")
	case f.basicUser != "" && f.bearerFile != "":
		return usagef("--basic-user and --bearer-token-file exclude each other")
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key must be set together")
	}
	return nil
}

// override what the spec says with what the flags say.
func (f *access) override(spec *v1alpha1.MetricsSourceSpec) error {
	if f.kind != "" {
		spec.Type = v1alpha1.SourceType(f.kind)
	}
	if f.label != "" {
		spec.ClusterMapping.Label = f.label
	}
	if f.tenant != "" {
		spec.Tenant = f.tenant
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return usagef("--header must be NAME=VALUE")
		}
		spec.Headers = append(slices.DeleteFunc(spec.Headers, func(h v1alpha1.Header) bool { return strings.EqualFold(h.Name, name) }), v1alpha1.Header{Name: name, Value: value})
	}
	if f.bearerFile != "" || f.basicUser != "" {
		spec.Auth = nil
	}
	if a := spec.Auth; a != nil && a.Authorization != nil && a.Authorization.CredentialsFile != "" {
		return fmt.Errorf("auth.authorization.credentialsFile %s is in the operator's container: give --bearer-token-file", a.Authorization.CredentialsFile)
	}
	if t := spec.TLS; t != nil {
		if f.ca != "" {
			t.CA = nil
		}
		if f.cert != "" {
			t.Cert, t.Key = nil, nil
		}
	}
	return nil
}

// apply the files to a client's configuration. Credentials are read here, so that the
// client knows what to hide in answers that repeat them.
func (f *access) apply(h *config.HTTPClientConfig) error {
	secret := func(file string) (config.Secret, error) {
		content, err := os.ReadFile(file)
		return config.Secret(strings.TrimSpace(string(content))), err
	}
	var err error
	if f.bearerFile != "" {
		h.Authorization = &config.Authorization{Type: "Bearer"}
		h.Authorization.Credentials, err = secret(f.bearerFile)
	}
	if f.basicUser != "" {
		h.BasicAuth = &config.BasicAuth{Username: f.basicUser}
		h.BasicAuth.Password, err = secret(f.basicFile)
	}
	if f.ca != "" {
		h.TLSConfig.CAFile = f.ca
	}
	if f.cert != "" {
		h.TLSConfig.CertFile, h.TLSConfig.KeyFile = f.cert, f.key
	}
	if f.tlsServer != "" {
		h.TLSConfig.ServerName = f.tlsServer
	}
	h.TLSConfig.InsecureSkipVerify = h.TLSConfig.InsecureSkipVerify || f.skipVerify
	return err
}
