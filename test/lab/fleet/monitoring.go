package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

var httpPlain = &http.Client{Timeout: 3 * time.Second}

// kubeStateMetrics is the job of kube-state-metrics among the scrape targets.
const kubeStateMetrics = "kube-state-metrics"

// scrapeTarget is one target of a Prometheus.
type scrapeTarget struct {
	job, addr, scheme, token string
}

// targets holds the scrape targets by cluster. Clusters start concurrently.
type targets struct {
	mu        sync.Mutex
	byCluster map[string][]scrapeTarget
}

func (t *targets) add(cluster string, target scrapeTarget) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byCluster == nil {
		t.byCluster = map[string][]scrapeTarget{}
	}
	t.byCluster[cluster] = append(t.byCluster[cluster], target)
}

func (t *targets) list(cluster string) []scrapeTarget {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.byCluster[cluster])
}

func (t *targets) remove(cluster, addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byCluster[cluster] = slices.DeleteFunc(t.byCluster[cluster], func(target scrapeTarget) bool { return target.addr == addr })
}

// scraperRBAC allows the lab's Prometheus to read metrics endpoints that authorize
// their readers.
const scraperRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lab-metrics-reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lab-metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lab-metrics-reader}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: lab-prometheus}]
`

// KubeStateMetrics returns the host:port of the cluster's kube-state-metrics, or "" if it has none.
func (c *Cluster) KubeStateMetrics() string {
	for _, t := range c.fleet.targets.list(c.Name) {
		if t.job == kubeStateMetrics {
			return t.addr
		}
	}
	return ""
}

func (c *Cluster) startKubeStateMetrics(ctx context.Context) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	c.fleet.targets.add(c.Name, scrapeTarget{job: kubeStateMetrics, addr: addr, scheme: "http"})
	return c.fleet.procs.Run(ctx, program{
		name: c.Name + "-kube-state-metrics", path: c.fleet.bin.Path("kube-state-metrics"),
		args: []string{"--kubeconfig=" + c.Kubeconfig, "--host=127.0.0.1", fmt.Sprintf("--port=%d", ports[0]),
			"--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", ports[1]), "--resources=nodes,pods,jobs,namespaces,serviceaccounts,configmaps,secrets,persistentvolumeclaims",
			"--custom-resource-state-config-file=" + filepath.Join(c.fleet.opts.Root, "config", "prometheus", "localqueues.yaml"),
			"--metric-labels-allowlist=nodes=[" + strings.Join([]string{BlockLabel, TPUTopologyLabel, nodePoolLabel, ProductLabel, CapacityTypeLabel}, ",") + "]"},
		ready: httpReady("http://"+addr+"/healthz", httpPlain),
	})
}

// startPrometheus runs a Prometheus that scrapes the cluster's targets and
// evaluates Plimsoll's rules, and a Thanos sidecar for it. The series of a worker
// have the external label cluster. The operator on the hub sets the label cluster
// of its own series.
func (c *Cluster) startPrometheus(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	name := c.Name + "-prometheus"
	work := filepath.Join(c.fleet.opts.Dir, "work", name)
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	if err := c.writePrometheusConfig(); err != nil {
		return err
	}
	c.Prometheus = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	if err := c.fleet.procs.Run(ctx, program{
		name: name, path: c.fleet.bin.Path("prometheus"),
		args: []string{"--config.file=" + c.prometheusFile(), "--storage.tsdb.path=" + filepath.Join(work, "data"),
			fmt.Sprintf("--web.listen-address=127.0.0.1:%d", ports[0]), "--storage.tsdb.retention.time=6h", "--web.enable-lifecycle"},
		ready: httpReady(c.Prometheus+"/-/ready", httpPlain),
	}); err != nil {
		return err
	}
	grpc := fmt.Sprintf("127.0.0.1:%d", ports[1])
	sidecarHTTP := fmt.Sprintf("127.0.0.1:%d", ports[2])
	c.fleet.mu.Lock()
	c.fleet.sidecars = append(c.fleet.sidecars, grpc)
	c.fleet.mu.Unlock()
	return c.fleet.procs.Run(ctx, program{
		name: c.Name + "-thanos-sidecar", path: c.fleet.bin.Path("thanos"),
		args: []string{"sidecar", "--prometheus.url=" + c.Prometheus, "--tsdb.path=" + filepath.Join(work, "data"),
			"--grpc-address=" + grpc, "--http-address=" + sidecarHTTP},
		ready: httpReady("http://"+sidecarHTTP+"/-/ready", httpPlain),
	})
}

// prometheusFile is the configuration of the cluster's Prometheus.
func (c *Cluster) prometheusFile() string {
	return filepath.Join(c.fleet.opts.Dir, "work", c.Name+"-prometheus", "prometheus.yaml")
}

func (c *Cluster) writePrometheusConfig() error {
	return os.WriteFile(c.prometheusFile(), []byte(c.prometheusConfig()), 0o600)
}

// rulesFile is the file of LoadRules.
func (c *Cluster) rulesFile() string {
	return filepath.Join(c.fleet.opts.Dir, "work", c.Name+"-prometheus", "rules.yaml")
}

// LoadRules replaces the rules of the cluster's Prometheus that it did not start with.
func (c *Cluster) LoadRules(ctx context.Context, rules []byte) error {
	if err := os.WriteFile(c.rulesFile(), rules, 0o600); err != nil {
		return err
	}
	return c.reloadPrometheus(ctx)
}

// reloadPrometheus makes the cluster's Prometheus read the current targets and its rules.
func (c *Cluster) reloadPrometheus(ctx context.Context) error {
	if err := c.writePrometheusConfig(); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Prometheus+"/-/reload", nil)
	if err != nil {
		return err
	}
	response, err := httpPlain.Do(request)
	if err != nil {
		return fmt.Errorf("reload the configuration of Prometheus on %s: %w", c.Name, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(response.Body)
		return errors.Join(fmt.Errorf("reload the configuration of Prometheus on %s: %s: %s", c.Name, response.Status, text), err)
	}
	return nil
}

func (c *Cluster) prometheusConfig() string {
	var b strings.Builder
	label := "cluster: " + c.Name
	if c.Name == Hub {
		label = "prometheus: hub"
	}
	fmt.Fprintf(&b, "global:\n  scrape_interval: 2s\n  scrape_timeout: 2s\n  evaluation_interval: 2s\n  external_labels: {%s}\n", label)
	files := []string{"recording-*.yaml", "alerts-capacity.yaml", "alerts-devices.yaml", "alerts-pipeline.yaml", "alerts-prometheus.yaml"}
	if c.Name == Hub { // a worker scrapes no operator, and its absence is an alert
		files = append(files, "alerts-hub.yaml")
	}
	b.WriteString("rule_files:\n")
	fmt.Fprintf(&b, "- %q\n", c.rulesFile())
	for _, file := range files {
		if !c.fleet.opts.WithoutRules {
			fmt.Fprintf(&b, "- %q\n", filepath.Join(c.fleet.opts.Root, "rules", file))
		}
	}
	b.WriteString("scrape_configs:\n")
	byJob := map[string][]scrapeTarget{}
	var jobs []string
	for _, t := range c.fleet.targets.list(c.Name) {
		if byJob[t.job] == nil {
			jobs = append(jobs, t.job)
		}
		byJob[t.job] = append(byJob[t.job], t)
	}
	for _, job := range jobs {
		first := byJob[job][0]
		fmt.Fprintf(&b, "- job_name: %s\n  honor_labels: true\n  scheme: %s\n", job, first.scheme)
		if job == "plimsoll-exporter" {
			fmt.Fprintf(&b, "  scrape_interval: 1s\n  scrape_timeout: 1s\n")
		}
		if first.scheme == "https" {
			fmt.Fprintf(&b, "  tls_config: {insecure_skip_verify: true}\n  authorization: {credentials: %s}\n", first.token)
		}
		b.WriteString("  static_configs:\n  - targets:\n")
		for _, t := range byJob[job] {
			fmt.Fprintf(&b, "    - %s\n", t.addr)
		}
	}
	return b.String()
}

func (f *Fleet) startThanosQuery(ctx context.Context) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	f.Thanos = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	args := []string{"query", fmt.Sprintf("--http-address=127.0.0.1:%d", ports[0]), fmt.Sprintf("--grpc-address=127.0.0.1:%d", ports[1]),
		"--query.default-evaluation-interval=2s", "--store.unhealthy-timeout=1m"}
	for _, endpoint := range f.sidecars {
		args = append(args, "--endpoint="+endpoint)
	}
	return f.procs.Run(ctx, program{
		name: "thanos-query", path: f.bin.Path("thanos"), args: args,
		ready: httpReady(f.Thanos+"/-/ready", httpPlain),
	})
}
