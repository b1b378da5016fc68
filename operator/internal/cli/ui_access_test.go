package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"
)

// Only browsers that have opened the printed address see the pages, under the names of this machine, and change nothing.
func TestUIAccess(t *testing.T) {
	h := newUIHub(t, nil)
	address := h.serve(t)
	base, key, _ := strings.Cut(address, "/?")
	port := base[strings.LastIndex(base, ":"):]
	opened := newBrowser()
	if _, status, err := get(opened, address, nil); status != http.StatusOK {
		t.Fatalf("status %d, %v", status, err)
	}
	for _, tc := range []struct {
		name    string
		browser *http.Client
		path    string
		change  func(*http.Request)
		status  int
	}{
		{name: "with the cookie", browser: opened, path: "/queue", status: http.StatusOK},
		{name: "by the name localhost", browser: opened, path: "/queue?" + key, change: func(r *http.Request) { r.Host = "localhost" + port }, status: http.StatusOK},
		{name: "HEAD", browser: opened, path: "/queue", change: func(r *http.Request) { r.Method = http.MethodHead }, status: http.StatusOK},
		{name: "the style", browser: opened, path: "/style.css", status: http.StatusOK},
		{name: "without the key", browser: newBrowser(), path: "/", status: http.StatusForbidden},
		{name: "without the key, the style", browser: newBrowser(), path: "/style.css", status: http.StatusForbidden},
		{name: "a wrong key", browser: newBrowser(), path: "/?key=wrong", status: http.StatusForbidden},
		{name: "an empty key", browser: newBrowser(), path: "/?key=", status: http.StatusForbidden},
		{name: "a name of another that resolves to 127.0.0.1", browser: opened, path: "/", change: func(r *http.Request) { r.Host = "rebound.example.com" + port }, status: http.StatusMisdirectedRequest},
		{name: "another port", browser: opened, path: "/", change: func(r *http.Request) { r.Host = "127.0.0.1:1" }, status: http.StatusMisdirectedRequest},
		{name: "POST", browser: opened, path: "/queue", change: func(r *http.Request) { r.Method = http.MethodPost }, status: http.StatusMethodNotAllowed},
		{name: "DELETE", browser: opened, path: "/queue", change: func(r *http.Request) { r.Method = http.MethodDelete }, status: http.StatusMethodNotAllowed},
		{name: "the template", browser: opened, path: "/page.html", status: http.StatusNotFound},
		{name: "an unknown page", browser: opened, path: "/queue/..%2f", status: http.StatusNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page, status, err := get(tc.browser, base+tc.path, tc.change)
			if err != nil || status != tc.status {
				t.Errorf("status %d, %v: %s", status, err, page)
			}
		})
	}
	resp, err := opened.Get(base + "/queue")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"Cache-Control":           "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The pages are served while the command that opens the browser runs, which some keep until the browser ends.
