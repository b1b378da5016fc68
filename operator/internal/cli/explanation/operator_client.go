package explanation

import (
	"cmp"
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

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// OperatorHelp explains how the operator is reached. The service proxy of the API server is
// no alternative: it removes the credentials from each request, and the listener requires
// authentication.
const OperatorHelp = `The details come from the operator. The command reaches it through the API server, as
kubectl port-forward does, and with your own token. That needs, in the operator's namespace,
the Role plimsoll-explainer, and for kubeconfigs with a client certificate also
plimsoll-explainer-token. If the operator can't be reached, the output says why, and comes
from the objects on the hub.`

// operatorTimeout is the limit for a request to the operator.
const operatorTimeout = 15 * time.Second

// OperatorFlags configure the connection to the metrics listener of the operator.
type OperatorFlags struct {
	namespace              string
	url, tokenFile, caFile string
	insecure               bool
}

// Add adds the flags to a command.
func (o *OperatorFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "operator-namespace", "plimsoll-system", "namespace of the operator's pods")
	flags.StringVar(&o.url, "operator-url", "", "base URL of the operator's metrics listener, if it does not run as a pod of the hub")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a bearer token for --operator-url")
	flags.StringVar(&o.caFile, "operator-ca-file", "", "file with the CA of the listener's certificate")
	flags.BoolVar(&o.insecure, "operator-insecure", false, "accept any certificate of the listener, such as a self-signed one")
}

// HasAddress reports whether the flags have an address of the operator or a token for it.
func (o *OperatorFlags) HasAddress() bool { return o.url != "" || o.tokenFile != "" }

// errUnknownToOperator means that the operator has no explanation for an object.
var errUnknownToOperator = errors.New("unknown to the operator")

// followerError is the response of a replica that is not the leader. It says where the leader is.
type followerError string

func (e followerError) Error() string { return string(e) }

// isFatal reports whether a failure to get an explanation fails the command: the user has named
// the operator's address, and no operator responds there.
func (o *OperatorFlags) isFatal(err error) bool {
	var follower followerError
	return o.url != "" && !errors.As(err, &follower)
}

// get decodes the JSON document at path into v. The error is errUnknownToOperator if the
// operator has no such document.
func (o *OperatorFlags) get(ctx context.Context, a *command.App, path string, v any) error {
	base := cmp.Or(strings.TrimSuffix(o.url, "/"), "https://"+hubclient.OperatorName)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return command.Usagef("--operator-url: %w", err)
	}
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	open := o.httpClient
	if o.url == "" {
		open = func() (*http.Client, error) { return o.tunnelClient(ctx, a) }
	}
	c, err := open()
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil && o.url == "" {
		return errors.Unwrap(err) // without the URL, which names no host
	}
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
		return errors.New("the operator rejected the token: log in again, or set a valid one with --token-file")
	case http.StatusForbidden:
		return errors.New("the token's user may not read the explained object: bind the user to the ClusterRole plimsoll-explainer")
	case http.StatusMisdirectedRequest:
		return followerError(text)
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", errUnknownToOperator, text)
	}
	return fmt.Errorf("the operator responded with status %s: %s", resp.Status, text)
}

func (o *OperatorFlags) httpClient() (*http.Client, error) {
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
	return &http.Client{Timeout: operatorTimeout, Transport: transport}, nil
}
