package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// operatorHelp says how the operator is reached. The API server's service proxy
// would be shorter, but it takes the caller's credentials off each request, and the
// listener answers nobody whom it can't authenticate.
const operatorHelp = `The operator explains itself on its metrics listener. To ask it:

  kubectl -n plimsoll-system port-forward svc/plimsoll-operator-metrics 8443 &
  kubectl create token SERVICEACCOUNT > token   # bound to ClusterRole plimsoll-explainer
  … --operator-url https://localhost:8443 --token-file token --operator-insecure`

// operatorFlags say how the operator's metrics listener is reached, which also
// serves explanations.
type operatorFlags struct {
	url, tokenFile, ca string
	insecure           bool
}

func (o *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "operator-url", "", "base URL of the operator's metrics listener")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a bearer token for --operator-url")
	flags.StringVar(&o.ca, "operator-ca-file", "", "file with the CA of the listener's certificate")
	flags.BoolVar(&o.insecure, "operator-insecure", false, "accept any certificate of the listener, such as the self-signed one")
}

// errUnknown is the operator's answer that it knows no such object.
var errUnknown = errors.New("unknown to the operator")

// get the JSON at path into v.
func (o *operatorFlags) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.url, "/")+path, nil)
	if err != nil {
		return usagef("--operator-url: %w", err)
	}
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		var unverified *tls.CertificateVerificationError
		if errors.As(err, &unverified) {
			return fmt.Errorf("ask the operator: %w (name its CA with --operator-ca-file, or accept it with --operator-insecure)", err)
		}
		return fmt.Errorf("ask the operator: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := refused(resp); err != nil {
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("the operator's answer: %w", err)
	}
	return nil
}

func refused(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // what could be read is shown
	text := strings.TrimSpace(string(body))
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return errors.New("the operator does not know the caller: give a valid token with --token-file")
	case http.StatusForbidden:
		return errors.New("the token's user may not get /explain/*: bind it to the ClusterRole plimsoll-explainer")
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", errUnknown, text)
	}
	return fmt.Errorf("the operator answers %s: %s", resp.Status, text)
}

func (o *operatorFlags) client() (*http.Client, error) {
	config := &tls.Config{InsecureSkipVerify: o.insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // only where the user says so
	if o.ca != "" {
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, fmt.Errorf("--operator-ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("--operator-ca-file holds no certificate")
		}
	}
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}
	return &http.Client{Timeout: 15 * time.Second, Transport: transport}, nil
}