func TestUIServesWhileTheBrowserRuns(t *testing.T) {
	h := newUIHub(t, nil)
	for _, name := range []string{"xdg-open", "open"} {
		opener := h.write(t, filepath.Join("bin", name), "#!/bin/sh\nexec tail -f /dev/null\n")
		if err := os.Chmod(opener, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(h.dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	wants(t, h.open(t, "--open")("/queue"), "job/train-1")
}

// bearer sets the token of a request.
func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// With --token-passthrough, the hub sees the token of each user and nothing else, and users share nothing.
func TestUIPassesTokensThrough(t *testing.T) {
	h := newUIHub(t, nil)
	h.valid = "of-ann"
	base := "http://" + h.serve(t, "--listen", "127.0.0.1:0", "--token-passthrough", "--prometheus", h.prometheus, "--refresh", "2m")
	for name, tc := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"no token":        {nil, http.StatusUnauthorized},
		"a password":      {func(r *http.Request) { r.SetBasicAuth("ann", "of-ann") }, http.StatusUnauthorized},
		"an empty token":  {bearer(""), http.StatusUnauthorized},
		"a wrong token":   {bearer("of-nobody"), http.StatusUnauthorized},
		"the user's":      {bearer("of-ann"), http.StatusOK},
		"by another name": {func(r *http.Request) { bearer("of-ann")(r); r.Host = "plimsoll.example.com" }, http.StatusOK},
	} {
		for _, path := range append(uiPages, uiPages...) {
			page, status, err := get(http.DefaultClient, base+path, tc.change)
			if err != nil || status != tc.status {
				t.Errorf("%s, %s: status %d, %v: %s", name, path, status, err, page)
			}
			if shows := strings.Contains(page, "cluster1"); shows != (tc.status == http.StatusOK) {
				t.Errorf("%s, %s: shows clusters: %v", name, path, shows)
			}
		}
	}
	h.tokens.Range(func(token, _ any) bool {
		if token != "Bearer of-ann" && token != "Bearer of-nobody" {
			t.Errorf("the hub saw the credentials %q", token)
		}
		return true
	})
	if n := h.lists.Load(); n != 2 { // all, and those of team-b
		t.Errorf("workloads were listed %d times", n)
	}
}

func TestUIUsersShareNothing(t *testing.T) {
	h := newUIHub(t, nil)
	base := "http://" + h.serve(t, "--listen", "127.0.0.1:0", "--token-passthrough", "--prometheus", h.prometheus, "--refresh", "2m")
	for i, token := range []string{"of-ann", "of-bob", "of-ann"} {
		page, _, err := get(http.DefaultClient, base+"/queue", bearer(token))
		if err != nil || !strings.Contains(page, "train-1") {
			t.Fatalf("%v: %s", err, page)
		}
		if n, want := int(h.lists.Load()), min(i+1, 2); n != want {
			t.Errorf("after %d requests: %d lists, want %d", i+1, n, want)
		}
	}
	// The Prometheus is queried with the pod's own credentials: its series are only for those who may read the same on the hub.
	h.write(t, "forbidden", "addonplacementscores")
	for path, hidden := range map[string][2]string{"/": {"NVIDIA-H100", "only users who may list AddOnPlacementScores see metrics"}, "/policies": {"<polyline", "ScoringPolicy fleet: AddOnPlacementScores: .* is forbidden"}} {
		page, _, err := get(http.DefaultClient, base+path, bearer("of-carol"))
		if err != nil || strings.Contains(page, hidden[0]) {
			t.Errorf("%s shows %s to a user who may not read scores (%v): %s", path, hidden[0], err, page)
		}
		wants(t, page, hidden[1])
	}
}

// The token of a user also opens the way to the operator.
func TestUIReachesTheOperatorWithTheToken(t *testing.T) {
	tunnel, err := txtar.ParseFile(filepath.Join("testdata", "script", "explain_tunnel.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range tunnel.Files {
		if f.Name == "hub/operator.yaml" {
			files[f.Name] = string(f.Data)
		}
	}
	h := newUIHub(t, files)
	operator := httptest.NewTLSServer(http.HandlerFunc(serveOperator))
	defer operator.Close()
	h.hub.operator = operator.Listener.Addr().String()
	base := "http://" + h.serve(t, "--listen", "127.0.0.1:0", "--token-passthrough")
	for token, want := range map[string]string{"right": `cluster1 best 2`, "wrong": `the token's user may not read the explained object`} {
		page, _, err := get(http.DefaultClient, base+"/job?namespace=team-a&name=job/train-1", bearer(token))
		if err != nil {
			t.Fatal(err)
		}
		wants(t, page, want)
	}
}

// config/ui runs the command with flags that exist, and that do not contradict each other.
func TestUIArgumentsOfTheManifest(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "ui", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manifest), "---\n")
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal([]byte(text), &deployment); err != nil {
		t.Fatal(err)
	}
	args := deployment.Spec.Template.Spec.Containers[0].Args
	if err := checkCommand(args); err != nil {
		t.Error(err)
	}
	var failures bytes.Buffer
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: &failures}
	if code := run(ended, slices.Replace(args, 1, 2, "--listen=127.0.0.1:0"), streams, time.Now); code == exitUsage {
		t.Error(failures.String())
	}
}

