package cli

import (
	"bufio"
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// uiPages are the paths of all pages with their content of testdata/script/ui.txtar.
var uiPages = []string{"/", "/queue", "/job?namespace=team-b&name=job/serve-1", "/policies"}

// uiHub is a hub with the objects of ui.txtar, and a Prometheus with its series, whose page the command ui serves.
type uiHub struct {
	dir, kubeconfig, prometheus string
	hub                         *fakeHub
	// lists counts the lists of workloads. tokens are the credentials of requests.
	lists  atomic.Int32
	tokens sync.Map
	// valid is the token that the hub accepts; "" = any.
	valid string
}

// newUIHub starts the servers. files replace or extend those of ui.txtar.
func newUIHub(t testing.TB, files map[string]string) *uiHub {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "script", "ui.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	h := &uiHub{dir: t.TempDir()}
	for _, f := range archive.Files {
		if _, replaced := files[f.Name]; !replaced {
			h.write(t, f.Name, string(f.Data))
		}
	}
	for name, text := range files {
		if text != "" {
			h.write(t, name, text)
		}
	}
	h.hub = &fakeHub{dir: filepath.Join(h.dir, "hub")}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.tokens.Store(req.Header.Get("Authorization"), true)
		if h.valid != "" && req.Header.Get("Authorization") != "Bearer "+h.valid {
			writeStatus(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized", "")
			return
		}
		if strings.HasSuffix(req.URL.Path, "/workloads") {
			h.lists.Add(1)
		}
		h.hub.ServeHTTP(w, req)
	}))
	prometheus := httptest.NewServer(prometheusHandler(h.dir))
	t.Cleanup(func() { api.Close(); prometheus.Close() })
	h.prometheus = prometheus.URL
	h.kubeconfig = h.write(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {insecure-skip-tls-verify: true, server: "`+api.URL+`"}}],
