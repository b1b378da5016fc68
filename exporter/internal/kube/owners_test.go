package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// TestHostileOwnerReferences: the API server accepts any text as the name and version of an owner. A
// pod reads no other object through it.
func TestHostileOwnerReferences(t *testing.T) {
	var mu sync.Mutex
	var requested []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requested = append(requested, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}))
	defer server.Close()
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, version, want string }{
		{"train", "batch/v1", "/apis/batch/v1/namespaces/ml/jobs/train"},
		{"../../../../../../api/v1/namespaces/kube-system/secrets/token", "batch/v1", ""},
		{"..", "batch/v1", ""},
		{"train/status", "batch/v1", ""},
		{"%2e%2e", "batch/v1", ""},
		{"train", "batch/..", ""},
	} {
		t.Run(tc.version+" "+tc.name, func(t *testing.T) {
			requested = nil
			x := newOwnerIndex(client, slog.New(slog.DiscardHandler))
			top, err := x.findTop(t.Context(), "ml", metav1.OwnerReference{APIVersion: tc.version, Kind: "Job", Name: tc.name, UID: "u", Controller: ptr.To(true)})
			if err != nil || top != (owner{"Job", tc.name}) {
				t.Errorf("the owner is %v, %v", top, err)
			}
			if got := fmt.Sprint(requested); tc.want == "" && got != "[]" || tc.want != "" && got != "["+tc.want+"]" {
				t.Errorf("requests are %s, want %q", got, tc.want)
			}
		})
	}
}

// A controller names a controller that no object can be. The known one counts as the topmost.
func TestOwnerAboveOfAnyLength(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"ml","name":"train","uid":"u",`+
			`"ownerReferences":[{"apiVersion":"v1","kind":"Foo","name":%q,"uid":"v","controller":true}]}}`, strings.Repeat("x", 254))
	}))
	defer server.Close()
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	top, err := newOwnerIndex(client, slog.New(slog.DiscardHandler)).findTop(t.Context(), "ml", metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "u", Controller: ptr.To(true)})
	if err != nil || top != (owner{"Job", "train"}) {
		t.Errorf("the owner is %v, %v", top, err)
	}
}

// TestOwnersOfReplacedPods: while the watch is interrupted, a pod is deleted and created again. The
// owner of the first one is dropped.
func TestOwnersOfReplacedPods(t *testing.T) {
	var lists atomic.Int64
	interrupt := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path != "/api/v1/pods":
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Query().Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // the client has disconnected
			select {
			case <-r.Context().Done():
			case <-interrupt:
				fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
			}
		default:
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%[1]d"},"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+
				`"metadata":{"namespace":"ml","name":"p-0","uid":"%[1]d","resourceVersion":"%[1]d","ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"p","uid":"s","controller":true}]}}]}`, lists.Add(1))
		}
	}))
	defer server.Close()
	w, err := New(&rest.Config{Host: server.URL}, Options{Node: "n", Owners: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	defer func() { stop(); <-ended }()
	await := func(uid types.UID) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			meta, _ := w.Pod("ml", "p-0")
			w.owners.mu.Lock()
			_, isKept := w.owners.pods[uid]
			n := len(w.owners.pods)
			w.owners.mu.Unlock()
			if meta.UID == string(uid) && isKept && n == 1 {
				return
			}
		}
		t.Fatalf("the owner of pod %s is not the only one: %v", uid, w.owners.pods)
	}
	await("1")
	close(interrupt)
	await("2")
}
