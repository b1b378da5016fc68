package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// A pod that has ended has no share, also if the kubelet still lists it. Another pod may have its name.
func TestEndedPodHasNoFraction(t *testing.T) {
	pod := func(name, uid string) string {
		return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"ml","name":%q,"uid":%q,"labels":{"runai-gpu-group":"g"},"annotations":{"gpu-fraction":"0.5"}}}`, name, uid)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items := []string{pod("runs", "1"), pod("ended", "2"), pod("replaced", "4")}
		switch r.URL.Query().Get("fieldSelector") {
		case "spec.nodeName=n":
		case "spec.nodeName=n,status.phase!=Pending,status.phase!=Running,status.phase!=Unknown":
			items = []string{pod("ended", "2"), pod("replaced", "3")}
		default:
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") != "": // client-go lists instead
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // the client has disconnected
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(items, ","))
		}
	}))
	defer server.Close()
	w, err := New(&rest.Config{Host: server.URL, QPS: -1}, Options{Node: "n", Fractions: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	if !w.WaitForList(t.Context()) {
		t.Fatal("the pods are not listed")
	}
	half := podmap.Fraction{Groups: []string{"g"}, Ratio: 0.5}
	for name, want := range map[string]podmap.Fraction{"runs": half, "ended": {}, "replaced": half} {
		got, ok := w.Fraction("ml", name)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: known %t (-want +got):\n%s", name, ok, diff)
		}
	}
	stop()
	<-done
}
