package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// logLines is a log whose lines a test receives.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Tenants write the metadata of pods. Only what the options need is kept.
func TestWatcherDropsUnusedMetadata(t *testing.T) {
	requests := map[string]string{"gpu-fraction": "0.5", "gpu-memory": "1", "gpu-fraction-container-name": "c", podmap.HAMiAnnotation: "x"}
	annotations := maps.Clone(requests)
	annotations["token"] = "secret"
	controller := func(name, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "batch/v1", Kind: kind, Name: name, UID: "u", Controller: ptr.To(true)}
	}
	job, long := controller("train", "Job"), strings.Repeat("x", 254)
	labels := map[string]string{"team": "ml", "runai-gpu-group": "g", "runai-gpu-group/h": "h"}
	for _, tc := range []struct {
		name       string
		options    Options
		controller metav1.OwnerReference
		labels     map[string]string
		kept       []metav1.OwnerReference
	}{
		{"nothing", Options{}, job, map[string]string{}, nil},
		{"owners", Options{Owners: true}, job, map[string]string{}, []metav1.OwnerReference{job}},
		{"long name of an owner", Options{Owners: true}, controller(long, "Job"), map[string]string{}, nil},
		{"long kind of an owner", Options{Owners: true}, controller("train", long[:64]), map[string]string{}, nil},
		{"labels", Options{Label: func(key string) bool { return key == "team" }}, job, map[string]string{"team": "ml"}, nil},
		{"KAI", Options{Fractions: true}, job, map[string]string{"runai-gpu-group": "g", "runai-gpu-group/h": "h"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1", Annotations: maps.Clone(annotations), Labels: maps.Clone(labels), Finalizers: []string{"a/b"},
				ManagedFields: []metav1.ManagedFieldsEntry{{}}, OwnerReferences: []metav1.OwnerReference{{Name: "other"}, tc.controller}}}
			object, err := tc.options.dropUnusedMetadata(m)
			if err != nil {
				t.Fatal(err)
			}
			want := metav1.ObjectMeta{Name: "p", UID: "1", Annotations: requests, Labels: tc.labels, OwnerReferences: tc.kept}
			if diff := cmp.Diff(want, object.(*metav1.PartialObjectMetadata).ObjectMeta); diff != "" {
				t.Error(diff)
			}
		})
	}
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podmap.HAMiAnnotation: strings.Repeat("x", maxAnnotation+1)}}}
	if object, _ := (Options{}).dropUnusedMetadata(m); len(object.(*metav1.PartialObjectMetadata).Annotations) > 0 {
		t.Error("an annotation of any size is kept")
	}
}

// The cgroup of a static pod has the UID of the kubelet, and its mirror in the API server another one.
func TestPodByUID(t *testing.T) {
	w, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, Options{Node: "n", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []struct{ name, uid, mirrored string }{
		{"static", "m-1", "hash-1"}, {"plain", "u-1", ""}, {"forged", "m-2", "u-1"}, {"twice-a", "m-3", "hash-2"}, {"twice-b", "m-4", "hash-2"},
	} {
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: pod.name, UID: types.UID(pod.uid), Annotations: map[string]string{"kubernetes.io/config.hash": "u-1"}}}
		if pod.mirrored != "" {
			m.Annotations = map[string]string{"kubernetes.io/config.mirror": pod.mirrored, "kubernetes.io/config.hash": pod.mirrored}
		}
		object, err := Options{}.dropUnusedMetadata(m)
		if err := errors.Join(err, w.informer.GetIndexer().Add(object)); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[string]string{"hash-1": "static", "m-1": "static", "u-1": "plain", "hash-2": "", "other": "", "": ""} {
		if _, name, ok := w.PodByUID(uid); name != want || ok != (want != "") {
			t.Errorf("the pod with UID %q is %q, %t, want %q", uid, name, ok, want)
		}
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
