//go:build integration

package scoringpolicy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/metricssource"
	"plimsoll.dev/plimsoll/operator/internal/controller/scoringpolicy"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

const operatorNamespace = "plimsoll-system"

var (
	api client.Client
	hub *rest.Config
	// kubeconfig of hub, for programs.
	kubeconfig []byte
	logged     buffer // log of the operators
	scheme     = runtime.NewScheme()
)

// buffer is an in-memory writer for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(&logged, nil)))
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install, clusterv1beta1.Install, clusterv1beta2.Install,
	} {
		utilruntime.Must(add(scheme))
	}
	ocm, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "find OCM's CRDs:", err)
		return 1
	}
	dir := strings.TrimSpace(string(ocm))
	env := &envtest.Environment{ErrorIfCRDPathMissing: true, CRDDirectoryPaths: []string{
		"../../../../config/crd", filepath.Join(dir, "cluster/v1"), filepath.Join(dir, "cluster/v1alpha1"),
		filepath.Join(dir, "cluster/v1beta1"), filepath.Join(dir, "cluster/v1beta2"),
	}}
	if hub, err = env.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "start an apiserver (KUBEBUILDER_ASSETS must name a folder with etcd and kube-apiserver):", err)
		return 1
	}
	defer func() { _ = env.Stop() }()
	hub.QPS, kubeconfig = -1, env.KubeConfig
	if api, err = client.New(hub, client.Options{Scheme: scheme}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := api.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// startOperator runs the controllers until the test ends or stop is called.
func startOperator(t *testing.T) (stop func()) {
	t.Helper()
	unique := true
	mgr, err := ctrl.NewManager(hub, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unique},
	})
	if err != nil {
		t.Fatal(err)
	}
	sources := &query.Sources{}
	if err := metricssource.Setup(mgr, metricssource.Options{Sources: sources, Namespace: operatorNamespace, AllowLoopback: true}); err != nil {
		t.Fatal(err)
	}
	if err := scoringpolicy.Setup(mgr, scoringpolicy.Options{Sources: sources}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// fakePrometheus serves the query API with responses that the test sets.
type fakePrometheus struct {
	*httptest.Server
	mu     sync.Mutex
	fail   http.HandlerFunc             // replaces every response if set
	bodies map[string]string            // response bodies by expression; they outrank values
	values map[string]map[string]string // values by expression and cluster
}

func newPrometheus(t *testing.T) *fakePrometheus {
	p := &fakePrometheus{values: map[string]map[string]string{}, bodies: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// stop closes the listener: connections are refused.
func (p *fakePrometheus) stop() { p.Close() }

// restart serves at the same address again.
func (p *fakePrometheus) restart(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(p)
	_ = server.Listener.Close() // the default listener has another address
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
}

func (p *fakePrometheus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	fail := p.fail
	p.mu.Unlock()
	if fail != nil {
		fail(w, r)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.FormValue("query") == "vector(1)" {
		_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`)
		return
	}
	if body, ok := p.bodies[r.FormValue("query")]; ok {
		_, _ = fmt.Fprint(w, body)
		return
	}
	if r.URL.Path != "/api/v1/query" {
		http.NotFound(w, r)
		return
	}
	var results []string
	for cluster, v := range p.values[r.FormValue("query")] {
		results = append(results, fmt.Sprintf(`{"metric":{"cluster":%q},"value":[1,%q]}`, cluster, v))
	}
	_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(results, ","))
}

func (p *fakePrometheus) set(expr string, values map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values[expr] = values
}

func (p *fakePrometheus) setBody(expr, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies[expr] = body
}

func (p *fakePrometheus) failWith(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = h
}

func (p *fakePrometheus) setDown(down bool) {
	if down {
		p.failWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		return
	}
	p.failWith(nil)
}

// sourceCondition returns "Status/Reason" of a condition of a source.
func sourceCondition(g gomega.Gomega, name, kind string) string {
	s := &v1alpha1.MetricsSource{}
	g.Expect(api.Get(context.Background(), client.ObjectKey{Name: name}, s)).To(gomega.Succeed())
	c := meta.FindStatusCondition(s.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// eventReasons returns the reasons of all events of one object.
func eventReasons(g gomega.Gomega, kind, name string) []string {
	var events eventsv1.EventList
	g.Expect(api.List(context.Background(), &events)).To(gomega.Succeed())
	var reasons []string
	for _, e := range events.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// createCluster creates a ManagedCluster and its namespace for the duration of the test.
func createCluster(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreAlreadyExists(api.Create(context.Background(), ns)); err != nil {
		t.Fatal(err)
	}
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	c.Spec.HubAcceptsClient = true
	create(t, c)
}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := api.Create(context.Background(), obj); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), obj) })
}

// eventually waits until all assertions hold.
func eventually(t *testing.T, what func(g gomega.Gomega)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(what).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(gomega.Succeed())
}

// values returns the scores in a cluster's AddOnPlacementScore by name. They are nil if the
// object does not exist.
func values(g gomega.Gomega, cluster, name string) map[string]int32 {
	s := score(g, cluster, name)
	if s == nil {
		return nil
	}
	out := map[string]int32{}
	for _, item := range s.Status.Scores {
		out[item.Name] = item.Value
	}
	return out
}

func score(g gomega.Gomega, cluster, name string) *clusterv1alpha1.AddOnPlacementScore {
	s := &clusterv1alpha1.AddOnPlacementScore{}
	err := api.Get(context.Background(), client.ObjectKey{Namespace: cluster, Name: name}, s)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return s
}