// The rights of plimsoll-explainer are enough for all pages.
func TestExplainerRoleCoversPages(t *testing.T) {
	everywhere, operator := explainerRules(t)
	h := &uiHub{kubeconfig: startGuardedHub(t, "ui.txtar", func(group, resource, verb, namespace string) bool {
		return grants(everywhere, group, resource, verb) || namespace == "plimsoll-system" && grants(operator, group, resource, verb)
	})}
	read := h.open(t, "--prometheus", "http://127.0.0.1:1")
	for _, path := range uiPages {
		if page := read(path); strings.Contains(page, "forbidden") {
			t.Errorf("%s: %s", path, page)
		}
	}
}

// jobs returns n workloads that wait for the gate.
func jobs(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: many-%[1]d, namespace: team-%[2]d, uid: "%[1]d", creationTimestamp: "2026-03-01T10:00:00Z"}, spec: {queueName: gpu, podSets: []},
 status: {admission: {clusterQueue: gpu, podSetAssignments: []}, conditions: [{type: QuotaReserved, status: "True", reason: R, message: m, lastTransitionTime: "2026-03-01T11:00:00Z"}],
  admissionChecks: [{name: plimsoll, state: Pending, message: "no room for job %[1]d", lastTransitionTime: "2026-03-01T11:00:00Z"}, {name: multikueue, state: Pending, message: "", lastTransitionTime: "2026-03-01T11:00:00Z"}]}}
`, i, i%7)
	}
	return strings.TrimPrefix(all.String(), "---\n")
}

// A page has a bounded size, and all pages and streams of a user share what is read.
func TestUIWithManyJobs(t *testing.T) {
	h := newUIHub(t, map[string]string{"hub/workloads.yaml": jobs(5000)})
	read := h.open(t, "--refresh", "1h")
	began := time.Now()
	page := read("/queue")
	first := time.Since(began)
	wants(t, page, `1 to 100 of 5000`, `many-0 team-0 no room for job 0 60m 1 of 5000 at gate gpu`)
	began = time.Now()
	wants(t, read("/queue?page=50"), `4901 to 5000 of 5000`)
	wants(t, read("/queue?q=Job+4321"), `1 to 1 of 1 that match, of 5000 in all`, `many-4321`)
	t.Logf("the first page took %s, the next two %s together, and have %d bytes", first, time.Since(began), len(page))
	if n := h.lists.Load(); n != 1 {
		t.Errorf("workloads were listed %d times", n)
	}
	if len(page) > 200<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// Streams of a user show what changed on the hub, and read it once for all of them.
func TestUIStreams(t *testing.T) {
	h := newUIHub(t, nil)
	const refresh = 200 * time.Millisecond
	browser, address := newBrowser(), h.serve(t, "--refresh", refresh.String())
	if _, _, err := get(browser, address, nil); err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(address, "/?")
	began := time.Now()
	var streams []*bufio.Reader
	for range 8 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/queue", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("a stream is %q with status %s", got, resp.Status)
		}
		streams = append(streams, bufio.NewReader(resp.Body))
	}
	until := func(text string) {
		t.Helper()
		for _, s := range streams {
			for found := false; !found; {
				line, err := s.ReadBytes('\n')
				if err == io.EOF || err != nil {
					t.Fatal(err)
				}
				if !bytes.HasPrefix(line, []byte("event: time")) && !bytes.HasPrefix(line, []byte("data: ")) && len(line) > 1 {
					t.Fatalf("a stream sends %q", line)
				}
				found = bytes.Contains(line, []byte(text))
			}
		}
	}
	until("best is cluster2 with 6")
	changed := strings.Split(uiFile(t, "hub/workloads.yaml"), "---\n")[0]
	if err := h.hub.patch([]byte(strings.ReplaceAll(changed, "best is cluster2 with 6", "best is cluster4 with 7"))); err != nil {
		t.Fatal(err)
	}
	until("best is cluster4 with 7")
	until("event: time")
	if n, most := h.lists.Load(), int32(time.Since(began)/refresh)+2; n > most {
		t.Errorf("workloads were listed %d times for %d streams, want %d at most", n, len(streams), most)
	}
}