contexts: [{name: hub, context: {cluster: hub, user: me, namespace: team-a}}], users: [{name: me, user: {token: of-the-kubeconfig}}]}`)
	return h
}

func (h *uiHub) write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve runs the command ui until the test ends, and returns the last word of the line that it prints: its address.
func (h *uiHub) serve(t testing.TB, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	printed, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard}
		ended <- run(ctx, append([]string{"ui", "--kubeconfig", h.kubeconfig}, args...), streams, func() time.Time { return now })
		_ = out.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("the command ends with %d", code)
		}
	})
	line, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[strings.LastIndex(strings.TrimSpace(line), " ")+1 : len(line)-1]
}

// newBrowser returns a client that keeps cookies.
func newBrowser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err)
	}
	return &http.Client{Jar: jar}
}

// get returns a page and its status.
func get(c *http.Client, address string, change func(*http.Request)) (page string, status int, err error) {
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return "", 0, err
	}
	if change != nil {
		change(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), resp.StatusCode, err
}

// open opens the printed address, and returns a function that reads pages.
func (h *uiHub) open(t testing.TB, args ...string) func(path string) string {
	t.Helper()
	browser, address := newBrowser(), h.serve(t, args...)
	read := func(address string) string {
		page, status, err := get(browser, address, nil)
		if err != nil || status != http.StatusOK {
			t.Fatalf("%s: status %d, %v: %s", address, status, err, page)
		}
		return page
	}
	read(address)
	base, _, _ := strings.Cut(address, "/?")
	return func(path string) string { return read(base + path) }
}

// wants checks that a page matches all expressions. They see white space and tags between texts as one space.
func wants(t *testing.T, page string, expressions ...string) {
	t.Helper()
	page = html.UnescapeString(regexp.MustCompile(`(<[^>]*>|\s)+`).ReplaceAllString(page, " "))
	for _, want := range expressions {
		if !regexp.MustCompile(want).MatchString(page) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
}

func TestUIPages(t *testing.T) {
	h := newUIHub(t, nil)
	read := h.open(t, "--prometheus", h.prometheus)
	wants(t, read("/"), `cluster1 available NVIDIA-H100-80GB-HBM3 6 64 4 1 unhealthy nvidia.com/gpu fleet/total=72`, `cluster2 .* 6 32 6 8 cordoned`, `nvidia.com/gpu 50 176 cluster3`,
		`cluster3 not available: Registration agent stopped updating its lease no devices reported \? \? \? \? \? fleet/total=-100`)
	queue := read("/queue")
	wants(t, queue, `job/large team-a no cluster has room for 4 pods.* 50m 1 of 3 at gate gpu by 2026-03-01 12:45:00Z on cluster4, which is held a decision of the gate; the gate looks every 15s gpu 100`,
		`job/train-1 team-a no cluster has 8 free .* 20m 2 of 3 at gate gpu, after team-a/job-large-8b1d0 \? `, `job/tune-7 .* 3 of 3 at gate gpu, after team-a/job-train-1-5c2e1`,
		`job/sweep-3 team-b quota in its ClusterQueue: couldn.t assign flavors .* 29m \? \? Kueue reserves quota`, `job/eval-2 team-a admission by cluster1 4m \? \?`)
	if strings.Contains(queue, "serve-1") {
		t.Error("a running job is among those that wait")
	}
	wants(t, read("/queue?namespace=team-b&q=QUOTA"), `1 to 1 of 1 that match, of 2 in all .*job/sweep-3`)
	wants(t, read("/queue?namespace=team-a"), `job/large team-a .* 1 of 2 of those in team-a at gate gpu`)
	wants(t, read("/queue?namespace=team-x"), `No job waits in namespace team-x, if the hub has it`)
	wants(t, read("/queue?q=nothing-has-this"), `None of 5 matches`)
	wants(t, read("/job?namespace=team-b&name=job/serve-1"), `Submitted 2026-03-01 11:50:00Z to queue gpu, priority 0; evicted since then: PodsReadyTimeout 1 time Quota reserved 2026-03-01 11:56:00Z .*Decided 2026-03-01 11:57:00Z cluster1 has room for 3 such pods .*Nominated 2026-03-01 11:57:00Z to cluster1 \(Placeable\) .*Admitted 2026-03-01 11:58:00Z by cluster1.*Pods ready 2026-03-01 11:59:00Z All pods are ready Finished waits for this`,
		`Waits for nothing: the workload is on cluster1`)
	wants(t, read("/job?namespace=team-a&name=job-train-1-5c2e1"), `Decided waits for this no cluster has 8 free`, `Nominated not yet`, `cluster3 rejected \? .*is not connected by Kueue: the API server does not answer`)
	wants(t, read("/policies"), `fleet Enforce True 12s ago`, `cluster1 total 72 58 86 `, `cluster3 total -100 -100 60 `, `gpu Enforce True`, `Shadow report of gate batch .*380 of 412 workloads went where .*another cluster 21 0s 21 9`, `team-b/tune-7 25h 16 cluster2 cluster2 16m`)
	if n := strings.Count(read("/policies"), "<polyline"); n != 5 { // cluster3 has a gap
		t.Errorf("%d lines of charts", n)
	}
}

func TestUIWithoutFacts(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		h := emptyUIHub(t)
		read := h.open(t, "--prometheus", h.prometheus)
		wants(t, read("/"), "No cluster reports devices", "No cluster is known")
		wants(t, read("/queue"), "No job waits")
		wants(t, read("/job"), "Enter the namespace and the name")
		wants(t, read("/job?namespace=team-a&name=job/gone"), "Not shown namespace team-a has no workload of job gone")
		wants(t, read("/policies"), "The hub has no ScoringPolicy", "The hub has no PlacementGate")
		wants(t, read("/policies?policy=gone"), "Not shown ScoringPolicy gone")
	})
	t.Run("without Prometheus", func(t *testing.T) {
		h := newUIHub(t, nil)
		read := h.open(t)
		wants(t, read("/"), `Not shown devices are unknown: no Prometheus or Thanos was found`, `Free and total devices are unknown`, `cluster1 available \? \? \? \? \? \? fleet/total=72`)
		wants(t, read("/policies"), `Scores over time are unknown: no Prometheus or Thanos was found`)
	})
	t.Run("Prometheus is down", func(t *testing.T) {
		read := newUIHub(t, nil).open(t, "--prometheus", "http://127.0.0.1:1")
		wants(t, read("/"), `Not shown devices are unknown: Unreachable`, `Free and total devices are unknown`, `cluster1 available \? \? \?`)
		wants(t, read("/policies"), `Scores over time are unknown: Unreachable`)
	})
	t.Run("Prometheus answers in part", func(t *testing.T) {
		h := newUIHub(t, map[string]string{"partial": "store 3 did not respond"})
		wants(t, h.open(t, "--prometheus", h.prometheus, "--source-type", "Thanos")("/"), `Not shown free devices are incomplete: the response is partial: store 3 did not respond`)
	})
	for resource, pages := range map[string]map[string]string{
		"managedclusters":       {"/": `cluster1 \? NVIDIA-H100-80GB-HBM3 6 64`},
		"addonplacementscores":  {"/": `cluster1 available NVIDIA-H100-80GB-HBM3 6 64 4 1 unhealthy nvidia.com/gpu \?`},
		"workloads":             {"/queue": "Which jobs wait is unknown", "/job?namespace=team-a&name=job/train-1": "its workload can.t be read"},
		"admissionchecks":       {"/queue": `job/train-1 team-a admission check plimsoll: no cluster has 8 free .* 20m \? \? the controller`, "/job?namespace=team-a&name=job/train-1": `Checked time unknown the AdmissionChecks can.t be read`},
		"placementgates":        {"/queue": `job/train-1 .* 20m \? \? `, "/policies": `fleet Enforce True`},
		"scoringpolicies":       {"/policies": "gpu Enforce True"},
		"multikueueclusters":    {"/queue": `job/eval-2 team-a admission by cluster1`},
		"workloads.team-a.only": {"/queue": "is forbidden.*choose a namespace above"},
	} {
		t.Run("the user may not read "+resource, func(t *testing.T) {
			h := newUIHub(t, map[string]string{"forbidden": strings.TrimSuffix(resource, ".team-a.only")})
			read := h.open(t, "--prometheus", h.prometheus)
			for path, want := range pages {
				wants(t, read(path), want, `Not shown .*is forbidden`)
			}
		})
	}
}

// uiFile returns a file of ui.txtar.
func uiFile(t testing.TB, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "script", "ui.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	t.Fatalf("ui.txtar has no file %s", name)
	return ""
}

// hostileText has what could leave its place in a page, or change how other texts are read.
const hostileText = `</td><script>alert(1)</script>\"' onmouseover=x {{.}} \u202egnp\u200b\u0007\u001b[31mred`

