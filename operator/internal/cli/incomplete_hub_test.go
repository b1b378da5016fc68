package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// A hub that answers, but not about everything that limits a job, gives no answer: without its limits the job would start.
func TestFitNeedsTheWholeHub(t *testing.T) {
	for _, failing := range []string{"clusterqueues", "workloads", "jobprofiles"} {
		t.Run(failing, func(t *testing.T) {
			dir := t.TempDir()
			files, err := txtar.ParseFile(filepath.Join("testdata", "script", "fit.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files.Files {
				path := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			hub := &fakeHub{dir: filepath.Join(dir, "hub")}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if _, resource, _, _ := requestedResource(req); resource == failing {
					writeStatus(w, http.StatusInternalServerError, "InternalError", "etcd is slow", "")
					return
				}
				hub.ServeHTTP(w, req)
			}))
			defer server.Close()
			prometheus := httptest.NewServer(prometheusHandler(dir))
			defer prometheus.Close()
			kubeconfig := filepath.Join(dir, "kubeconfig")
			text := `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {server: "` + server.URL + `"}}], contexts: [{name: hub, context: {cluster: hub, namespace: team-a}}]}`
			if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, failures bytes.Buffer
			code := run(t.Context(), []string{"fit", "-f", filepath.Join(dir, "one.yaml"), "--prometheus", prometheus.URL, "--kubeconfig", kubeconfig},
				genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &failures}, func() time.Time { return now })
			if code != exitFailure || out.Len() > 0 || !strings.Contains(failures.String(), "error: read the hub: etcd is slow") {
				t.Errorf("exit code %d, output %q, errors %q", code, out.String(), failures.String())
			}
		})
	}
}
