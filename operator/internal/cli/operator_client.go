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

// operatorHelp explains how to reach the operator. The service proxy of the API server is
// no alternative: it removes the credentials from each request, and the listener requires
// authentication.
const operatorHelp = `The operator serves explanations on its metrics listener. To query the operator:

  kubectl -n plimsoll-system port-forward svc/plimsoll-operator-metrics 8443 &
  kubectl create token SERVICEACCOUNT > token   # bound to ClusterRole plimsoll-explainer
  … --operator-url https://localhost:8443 --token-file token --operator-insecure`

// operatorFlags configure the connection to the metrics listener of the operator.
type operatorFlags struct {
	url, tokenFile, caFile string
	insecure               bool
}

func (o *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "operator-url", "", "base URL of the operator's metrics listener")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a bearer token for --operator-url")
	flags.StringVar(&o.caFile, "operator-ca-file", "", "file with the CA of the listener's certificate")
	flags.BoolVar(&o.insecure, "operator-insecure", false, "accept any certificate of the listener, such as a self-signed one")
}

// errUnknownToOperator means that the operator has no explanation for an object.
var errUnknownToOperator = errors.New("unknown to the operator")

// get decodes the JSON document at path into v. The error is errUnknownToOperator if the
// operator has no such document.
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
	c, err := o.httpClient()
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		var unverified *tls.CertificateVerificationError
		if errors.As(err, &unverified) {
			return fmt.Errorf("query the operator: %w (set its CA with --operator-ca-file, or accept any certificate with --operator-insecure)", err)
		}
		return fmt.Errorf("query the operator: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := checkStatus(resp); err != nil {
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("decode the operator's response to %s: %w", path, err)
	}
	return nil
}

// checkStatus returns an error unless the status is 200.
func checkStatus(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // a truncated body is still a useful message
	text := strings.TrimSpace(string(body))
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return errors.New("the operator rejected the token: set a valid one with --token-file")
	case http.StatusForbidden:
		return errors.New("the token's user may not read the explained object: bind the user to the ClusterRole plimsoll-explainer")
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", errUnknownToOperator, text)
	}
	return fmt.Errorf("the operator responded with status %s: %s", resp.Status, text)
}

func (o *operatorFlags) httpClient() (*http.Client, error) {
	config := &tls.Config{InsecureSkipVerify: o.insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // only with --operator-insecure
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("--operator-ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--operator-ca-file: %s contains no certificate", o.caFile)
		}
	}
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}
	return &http.Client{Timeout: 15 * time.Second, Transport: transport}, nil
}