// emptyUIHub is a hub without objects.
func emptyUIHub(t testing.TB) *uiHub {
	t.Helper()
	noSamples := regexp.MustCompile(`(?m)^- .*\n`).ReplaceAllString(uiFile(t, "prometheus.yaml"), "")
	return newUIHub(t, map[string]string{"hub/clusters.yaml": "", "hub/kueue.yaml": "", "hub/ours.yaml": "", "hub/workloads.yaml": "", "prometheus.yaml": strings.ReplaceAll(noSamples, ":\n", ": []\n")})
}

// hostileUIHub is a hub whose objects have hostile texts wherever they may have texts.
func hostileUIHub(t testing.TB) *uiHub {
	t.Helper()
	quoted := func(in string) string { return strings.ReplaceAll(in, "HOSTILE", hostileText) }
	return newUIHub(t, map[string]string{
		"hub/workloads.yaml": quoted(`apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: bad, namespace: team-a, uid: "1", creationTimestamp: "2026-03-01T11:00:00Z", ownerReferences: [{apiVersion: v1, kind: Job, name: "HOSTILE", uid: u}], annotations: {plimsoll.dev/dispatch: "not json HOSTILE"}}
spec: {queueName: "HOSTILE", podSets: []}
status:
  conditions: [{type: QuotaReserved, status: "False", reason: Pending, message: "HOSTILE", lastTransitionTime: "2026-03-01T11:00:00Z"}]
  admissionChecks: [{name: plimsoll, state: Pending, message: "HOSTILE", lastTransitionTime: "2026-03-01T11:00:00Z"}]
`),
		"hub/clusters.yaml": quoted(`apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: "HOSTILE"}
spec: {hubAcceptsClient: true}
status: {conditions: [{type: ManagedClusterConditionAvailable, status: "False", reason: R, message: "HOSTILE", lastTransitionTime: "2026-03-01T11:00:00Z"}]}
`),
		"hub/policy.yaml": quoted(`apiVersion: plimsoll.dev/v1alpha1
kind: ScoringPolicy
metadata: {name: "HOSTILE"}
spec: {mode: "HOSTILE"}
status: {conditions: [{type: Ready, status: "False", reason: "HOSTILE", message: "HOSTILE", lastTransitionTime: "2026-03-01T11:00:00Z"}]}
`)})
}

// Names and messages of others neither run nor hide anything.
func TestUIWithHostileTexts(t *testing.T) {
	h := hostileUIHub(t)
	read := h.open(t, "--prometheus", h.prometheus)
	typed := url.QueryEscape("\"><script>alert(1)</script>\u202e")
	tags := regexp.MustCompile(`<script>|<[^>]*\sonmouseover=|[\x{202e}\x{200b}\x07\x1b]`)
	for _, path := range []string{"/", "/queue", "/job?namespace=team-a&name=bad", "/policies", "/?q=" + typed, "/queue?namespace=" + typed, "/job?namespace=" + typed + "&name=" + typed, "/policies?policy=" + typed} {
		page := read(path)
		if found := tags.FindString(page); found != "" {
			t.Errorf("%s has %q: %s", path, found, page)
		}
	}
	wants(t, read("/queue"), `job/</td><script>alert\(1\).*\x{FFFD}gnp\x{FFFD}\x{FFFD}\x{FFFD}\[31mred`)
}
