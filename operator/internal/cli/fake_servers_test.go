package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// startServers starts the hub, the operator and the Prometheus of a script, and sets their
// addresses in its environment.
func startServers(env *testscript.Env) error {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	operator := httptest.NewTLSServer(http.HandlerFunc(serveOperator))
	hub := &fakeHub{dir: filepath.Join(env.WorkDir, "hub"), operator: operator.Listener.Addr().String(), prometheus: prometheusHandler(env.WorkDir)}
	api, secureAPI := httptest.NewServer(hub), httptest.NewTLSServer(hub)
	prometheus := httptest.NewServer(prometheusHandler(env.WorkDir))
	secure := newSecureServer(prometheus.Config.Handler)
	for _, s := range []*httptest.Server{api, secureAPI, operator, prometheus, secure} {
		env.Defer(s.Close)
	}
	private, err := x509.MarshalPKCS8PrivateKey(operator.TLS.Certificates[0].PrivateKey)
	if err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: hub,
clusters: [{name: hub, cluster: {server: %q}}, {name: worker, cluster: {server: %q, certificate-authority-data: %s}}],
contexts: [{name: hub, context: {cluster: hub, user: me, namespace: team-a}},
  {name: admin@cluster1, context: {cluster: worker, user: me}}, {name: admin@cluster2, context: {cluster: worker, user: me}}],
users: [{name: me, user: {}}]}`, api.URL, secureAPI.URL, base64.StdEncoding.EncodeToString(certificatePEM(secureAPI)))
	withToken := func(token string) string { // client-go sends tokens only over TLS
		return strings.NewReplacer(fmt.Sprintf("server: %q", api.URL), fmt.Sprintf("insecure-skip-tls-verify: true, server: %q", secureAPI.URL), "user: {}", "user: {token: "+token+"}").Replace(kubeconfig)
	}
	ca := certificatePEM(operator)
	for name, content := range map[string]string{"kubeconfig": kubeconfig, "ca.pem": string(ca), "key.pem": string(key), "token": "right\n", "wrong-token": "wrong\n", "password": "open-sesame\n",
		"kubeconfig-token": withToken("right"), "kubeconfig-denied": withToken("wrong")} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	env.Values[fakeHubKey{}] = hub
	env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "kubeconfig"))
	env.Setenv("OPERATOR", operator.URL)
	env.Setenv("PROMETHEUS", prometheus.URL)
	env.Setenv("SECURE", secure.URL)
	env.Setenv("SECURE_HOST", strings.TrimPrefix(secure.URL, "https://"))
	return nil
}

// certificatePEM returns the certificate of a server.
func certificatePEM(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// newSecureServer starts a proxy in front of a Prometheus. It requires a tenant, and the
// right token, the right password or any client certificate. It echoes the credentials, as
// some proxies do.
func newSecureServer(next http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		echo := "you said " + req.Header.Get("Authorization") + " " + password
		switch {
		case req.Header.Get("Authorization") != "Bearer right-and-long-token" && (user != "ann" || password != "open-sesame") && len(req.TLS.PeerCertificates) == 0:
			writeJSON(w, http.StatusUnauthorized, map[string]any{"status": "error", "error": echo})
		case req.Header.Get("X-Scope-OrgID") != "team" && (req.Header.Get("THANOS-TENANT") != "team" || req.URL.Query().Get("partial_response") != "false"):
			writeJSON(w, http.StatusBadRequest, map[string]any{"status": "error", "error": "no tenant"})
		default:
			w.Header().Set("X-Warning", echo)
			next.ServeHTTP(w, req)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server
}

// fakeHub is an API server with the objects of a folder. It rejects requests for the
// resources in the file "forbidden", and requests for more than the metadata of those in the file
// "hidden". It does not serve those in the file "absent".
type fakeHub struct {
	dir      string
	operator string // address of the operator's listener, to which ports are forwarded
	// prometheus answers for the Services in the file "services".
	prometheus http.Handler
	mu         sync.Mutex
	objects    map[string]*unstructured.Unstructured // by plural/namespace/name
}

// fakeHubKey is the key of a script's hub among its values.
type fakeHubKey struct{}

func (h *fakeHub) load() error {
	if h.objects != nil {
		return nil
	}
	h.objects = map[string]*unstructured.Unstructured{}
	files, err := filepath.Glob(filepath.Join(h.dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := h.merge(content); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// patch merges the objects of a file into those of the hub.
func (h *fakeHub) patch(content []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.load(); err != nil {
		return err
	}
	return h.merge(content)
}

func (h *fakeHub) merge(content []byte) error {
	for _, document := range strings.Split(string(content), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			return err
		}
		key := plural(u) + "/" + u.GetNamespace() + "/" + u.GetName()
		if existing, ok := h.objects[key]; ok {
			mergeInto(existing.Object, u.Object)
			continue
		}
		h.objects[key] = u
	}
	return nil
}

func plural(u *unstructured.Unstructured) string {
	if strings.HasSuffix(u.GetKind(), "Class") {
		return strings.ToLower(u.GetKind()) + "es"
	}
	return strings.TrimSuffix(strings.ToLower(u.GetKind()), "y") + map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(u.GetKind(), "y")]
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if service, path, ok := strings.Cut(req.URL.Path, "/proxy/"); ok {
		h.proxy(w, req, service, "/"+path)
		return
	}
	if parts := strings.Split(req.URL.Path, "/"); len(parts) == 8 && parts[2] == "v1" { // /api/v1/namespaces/NS/RESOURCE/NAME/SUBRESOURCE
		h.serveSubresource(w, req, parts[6], parts[7])
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.load(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/apis/")
	if core, ok := strings.CutPrefix(req.URL.Path, "/api"); ok && !strings.HasPrefix(core, "s/") {
		path = core // the core group has an empty name
	}
	parts := strings.Split(path, "/")
	group, rest, namespace := parts[0]+"/"+parts[1], parts[2:], ""
	if rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	switch resource := rest[0]; {
	case h.lists("absent", resource):
		writeStatus(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource", "")
	case h.lists("forbidden", resource), h.lists("hidden", resource) && req.Method == http.MethodGet && !acceptsMetadata(req):
		writeStatus(w, http.StatusForbidden, "Forbidden", resource+`.`+parts[0]+` is forbidden: User "me" cannot list resource`, "")
	case len(rest) == 1:
		kind, err := hubclient.RESTMapper.KindFor(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: resource})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.serveList(w, req, group, kind.Kind+"List", resource, namespace)
	case req.Method == http.MethodPatch:
		h.servePatch(w, req, resource, namespace, rest[1])
	default:
		h.serveObject(w, req, resource, namespace, rest[1])
	}
}

// proxy serves a Service in the file "services", as NAMESPACE/services/SCHEME:NAME:PORT.
func (h *fakeHub) proxy(w http.ResponseWriter, req *http.Request, service, path string) {
	switch {
	case h.lists("forbidden", "services/proxy"):
		writeStatus(w, http.StatusForbidden, "Forbidden", `services "x" is forbidden: User "me" cannot create resource "services/proxy" in API group ""`, "")
	case !h.lists("services", strings.TrimPrefix(service, "/api/v1/namespaces/")):
		writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", "no endpoints available for service", "")
	default:
		req.URL.Path = path
		h.prometheus.ServeHTTP(w, req)
	}
}

func (h *fakeHub) lists(file, resource string) bool {
	content, err := os.ReadFile(filepath.Join(filepath.Dir(h.dir), file))
	return err == nil && strings.Contains(string(content), resource)
}

func (h *fakeHub) serveObject(w http.ResponseWriter, req *http.Request, resource, namespace, name string) {
	key := resource + "/" + namespace + "/" + name
	u, ok := h.objects[key]
	if !ok {
		writeStatus(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", resource, name), name)
		return
	}
	if req.Method == http.MethodDelete {
		delete(h.objects, key)
	}
	if acceptsMetadata(req) {
		writeJSON(w, http.StatusOK, metadataOf(u))
		return
	}
	writeJSON(w, http.StatusOK, u.Object)
}

// acceptsMetadata reports whether a request is for the metadata of objects only.
func acceptsMetadata(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func metadataOf(u *unstructured.Unstructured) map[string]any {
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": u.Object["metadata"]}
}

// servePatch merges the body into an object, or creates it. Like the token controller, it
// fills Secrets of service accounts.
func (h *fakeHub) servePatch(w http.ResponseWriter, req *http.Request, resource, namespace, name string) {
	var patch map[string]any
	if err := json.NewDecoder(req.Body).Decode(&patch); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := resource + "/" + namespace + "/" + name
	u, ok := h.objects[key]
	if !ok {
		u = &unstructured.Unstructured{Object: map[string]any{}}
		h.objects[key] = u
	}
	mergeInto(u.Object, patch)
	if u.Object["type"] == "kubernetes.io/service-account-token" {
		u.Object["data"] = map[string]any{"token": base64.StdEncoding.EncodeToString([]byte("right"))}
	}
	writeJSON(w, http.StatusOK, u.Object)
}

func mergeInto(object, patch map[string]any) {
	for key, value := range patch {
		child, isMap := value.(map[string]any)
		existing, exists := object[key].(map[string]any)
		if isMap && exists {
			mergeInto(existing, child)
			continue
		}
		object[key] = value
	}
}

func (h *fakeHub) serveList(w http.ResponseWriter, req *http.Request, apiVersion, kind, resource, namespace string) {
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error(), "")
		return
	}
	name := strings.TrimPrefix(req.URL.Query().Get("fieldSelector"), "metadata.name=")
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(h.objects)) { // in the order of an API server
		u := h.objects[key]
		if strings.HasPrefix(key, resource+"/"+namespace) && selector.Matches(labels.Set(u.GetLabels())) && (name == "" || name == u.GetName()) {
			if acceptsMetadata(req) {
				items, apiVersion, kind = append(items, metadataOf(u)), "meta.k8s.io/v1", "PartialObjectMetadataList"
				continue
			}
			items = append(items, u.Object)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}, "items": items})
}

func writeStatus(w http.ResponseWriter, code int, reason, message, name string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
		Code: int32(code), Reason: metav1.StatusReason(reason), Message: message,
	}
	if name != "" {
		status.Details = &metav1.StatusDetails{Name: name}
	}
	writeJSON(w, code, status)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client notices a truncated response
}

// serveOperator serves explanations like the operator, to clients with the right token.
func serveOperator(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Header.Get("Authorization") == "":
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	case req.Header.Get("Authorization") != "Bearer right":
		http.Error(w, "Authorization denied", http.StatusForbidden)
	case req.URL.Path == "/explain/workload/team-a/job-train-1-5c2e1":
		writeJSON(w, http.StatusOK, workloadExplanation())
	case req.URL.Path == "/explain/workload/team-a/served-by-follower":
		writeJSON(w, http.StatusOK, gate.Explanation{Follower: true, Problem: "this replica is not the leader"})
	case strings.HasSuffix(req.URL.Path, "/served-by-follower"):
		http.Error(w, "this replica is not the leader; query the leader, which the Lease plimsoll-operator names", http.StatusMisdirectedRequest)
	case req.URL.Path == "/explain/policy/fleet":
		writeJSON(w, http.StatusOK, json.RawMessage(lastRound))
	default:
		http.Error(w, "no round has evaluated it since this operator became leader", http.StatusNotFound)
	}
}

// workloadExplanation returns the gate's explanation of a job with 8 devices: cluster1 has
// room, the room in cluster2 is reserved for another workload, cluster3 has stale samples
// and does not meet the requirement power.
func workloadExplanation() gate.Explanation {
	set := shape.PodSet{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-H100-80GB-HBM3", DevicesPerPod: 8, Pods: 1, Profile: &shape.Profile{MemoryPeak: 40 << 30, Duration: 600, UtilizationPercent: 93}}
	facts := shape.Facts{UID: "1", Namespace: "team-a", Name: "job-train-1-5c2e1", Queue: "gpu", PodSets: []shape.PodSet{set}}
	candidate := func(name string, fit float64, old time.Duration) gate.Candidate {
		return gate.Candidate{
			Name: name, SampledAt: now.Add(-old), Scores: map[string]gate.Score{"fleet/total": {Value: int32(10 * fit), Written: now.Add(-old), ValidUntil: now.Add(time.Minute)}},
			Shapes: []gate.ShapeMetrics{{Fit: gate.Known(fit), Headroom: gate.Known(8 * fit), Capacity: gate.Known(32), Largest: gate.Known(8)}},
		}
	}
	candidates := []gate.Candidate{candidate("cluster1", 2, 10*time.Second), candidate("cluster2", 1, 12*time.Second), candidate("cluster3", 4, 4*time.Minute)}
	candidates[0].Preference, candidates[1].Preference = gate.Known(1), gate.Known(0.5)
	inFlight := ledger.New(time.Second, time.Hour)
	inFlight.Debit(ledger.Entry{UID: "2", Workload: "team-a/other", Cluster: "cluster2", PodSets: []shape.PodSet{set}, DebitedAt: now.Add(-40 * time.Second)})
	inFlight.PutRunning(ledger.Running{UID: "4", Namespace: "team-a", Cluster: "cluster1", PodSets: []shape.PodSet{set}, Since: now.Add(-90 * time.Second), ReportsPodsReady: true})
	inFlight.Credit(ledger.Credit{Cluster: "cluster1", PodSets: []shape.PodSet{set}, FinishedAt: now.Add(-time.Second)})
	candidates[2].Requirements = []gate.RequirementResult{{Name: "power", Number: gate.Known(0), EvaluatedAt: now.Add(-9 * time.Second)}, {Name: "net"}}
	fleet := gate.Fleet{Requirements: []gate.RequirementResult{{Name: "budget", Number: gate.Known(1), EvaluatedAt: now.Add(-70 * time.Second)}}}
	rules := gate.Rules{Placement: "plimsoll-system/gpu", MaxSampleAge: 2 * time.Minute, UnknownAfter: 5 * time.Minute, TierPoints: 20}
	e := gate.Explanation{Workload: facts.Key(), Gate: "gpu", State: "Pending", WaitsFor: "its nomination", Next: "the operator nominates", Facts: facts}
	e.Requirements, e.SkippedRequirements = fleet.Requirements, []string{"window"}
	e.Decision, e.Clusters = gate.Explain(facts, candidates, fleet, inFlight.View(), rules, 1, now)
	return e
}

// lastRound is the operator's explanation of the first round of a policy, before which no cluster had a
// fresh value.
const lastRound = `{"policy":"fleet","time":"2026-03-01T11:59:50Z","durationMilliseconds":21.5,"freshClusters":1,"knownClusters":0,
"queries":[{"query":"time() - max by (cluster) (x)","durationMilliseconds":4,"series":2},
 {"score":"headroom","query":"sum by (cluster) (y)","durationMilliseconds":9,"series":1,"warnings":["a store did not respond"]}],
"clusters":[{"cluster":"cluster1","scores":[{"name":"headroom","raw":42.12345,"points":65.8,"value":66,"state":"Fresh","outcome":"Value","sampleTime":"2026-03-01T11:59:45Z"}]},
 {"cluster":"cluster2","scores":[{"name":"headroom","points":20,"value":20,"state":"Kept","outcome":"Absent","sampleTime":"2026-03-01T11:59:20Z","keptUntil":"2026-03-01T12:00:20Z"}]}]}`
