package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// What is asked once, and the answers of an API server to it.
func TestWhatIsAskedOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer token":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"it is forbidden","code":403}`)
		case r.URL.Path == "/api/v1/namespaces/ns/configmaps/counters":
			fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"counters","namespace":"ns"},"data":{"metrics":"A, gauge, a"}}`)
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=n":
			fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	may, mayNot := &rest.Config{Host: server.URL, BearerToken: "token"}, &rest.Config{Host: server.URL}
	if text, err := ConfigMap(t.Context(), may, "ns", "counters", "metrics"); err != nil || text != "A, gauge, a" {
		t.Errorf("%q, %v", text, err)
	}
	if n, err := Count(t.Context(), may, "n"); err != nil || n != 2 {
		t.Errorf("%d pods, %v", n, err)
	}
	for want, ask := range map[string]func() error{
		"ConfigMap ns/counters has no other": func() error { _, err := ConfigMap(t.Context(), may, "ns", "counters", "other"); return err },
		"ConfigMap ns/none":                  func() error { _, err := ConfigMap(t.Context(), may, "ns", "none", "metrics"); return err },
		"it is forbidden":                    func() error { _, err := ConfigMap(t.Context(), mayNot, "ns", "counters", "metrics"); return err },
		"list the node's pods: it is forbid": func() error { _, err := Count(t.Context(), mayNot, "n"); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
