package fleet

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/test/lab/components"
)

const kueueNamespace = "kueue-system"

// startKueue installs Kueue's own manifests and runs Kueue outside of the cluster.
// The kube-apiserver calls its webhooks by URL instead of by Service.
func (c *Cluster) startKueue(ctx context.Context) error {
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	webhook, metrics, health, visibility := ports[0], ports[1], ports[2], ports[3]
	manifests, err := c.fleet.kueueManifests(ctx)
	if err != nil {
		return err
	}
	if _, err := c.fleet.kueueAuthority(); err != nil {
		return err
	}
	local, err := c.withLocalWebhooks(manifests, webhook)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, local); err != nil {
		return err
	}
	name := c.Name + "-kueue"
	work := filepath.Join(c.fleet.opts.Dir, "work", name)
	if err := c.writeKueueCerts(ctx, work); err != nil {
		return err
	}
	config := filepath.Join(work, "config.yaml")
	c.writeKueueConfig = func(sections string) error {
		return os.WriteFile(config, c.kueueConfig(work, sections, webhook, metrics, health, visibility), 0o600)
	}
	sections := ""
	if c.Name == Hub {
		sections = multiKueueSection(c.fleet.opts.Dispatcher)
	}
	if err := c.writeKueueConfig(sections); err != nil {
		return err
	}
	c.scrapeKueue(metrics)
	return c.fleet.procs.Run(ctx, program{
		name: name, path: c.fleet.bin.Path("kueue"),
		args:  []string{"--config=" + config, "--kubeconfig=" + c.Kubeconfig, "--zap-log-level=2"},
		ready: httpReady(fmt.Sprintf("http://127.0.0.1:%d/readyz", health), http.DefaultClient),
	})
}

// ApplyNominationPolicy applies Kueue's own policy that clears nominations to the hub.
func (f *Fleet) ApplyNominationPolicy(ctx context.Context) error {
	dir, err := components.SourceDir(ctx, f.opts.Root, "shared", "sigs.k8s.io/kueue")
	if err != nil {
		return err
	}
	_, err = f.Hub.Kubectl(ctx, "", "apply", "-k", filepath.Join(dir, "config", "components", "map"))
	return err
}

// kueueAuthority returns an authority that Kueue's certificate rotation accepts:
// its name is kueue-ca and its key is RSA in PKCS#1. With any other authority
// Kueue never becomes ready.
func (f *Fleet) kueueAuthority() (*authority, error) {
	f.kueueCAOnce.Do(func() {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err == nil {
			f.kueueCA, err = selfSigned("kueue-ca", key)
		}
		f.kueueCAErr = err
	})
	return f.kueueCA, f.kueueCAErr
}

