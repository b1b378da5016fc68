package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// serve a script's hub, operator and Prometheus, and say where they are.
func serve(env *testscript.Env) error {
	hub := &fakeHub{dir: filepath.Join(env.WorkDir, "hub")}
	api := httptest.NewServer(hub)
	operator := httptest.NewTLSServer(http.HandlerFunc(operatorAnswers))
	prometheus := httptest.NewServer(prometheusAnswers(env.WorkDir))
	secure := demanding(prometheus.Config.Handler)
	for _, s := range []*httptest.Server{api, operator, prometheus, secure} {
		env.Defer(s.Close)
	}
	private, err := x509.MarshalPKCS8PrivateKey(operator.TLS.Certificates[0].PrivateKey)
	if err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: hub,
clusters: [{name: hub, cluster: {server: %q}}],
contexts: [{name: hub, context: {cluster: hub, user: me, namespace: team-a}}],
users: [{name: me, user: {}}]}`, api.URL)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: operator.Certificate().Raw})
	for name, content := range map[string]string{"kubeconfig": kubeconfig, "ca.pem": string(ca), "key.pem": string(key), "token": "right\n", "wrong-token": "wrong\n", "password": "open-sesame\n"} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "kubeconfig"))
	env.Setenv("OPERATOR", operator.URL)
	env.Setenv("PROMETHEUS", prometheus.URL)
	env.Setenv("SECURE", secure.URL)
	env.Setenv("SECURE_HOST", strings.TrimPrefix(secure.URL, "https://"))
	return nil
}

// demanding lets those pass to a Prometheus who name a tenant and have the right token,
// password or any client certificate. It repeats what it was sent, as some proxies do,
// and answers below the path of a cluster for that cluster.
func demanding(next http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		said := "you said " + req.Header.Get("Authorization") + " " + password
		switch {
		case req.Header.Get("Authorization") != "Bearer right-and-long-token" && (user != "ann" || password != "open-sesame") && len(req.TLS.PeerCertificates) == 0:
			reply(w, http.StatusUnauthorized, map[string]any{"status": "error", "error": said})
		case req.Header.Get("X-Scope-OrgID") != "team" && (req.Header.Get("THANOS-TENANT") != "team" || req.URL.Query().Get("partial_response") != "false"):
			reply(w, http.StatusBadRequest, map[string]any{"status": "error", "error": "no tenant"})
		default:
			if at := strings.Index(req.URL.Path, "/api/"); at > 0 {
				req.URL.Path = req.URL.Path[at:]
			}
			w.Header().Set("X-Warning", said)
			next.ServeHTTP(w, req)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server
}

// fakeHub is an API server with the objects of a folder. Resources that the file
// "forbidden" names are refused, those that "absent" names are not served.
type fakeHub struct {
	dir     string
	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured // by plural/namespace/name
}

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
		for _, document := range strings.Split(string(content), "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			h.objects[plural(u)+"/"+u.GetNamespace()+"/"+u.GetName()] = u
		}
	}
	return nil
}

func plural(u *unstructured.Unstructured) string {
	return strings.TrimSuffix(strings.ToLower(u.GetKind()), "y") + map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(u.GetKind(), "y")]
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.load(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/apis/"), "/")
	group, rest, namespace := parts[0]+"/"+parts[1], parts[2:], ""
	if rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	switch resource := rest[0]; {
	case h.lists("absent", resource):
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource", "")
	case h.lists("forbidden", resource):
		refuse(w, http.StatusForbidden, "Forbidden", resource+`.`+parts[0]+` is forbidden: User "me" cannot list resource`, "")
	case len(rest) == 1:
		kind, err := kinds.KindFor(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: resource})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.list(w, req, group, kind.Kind+"List", resource, namespace)
	default:
		h.one(w, req, resource, namespace, rest[1])
	}
}

func (h *fakeHub) lists(file, resource string) bool {
	content, err := os.ReadFile(filepath.Join(filepath.Dir(h.dir), file))
	return err == nil && strings.Contains(string(content), resource)
}

func (h *fakeHub) one(w http.ResponseWriter, req *http.Request, resource, namespace, name string) {
	key := resource + "/" + namespace + "/" + name
	u, ok := h.objects[key]
	if !ok {
		refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", resource, name), name)
		return
	}
	if req.Method == http.MethodDelete {
		delete(h.objects, key)
	}
	reply(w, http.StatusOK, u.Object)
}

func (h *fakeHub) list(w http.ResponseWriter, req *http.Request, apiVersion, kind, resource, namespace string) {
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error(), "")
		return
	}
	items := []any{}
	for key, u := range h.objects {
		if strings.HasPrefix(key, resource+"/"+namespace) && selector.Matches(labels.Set(u.GetLabels())) {
			items = append(items, u.Object)
		}
	}
	reply(w, http.StatusOK, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}, "items": items})
}

func refuse(w http.ResponseWriter, code int, reason, message, name string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
		Code: int32(code), Reason: metav1.StatusReason(reason), Message: message,
	}
	if name != "" {
		status.Details = &metav1.StatusDetails{Name: name}
	}
	reply(w, code, status)
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is told by what it reads
}

// operatorAnswers as the operator's handlers do, to the right token.
func operatorAnswers(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Header.Get("Authorization") == "":
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	case req.Header.Get("Authorization") != "Bearer right":
		http.Error(w, "Authorization denied", http.StatusForbidden)
	case req.URL.Path == "/explain/workload/team-a/job-train-1-5c2e1":
		reply(w, http.StatusOK, decided())
	case req.URL.Path == "/explain/workload/team-a/asked-of-a-follower":
		reply(w, http.StatusOK, gate.Explanation{Follower: true, Problem: "this replica does not lead"})
	case req.URL.Path == "/explain/policy/fleet":
		reply(w, http.StatusOK, json.RawMessage(lastRound))
	default:
		http.Error(w, "no round has spoken of it since this operator leads", http.StatusNotFound)
	}
}

// decided is what the gate's own rules say of a job of 8 devices: cluster1 has
// room, in cluster2 it is promised to another, cluster3 is stale and lacks power.
func decided() gate.Explanation {
	set := gate.PodSet{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-H100-80GB-HBM3", DevicesPerPod: 8, Pods: 1}
	facts := gate.Facts{UID: "1", Namespace: "team-a", Name: "job-train-1-5c2e1", Queue: "gpu", PodSets: []gate.PodSet{set}}
	candidate := func(name string, fit float64, old time.Duration) gate.Candidate {
		return gate.Candidate{
			Name: name, Sampled: now.Add(-old), Scores: map[string]gate.Score{"fleet/total": {Value: int32(10 * fit), Written: now.Add(-old), ValidUntil: now.Add(time.Minute)}},
			Shapes: []gate.ShapeAnswer{{Fit: gate.Known(fit), Headroom: gate.Known(8 * fit), Capacity: gate.Known(32), Largest: gate.Known(8)}},
		}
	}
	candidates := []gate.Candidate{candidate("cluster1", 2, 10*time.Second), candidate("cluster2", 1, 12*time.Second), candidate("cluster3", 4, 4*time.Minute)}
	ledger := gate.NewLedger(time.Second, time.Hour)
	ledger.Debit(gate.Entry{UID: "2", Workload: "team-a/other", Cluster: "cluster2", PodSets: []gate.PodSet{set}, Debited: now.Add(-40 * time.Second)})
	ledger.Credit(gate.Credit{Cluster: "cluster1", PodSets: []gate.PodSet{set}, Finished: now.Add(-time.Second)})
	candidates[2].Conditions = []gate.Condition{{Name: "power", Number: gate.Known(0), Answered: now.Add(-9 * time.Second)}, {Name: "net"}}
	fleet := gate.Fleet{Conditions: []gate.Condition{{Name: "budget", Number: gate.Known(1), Answered: now.Add(-70 * time.Second)}}}
	rules := gate.Rules{Placement: "plimsoll-system/gpu", MaxSampleAge: 2 * time.Minute, UnknownAfter: 5 * time.Minute, TierPoints: 20}
	e := gate.Explanation{Workload: facts.Key(), Gate: "gpu", State: "Pending", WaitsFor: "its nomination", Facts: facts}
	e.Conditions = fleet.Conditions
	e.Decision, e.Clusters = gate.Explain(facts, candidates, fleet, ledger.View(), rules, 1, now)
	return e
}

const lastRound = `{"policy":"fleet","time":"2026-03-01T11:59:50Z","durationMilliseconds":21.5,"freshClusters":1,"knownClusters":2,
"queries":[{"query":"time() - max by (cluster) (x)","durationMilliseconds":4,"series":2},
 {"score":"headroom","query":"sum by (cluster) (y)","durationMilliseconds":9,"series":1,"warnings":["a store did not answer"]}],
"clusters":[{"cluster":"cluster1","scores":[{"name":"headroom","raw":42.12345,"points":65.8,"value":66,"state":"Fresh","outcome":"Value","sampleTime":"2026-03-01T11:59:45Z"}]},
 {"cluster":"cluster2","scores":[{"name":"headroom","points":20,"value":20,"state":"Held","outcome":"Absent","sampleTime":"2026-03-01T11:59:20Z","heldUntil":"2026-03-01T12:00:20Z"}]}]}`

// prometheusAnswers what the file prometheus.yaml of expressions and values by labels
// says, and to others and without it what Prometheus's engine finds in history.txt.
func prometheusAnswers(dir string) http.Handler {
	file := filepath.Join(dir, "prometheus.yaml")
	past := &recordedPast{file: filepath.Join(dir, "history.txt")}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := os.Stat(file); req.URL.Path != "/api/v1/query" || err != nil {
			past.ServeHTTP(w, req)
			return
		}
		var answers map[string][]struct {
			Metric map[string]string `json:"metric"`
			Value  string            `json:"value"`
		}
		content, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(content, &answers)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		expr := req.FormValue("query")
		result := []any{}
		for _, s := range answers[expr] {
			result = append(result, map[string]any{"metric": s.Metric, "value": []any{now.Unix(), s.Value}})
		}
		if _, ok := answers[expr]; !ok {
			reply(w, http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": "unexpected question " + expr})
			return
		}
		answer := map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}}
		if said := w.Header().Get("X-Warning"); said != "" {
			answer["warnings"], answer["infos"] = []string{said}, []string{"metric might not be a counter"}
		}
		reply(w, http.StatusOK, answer)
	})
}
