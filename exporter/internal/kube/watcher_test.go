package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// logLines is a log whose lines a test receives.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// The requests for KAI Scheduler and the devices of HAMi are kept of a pod's annotations.
func TestWatcherKeepsRequests(t *testing.T) {
	m := &metav1.PartialObjectMetadata{}
	m.Annotations = map[string]string{"gpu-fraction": "0.5", "gpu-memory": "1", "gpu-fraction-container-name": "c", podmap.HAMiAnnotation: "x", "token": "secret"}
	object, err := dropUnusedMetadata(m)
	if got := object.(*metav1.PartialObjectMetadata).Annotations; err != nil || len(got) != 4 || got["token"] != "" {
		t.Errorf("%v, %v", got, err)
	}
}

// A missing permission is logged with its reason, once, also right after the start. So is its end.
func TestWatcherLogsMissingPermission(t *testing.T) {
	var isPermitted atomic.Bool
	requests := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requests <- struct{}{}:
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !isPermitted.Load():
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"pods is forbidden","code":403}`)
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // the client has disconnected
			<-r.Context().Done()
		default:
			fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		}
	}))
	defer server.Close()
	lines := make(logLines, 100)
	w, err := New(&rest.Config{Host: server.URL}, Options{Node: "n", Log: slog.New(slog.NewTextHandler(lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	if line := <-lines; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "pods is forbidden") {
		t.Errorf("the log is %s", line)
	}
	for range 3 {
		<-requests
	}
	isPermitted.Store(true)
	if line := <-lines; !strings.Contains(line, "level=INFO") || !strings.Contains(line, "again") {
		t.Errorf("the log is %s", line)
	}
	stop()
	<-ended
}
