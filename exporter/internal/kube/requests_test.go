package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestRequests(t *testing.T) {
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
	authorized, unauthorized := &rest.Config{Host: server.URL, BearerToken: "token"}, &rest.Config{Host: server.URL}
	if text, err := ReadConfigMapKey(t.Context(), authorized, "ns", "counters", "metrics"); err != nil || text != "A, gauge, a" {
		t.Errorf("%q, %v", text, err)
	}
	if n, err := CountPods(t.Context(), authorized, "n"); err != nil || n != 2 {
		t.Errorf("%d pods, %v", n, err)
	}
	for want, request := range map[string]func() error{
		"ConfigMap ns/counters has no key other": func() error {
			_, err := ReadConfigMapKey(t.Context(), authorized, "ns", "counters", "other")
			return err
		},
		"ConfigMap ns/none": func() error { _, err := ReadConfigMapKey(t.Context(), authorized, "ns", "none", "metrics"); return err },
		"it is forbidden": func() error {
			_, err := ReadConfigMapKey(t.Context(), unauthorized, "ns", "counters", "metrics")
			return err
		},
		"list the node's pods: it is forbid": func() error { _, err := CountPods(t.Context(), unauthorized, "n"); return err },
	} {
		t.Run(want, func(t *testing.T) {
			if err := request(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
