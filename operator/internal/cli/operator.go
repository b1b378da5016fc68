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
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// operatorFlags say how the operator's metrics listener is reached, which also
// serves explanations.
type operatorFlags struct {
	url, tokenFile, ca string
	insecure           bool
}

func (o *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "operator-url", "", "base URL of the operator's metrics listener, such as one that kubectl port-forward gives")
	flags.StringVar(&o.tokenFile, "operator-token-file", "", "file with a bearer token that may get /explain/*")
	flags.StringVar(&o.ca, "operator-ca-file", "", "file with the CA of the listener's certificate")
	flags.BoolVar(&o.insecure, "operator-insecure", false, "accept any certificate of the listener")
}

// explanation by the operator; nil without --operator-url, with what is missing then.
func (o *operatorFlags) explanation(ctx context.Context, wl *kueue.Workload) (*gate.Explanation, string, error) {
	if o.url == "" {
		return nil, "each candidate's room and ledger: they need --operator-url", nil
	}
	url := strings.TrimSuffix(o.url, "/") + "/explain/workload/" + wl.Namespace + "/" + wl.Name
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", usageError{fmt.Errorf("--operator-url: %w", err)}
	}
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, "", fmt.Errorf("--operator-token-file: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	c, err := o.client()
	if err != nil {
		return nil, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", fmt.Errorf("ask the operator: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // what could be read is shown
		return nil, "", fmt.Errorf("the operator answers %s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	e := &gate.Explanation{}
	if err := json.NewDecoder(resp.Body).Decode(e); err != nil {
		return nil, "", fmt.Errorf("the operator's answer: %w", err)
	}
	return e, "", nil
}

func (o *operatorFlags) client() (*http.Client, error) {
	config := &tls.Config{InsecureSkipVerify: o.insecure, MinVersion: tls.VersionTLS12}
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
	return &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}, nil
}
