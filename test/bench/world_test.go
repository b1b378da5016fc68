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

// sizes of fleets; the clusters of a smaller one belong to the larger ones, too.
var sizes = []int{100, 1000, 10000}

// concurrency of writes: the operator's default, and the bare client's.
const concurrency = 16

// world is all that a round needs.
type world struct {
	api        client.Client
	kubeconfig string
	prometheus string
	operator   string // address of its metrics
	process    *os.Process
	tick       atomic.Int64 // every cluster's score moves with it
	turn       int          // of the bare client
	questions  atomic.Int64 // to Prometheus, but for the source's own of a constant
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	w.startHub(t)
	w.startPrometheus(t)
	w.startOperator(t)
	return w
}

func (w *world) startHub(t *testing.T) {
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
	if w.api, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(w.kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
}

// startPrometheus has a real one scrape a page of every fleet's series, and another
// of the tick, which is small and scraped often.
func (w *world) startPrometheus(t *testing.T) {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tick" {
			_, _ = fmt.Fprintf(rw, "tick %d\n", w.tick.Load())
			return
		}
		page := bufio.NewWriter(rw)
		for _, n := range sizes {
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
	w.prometheus = "http://" + address
	start(t, output(t, "go", "run", "./test/lab", "path", "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	want := fmt.Sprintf(`,"%d"]`, sizes[len(sizes)-1])
	until(t, 3*time.Minute, func() bool {
		return strings.Contains(get(w.prometheus+"/api/v1/query?query=count(age%7Bfleet=%22"+strconv.Itoa(sizes[len(sizes)-1])+"%22%7D)"), want) &&
			strings.Contains(get(w.prometheus+"/api/v1/query?query=tick"), `"tick"`)
	})
}

// counted is an address of Prometheus that counts the questions.
func (w *world) counted(t *testing.T) string {
	t.Helper()
	target, err := url.Parse(w.prometheus)
	if err != nil {
		t.Fatal(err)
	}
	next := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if form, _ := url.ParseQuery(string(body)); r.URL.Path == "/api/v1/query" && form.Get("query") != "vector(1)" {
			w.questions.Add(1)
		}
		next.ServeHTTP(rw, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

func (w *world) startOperator(t *testing.T) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "plimsoll-operator")
	output(t, "go", "build", "-o", binary, "./operator/cmd/plimsoll-operator")
	w.operator = freeAddress(t)
	w.process = start(t, binary, "--kubeconfig="+w.kubeconfig, "--leader-elect=false", "--health-probe-bind-address=0",
		"--metrics-secure=false", "--metrics-bind-address="+w.operator, "--score-write-concurrency="+strconv.Itoa(concurrency))
	until(t, time.Minute, func() bool { return get("http://"+w.operator+"/metrics") != "" })
}

// grow joins clusters until there are n.
func (w *world) grow(t *testing.T, from, n int) {
	t.Helper()
	each(t, from, n, func(ctx context.Context, i int) error {
		if err := w.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterName(i)}}); err != nil {
			return err
		}
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName(i)}}
		c.Spec.HubAcceptsClient = true
		return w.api.Create(ctx, c)
	})
}

// metric sums the operator's series whose text begins so.
func (w *world) metric(prefix string) float64 {
	var sum float64
	for line := range strings.Lines(get("http://" + w.operator + "/metrics")) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%05d", i) }

func each(t *testing.T, from, to int, do func(ctx context.Context, i int) error) {
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

// get is the body of a good answer, else nothing.
func get(address string) string {
	resp, err := http.Get(address)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// until waits for a state of the world.
func until(t *testing.T, limit time.Duration, what func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !what() {
		if time.Now().After(deadline) {
			t.Fatal("waited too long")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
