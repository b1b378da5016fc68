//go:build integration

package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const root = "../.."

// sizes are the numbers of clusters and scores to measure. A larger fleet contains the clusters
// of the smaller ones.
var sizes = []struct{ clusters, scores int }{{100, 4}, {1000, 4}, {1000, 32}, {10000, 4}}

// fleets are the numbers of clusters in sizes.
var fleets = []int{100, 1000, 10000}

// concurrency is the number of concurrent writes of the operator and of
// the bare client.
const concurrency = 16

// testbed runs an API server, a Prometheus with series of all fleets, and the
// operator.
type testbed struct {
	api        client.Client
	kubeconfig string
	prometheus string
	operator   string // address of the operator's metrics
	process    *os.Process
	tick       atomic.Int64 // a change changes the scores of all clusters
	turn       int          // number of the bare client's runs
	queries    atomic.Int64 // the operator's queries, without the probes of the source
}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	b := &testbed{}
	b.startHub(t)
	b.startPrometheus(t)
	b.startOperator(t)
	return b
}

func (b *testbed) startHub(t *testing.T) {
	t.Helper()
	ocm := output(t, "go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api")
	env := &envtest.Environment{ErrorIfCRDPathMissing: true, CRDDirectoryPaths: []string{
		filepath.Join(root, "config/crd"), filepath.Join(ocm, "cluster/v1"), filepath.Join(ocm, "cluster/v1alpha1"),
	}}
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	cfg.QPS = -1
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	if b.api, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	b.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(b.kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
}

// startPrometheus runs a Prometheus that scrapes the series of all fleets every 30 s,
// and the tick every second.
func (b *testbed) startPrometheus(t *testing.T) {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tick" {
			_, _ = fmt.Fprintf(rw, "tick %d\n", b.tick.Load())
			return
		}
		page := bufio.NewWriter(rw)
		for _, n := range fleets {
			for i := range n {
				_, _ = fmt.Fprintf(page, "free{fleet=\"%d\",cluster=%q} %d\nage{fleet=\"%d\",cluster=%q} 1\n", n, clusterName(i), i%40, n, clusterName(i))
			}
		}
		_ = page.Flush()
	}))
	t.Cleanup(target.Close)
	dir := t.TempDir()
	config := fmt.Sprintf(`
scrape_configs:
- {job_name: fleet, scrape_interval: 30s, scrape_timeout: 30s, metrics_path: /fleet, static_configs: [{targets: [%[1]q]}]}
- {job_name: tick, scrape_interval: 1s, scrape_timeout: 1s, metrics_path: /tick, static_configs: [{targets: [%[1]q]}]}
`, strings.TrimPrefix(target.URL, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	b.prometheus = "http://" + address
	start(t, output(t, "go", "run", "./test/lab", "path", "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	largest := fleets[len(fleets)-1]
	query := b.prometheus + "/api/v1/query?query="
	waitUntil(t, "the scrape of the largest fleet", 3*time.Minute, func() bool {
		count, err := fetch(query + url.QueryEscape(fmt.Sprintf(`count(age{fleet="%d"})`, largest)))
		return err == nil && strings.Contains(count, fmt.Sprintf(`,"%d"]`, largest))
	})
	waitUntil(t, "the scrape of the tick", time.Minute, func() bool {
		tick, err := fetch(query + "tick")
		return err == nil && strings.Contains(tick, `"tick"`)
	})
}

// startCountingProxy runs a proxy of Prometheus that counts queries. It returns the
// proxy's URL.
func (b *testbed) startCountingProxy(t *testing.T) string {
	t.Helper()
	target, err := url.Parse(b.prometheus)
	if err != nil {
		t.Fatal(err)
	}
	next := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		if r.URL.Path == "/api/v1/query" && form.Get("query") != sourceProbe {
			b.queries.Add(1)
		}
		next.ServeHTTP(rw, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

func (b *testbed) startOperator(t *testing.T) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "plimsoll-operator")
	output(t, "go", "build", "-o", binary, "./operator/cmd/plimsoll-operator")
	b.operator = freeAddress(t)
	b.process = start(t, binary, "--kubeconfig="+b.kubeconfig, "--leader-elect=false", "--health-probe-bind-address=0", "--allow-loopback-sources",
		"--metrics-secure=false", "--metrics-bind-address="+b.operator)
	waitUntil(t, "the operator's metrics", time.Minute, func() bool {
		_, err := fetch("http://" + b.operator + "/metrics")
		return err == nil
	})
}

// sourceProbe is the query that checks whether a MetricsSource is reachable.
const sourceProbe = "vector(1)"

// addClusters creates the clusters from, from+1, … n-1.
func (b *testbed) addClusters(t *testing.T, from, n int) {
	t.Helper()
	forEach(t, from, n, func(ctx context.Context, i int) error {
		if err := b.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterName(i)}}); err != nil {
			return err
		}
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName(i)}}
		c.Spec.HubAcceptsClient = true
		return b.api.Create(ctx, c)
	})
}

// metric returns the sum of the operator's series with this prefix.
func (b *testbed) metric(t *testing.T, prefix string) float64 {
	t.Helper()
	metrics, err := fetch("http://" + b.operator + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		sum += v
	}
	return sum
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%05d", i) }

// forEach calls do concurrently for from, from+1, … to-1.
func forEach(t *testing.T, from, to int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(concurrency)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(name, args, err)
	}
	return strings.TrimSpace(string(out))
}

func start(t *testing.T, path string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// fetch returns the body of a response with status 200.
func fetch(address string) (string, error) {
	resp, err := http.Get(address)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// waitUntil waits until done returns true.
func waitUntil(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s after %s", what, limit)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