// writeKueueCerts creates Kueue's serving certificate before Kueue's certificate
// rotation does, as the Secret of the rotation and as the files of its mount.
func (c *Cluster) writeKueueCerts(ctx context.Context, work string) error {
	ca, err := c.fleet.kueueAuthority()
	if err != nil {
		return err
	}
	service := "kueue-webhook-service." + kueueNamespace + ".svc"
	serving, err := ca.issue(service, nil, service)
	if err != nil {
		return err
	}
	// Kueue's visibility server reads its certificate from a separate folder.
	for _, dir := range []string{"certs", "visibility"} {
		if err := ca.write(filepath.Join(work, dir), serving); err != nil {
			return err
		}
	}
	manifest, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "kueue-webhook-server-cert", "namespace": kueueNamespace},
		"data": map[string][]byte{"ca.crt": ca.pem, "tls.crt": serving.cert, "tls.key": serving.key,
			"ca.key": pemBlock("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(ca.key.(*rsa.PrivateKey)))}})
	if err != nil {
		return err
	}
	return c.Apply(ctx, string(manifest))
}

func (c *Cluster) scrapeKueue(port int) {
	c.fleet.targets.add(c.Name, scrapeTarget{
		job: "kueue", addr: fmt.Sprintf("127.0.0.1:%d", port), scheme: "https", token: c.tokens[scraper]})
}

// SetDispatcher sets MultiKueue's dispatcherName on the hub and restarts Kueue,
// which reads its configuration at startup. extra are further lines of Kueue's
// configuration; indented by two blanks they belong to the section multiKueue.
func (f *Fleet) SetDispatcher(ctx context.Context, name string, extra ...string) error {
	if err := f.Hub.restartKueue(ctx, multiKueueSection(strings.Join(append([]string{name}, extra...), "\n"))); err != nil {
		return err
	}
	return Await(ctx, "Kueue to set managedBy of new jobs", f.CheckMultiKueue)
}

// SetWorkersConfig restarts Kueue on the workers with these further sections of its configuration.
func (f *Fleet) SetWorkersConfig(ctx context.Context, sections string) error {
	for _, w := range f.Workers {
		if err := w.restartKueue(ctx, sections); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) restartKueue(ctx context.Context, sections string) error {
	if err := c.writeKueueConfig(sections); err != nil {
		return err
	}
	if err := c.fleet.procs.End(c.Name+"-kueue", syscall.SIGTERM); err != nil {
		return err
	}
	return c.fleet.procs.Restart(ctx, c.Name+"-kueue")
}

// multiKueueSection is the section multiKueue of the hub's configuration, which begins with this
// dispatcherName.
func multiKueueSection(dispatcher string) string {
	return "multiKueue:\n  dispatcherName: " + dispatcher + "\n"
}

// CheckMultiKueue returns an error until Kueue on the hub sets spec.managedBy of
// new jobs. Shortly after its start Kueue does not know the queues of MultiKueue
// yet: it rejects a job from that time forever.
func (f *Fleet) CheckMultiKueue(ctx context.Context) error {
	job := Job{Name: "dry-run", Model: H100, GPUs: 1}.Object()
	if err := f.Hub.Client.Create(ctx, job, client.DryRunAll); err != nil {
		return err
	}
	if job.Spec.ManagedBy == nil {
		return errors.New("managedBy is not set")
	}
	return nil
}

func (c *Cluster) kueueConfig(work, sections string, webhook, metrics, health, visibility int) []byte {
	return fmt.Appendf(nil, `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: %s
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "127.0.0.1:%d", enableClusterQueueResources: true}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
visibilityServer: {bindAddress: 127.0.0.1, bindPort: %d}
leaderElection: {leaderElect: false}
controller:
  # The values of Kueue's own manifests; the default is one worker per kind.
  groupKindConcurrency: {Job.batch: 5, Workload.kueue.x-k8s.io: 10, LocalQueue.kueue.x-k8s.io: 5, ClusterQueue.kueue.x-k8s.io: 5}
internalCertManagement: {enable: true}
clientConnection: {qps: 300, burst: 500}
integrations:
  frameworks:
  - batch/job
  - jobset.x-k8s.io/jobset
  - leaderworkerset.x-k8s.io/leaderworkerset
  - ray.io/rayjob
  - ray.io/raycluster
  - kubeflow.org/pytorchjob
  - kubeflow.org/mpijob
  - trainer.kubeflow.org/trainjob
  - pod
%s`, kueueNamespace, health, metrics, webhook, filepath.Join(work, "certs"), visibility, sections)
}

// kueueManifests returns Kueue's own manifests and the CRDs of jobKinds, rendered once for all
// clusters.
func (f *Fleet) kueueManifests(ctx context.Context) (string, error) {
	f.kueueOnce.Do(func() {
		dir, err := components.SourceDir(ctx, f.opts.Root, "shared", "sigs.k8s.io/kueue")
		if err != nil {
			f.kueueErr = err
			return
		}
		own, err := (&Cluster{Name: "kustomize", fleet: f}).Kubectl(ctx, "", "kustomize", filepath.Join(dir, "config", "default"))
		if err != nil {
			f.kueueErr = err
			return
		}
		kinds, err := f.jobKindManifests(ctx)
		f.kueueYAML, f.kueueErr = strings.Join(append([]string{own}, kinds...), "\n---\n"), err
	})
	return f.kueueYAML, f.kueueErr
}

// withLocalWebhooks removes the objects that a Kueue outside of the cluster does
// not need, and points webhooks and conversions to loopback.
func (c *Cluster) withLocalWebhooks(manifests string, port int) (string, error) {
	skip := map[string]bool{"Deployment": true, "Service": true, "APIService": true, "Secret": true, "ConfigMap": true}
	var kept []string
	for _, doc := range strings.Split(manifests, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			return "", fmt.Errorf("read Kueue's manifests: %w", err)
		}
		u := unstructured.Unstructured{Object: object}
		if skip[u.GetKind()] || object == nil {
			continue
		}
		c.localClientConfig(object, port)
		out, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		kept = append(kept, string(out))
	}
	return strings.Join(kept, "---\n"), nil
}

// localClientConfig replaces each clientConfig.service below node by a URL.
func (c *Cluster) localClientConfig(node any, port int) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			c.localClientConfig(item, port)
		}
	case map[string]any:
		if config, ok := n["clientConfig"].(map[string]any); ok {
			if service, ok := config["service"].(map[string]any); ok {
				path, _ := service["path"].(string)
				delete(config, "service")
				config["url"] = fmt.Sprintf("https://127.0.0.1:%d%s", port, path)
				config["caBundle"] = base64.StdEncoding.EncodeToString(c.fleet.kueueCA.pem)
			}
		}
		for _, item := range n {
			c.localClientConfig(item, port)
		}
	}
}
