package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// administrator is the user of the clusters' kubeconfigs.
const administrator = "lab-admin"

// scraper is the user that the lab's Prometheus authenticates as.
const scraper = "lab-prometheus"

// Cluster is one control plane of the fleet.
type Cluster struct {
	Name       string
	Kubeconfig string // path of the administrator's kubeconfig
	Config     *rest.Config
	Client     client.WithWatch // knows the kinds of Scheme
	Prometheus string           // base URL

	server string            // https://127.0.0.1:port
	tokens map[string]string // bearer tokens by user
	fleet  *Fleet
	// writeKueueConfig writes Kueue's configuration with these further sections.
	writeKueueConfig func(sections string) error
}

// startControlPlane runs a kube-apiserver on the shared etcd, and the controllers
// that the cluster needs: garbage collection on all clusters, jobs and scheduling
// on workers.
func (f *Fleet) startControlPlane(ctx context.Context, name string) (*Cluster, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, fleet: f, server: fmt.Sprintf("https://127.0.0.1:%d", port),
		tokens: map[string]string{scraper: newToken()}}
	dir := filepath.Join(f.opts.Dir, "pki", name)
	if err := c.writeIdentities(dir); err != nil {
		return nil, fmt.Errorf("identities of %s: %w", name, err)
	}
	apiserver, err := c.apiserver(dir, port)
	if err != nil {
		return nil, err
	}
	if name == Hub && f.opts.Audit {
		audit, err := f.auditArgs(dir)
		if err != nil {
			return nil, err
		}
		apiserver.args = append(apiserver.args, audit...)
	}
	if err := f.procs.Run(ctx, apiserver); err != nil {
		return nil, err
	}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, err
	}
	c.Config.QPS, c.Config.Burst = 200, 400
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: Scheme}); err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	controllers := "garbage-collector-controller,namespace-controller"
	if name != Hub {
		controllers += ",job-controller,node-lifecycle-controller,serviceaccount-controller,serviceaccount-token-controller,pod-garbage-collector-controller,taint-eviction-controller,daemonset-controller,clusterrole-aggregation-controller"
	}
	if err := c.startController(ctx, "kube-controller-manager", "--controllers="+controllers,
		"--service-account-private-key-file="+filepath.Join(dir, "sa.key"), "--concurrent-gc-syncs=5"); err != nil {
		return nil, err
	}
	if name == Hub {
		return c, nil
	}
	return c, c.startScheduler(ctx)
}

// writeIdentities creates the serving certificate, the administrator's kubeconfig,
// the key of service account tokens and the tokens for scraping.
func (c *Cluster) writeIdentities(dir string) error {
	f := c.fleet
	serving, err := f.ca.issue("kube-apiserver", nil, "kubernetes.default.svc")
	if err != nil {
		return err
	}
	sa, err := f.ca.issue("service-accounts", nil)
	if err != nil {
		return err
	}
	admin, err := f.ca.issue(administrator, []string{"system:masters"})
	if err != nil {
		return err
	}
	kubeconfig, err := f.ca.kubeconfig(c.Name, c.server, &clientcmdapi.AuthInfo{ClientCertificateData: admin.cert, ClientKeyData: admin.key})
	if err != nil {
		return err
	}
	c.Kubeconfig = filepath.Join(f.opts.Dir, "kubeconfigs", c.Name+".kubeconfig")
	var tokens bytes.Buffer
	w := csv.NewWriter(&tokens)
	for user, token := range c.tokens {
		if err := w.Write([]string{token, user, user, "lab-scrapers"}); err != nil {
			return err
		}
	}
	w.Flush()
	if err := f.ca.write(dir, serving); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "sa.key"), sa.key, 0o600),
		os.WriteFile(filepath.Join(dir, "tokens.csv"), tokens.Bytes(), 0o600),
		os.MkdirAll(filepath.Dir(c.Kubeconfig), 0o700),
		os.WriteFile(c.Kubeconfig, kubeconfig, 0o600),
	)
}

func (c *Cluster) apiserver(dir string, port int) (program, error) {
	httpClient, err := c.httpClient()
	return program{
		name: c.Name + "-kube-apiserver", path: c.fleet.bin.Path("kube-apiserver"),
		args: []string{
			"--etcd-servers=" + c.fleet.etcd, "--etcd-prefix=/" + c.Name,
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--advertise-address=127.0.0.1",
			"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key"),
			"--client-ca-file=" + filepath.Join(dir, "ca.crt"), "--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + filepath.Join(dir, "sa.key"),
			"--service-account-signing-key-file=" + filepath.Join(dir, "sa.key"),
			"--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
			"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount",
			"--enable-priority-and-fairness=false", "--profiling=false", "--watch-cache=true",
			"--allow-privileged=true", // as in every distribution: drivers and exporters need it
		},
		ready: httpReady(c.server+"/readyz", httpClient),
	}, err
}

// httpClient returns a client that authenticates as the cluster's administrator.
func (c *Cluster) httpClient() (*http.Client, error) {
	kubeconfig, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	user := kubeconfig.AuthInfos["user"]
	cert, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		return nil, fmt.Errorf("certificate in %s: %w", c.Kubeconfig, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.fleet.ca.cert)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	return &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// Kubectl runs kubectl as the cluster's administrator and returns its output. An
// error contains the output, too.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.fleet.bin.Path("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %s on %s: %w: %s", strings.Join(args, " "), c.Name, err, output)
	}
	return string(output), nil
}

// Apply applies manifests server-side with the field manager "lab".
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.Kubectl(ctx, manifests, "apply", "--server-side", "--force-conflicts", "--field-manager=lab", "-f", "-")
	return err
}

// tokenLifetime is longer than any run of the lab, so no token expires.
const tokenLifetime = 24 * time.Hour

// serviceAccountKubeconfig writes a kubeconfig with a new token of a service account and
// returns its path.
func (c *Cluster) serviceAccountKubeconfig(ctx context.Context, file, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))}}
	if err := c.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("token of %s/%s: %w", namespace, name, err)
	}
	content, err := c.fleet.ca.kubeconfig(c.Name, c.server, &clientcmdapi.AuthInfo{Token: request.Status.Token})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.fleet.opts.Dir, "kubeconfigs", file)
	return path, os.WriteFile(path, content, 0o600)
}
