package embedded

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveNode serves the metrics of one node with 8 GPUs, as the exporter and
// kube-state-metrics do.
func serveNode(t *testing.T, free *atomic.Int64) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		labels := `node="n1",resource="nvidia.com/gpu",model="H100"`
		fmt.Fprintf(w, "plimsoll_exporter_last_collection_timestamp_seconds{node=\"n1\"} %f\n", float64(time.Now().UnixMilli())/1000)
		fmt.Fprintf(w, "plimsoll_node_devices{%s,state=\"free\"} %d\n", labels, free.Load())
		fmt.Fprintf(w, "plimsoll_node_devices{%s,state=\"allocatable\"} 8\n", labels)
		fmt.Fprintf(w, "plimsoll_node_devices{%s,state=\"unhealthy\"} 0\n", labels)
		fmt.Fprint(w, "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-1\"} 50\n")
		fmt.Fprint(w, "kube_node_status_condition{node=\"n1\",condition=\"Ready\",status=\"true\"} 1\nkube_node_spec_unschedulable{node=\"n1\"} 0\n")
		fmt.Fprint(w, "kube_node_status_capacity{node=\"n1\",resource=\"nvidia_com_gpu\"} 8\n")
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func job(name string, gpus int64) *batchv1.Job {
	limits := corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"nvidia.com/gpu.product": "H100"},
			Containers:   []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}},
		}}}}
}

func readManifest(t *testing.T, object string) Manifest {
	t.Helper()
	var m Manifest
	var err error
	if m.Object, err = os.ReadFile("../../config/samples/hub/" + object); err != nil {
		t.Fatal(err)
	}
	return m
}

// The shipped rules, the sample policy and the sample gate decide about two jobs that each
// need all devices of a node. The metrics do not change in between: only the ledger keeps
// the second job from the same devices.
func TestHubPlacesJobsByMetricsAndLedger(t *testing.T) {
	var free atomic.Int64
	free.Store(8)
	ctx := t.Context()
	p, err := NewPrometheus(PrometheusOptions{
		RuleFiles: []string{"../../rules/recording-nodes.yaml", "../../rules/recording-devices.yaml"}, Logger: slog.New(slog.DiscardHandler),
		Targets: []Target{{Cluster: "c1", Address: serveNode(t, &free)}, {Cluster: "c2", Address: "127.0.0.1:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.engine.Close() }()
	if err := p.Collect(ctx); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("Collect returned %v, want the failure of c2's target", err)
	}
	gateManifest := readManifest(t, "gate.yaml")
	h, err := NewHub(t.Context(), HubOptions{
		Policy: readManifest(t, "policy.yaml"), Gate: gateManifest,
		Clusters: []string{"c1", "c2"}, Source: p.Query,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Round(ctx)
	if got := h.Scores("c1"); got["headroom"] != 13 || got["idle"] != 50 || got["total"] != 31 {
		t.Errorf("the scores of c1 are %v, want headroom 13 (8 of 64), utilization 50, total 31", got)
	}
	if got := h.Scores("c2"); got["total"] != -100 {
		t.Errorf("the scores of c2 are %v, want -100 for a cluster without metrics", got)
	}
	if pods, err := h.Fit(ctx, job("first", 3), "c1"); err != nil || pods != 2 {
		t.Errorf("%d pods of 3 devices fit on c1, want 2: %v", pods, err)
	}
	if pods, err := h.Fit(ctx, job("first", 3), "c2"); err == nil {
		t.Errorf("%d pods fit on c2, want an error for a cluster without metrics", pods)
	}
	decide := func(name string) Decision {
		t.Helper()
		d, err := h.Decide(ctx, job(name, 8))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := decide("first")
	if first.Cluster != "c1" {
		t.Fatalf("first: %+v, want c1", first)
	}
	d := decide("second")
	if d.Cluster != "" || !strings.Contains(d.Message, "8 devices there promised to other workloads") {
		t.Errorf("second: %+v, want to wait for the devices that were promised to first", d)
	}
	for _, want := range []string{"team-a/job-second", "1 pod of 8 H100", "team-a/job-first  c1"} {
		if !strings.Contains(d.Explanation, want) {
			t.Errorf("%q is missing from the explanation:\n%s", want, d.Explanation)
		}
	}
	if strings.Contains(d.Explanation, "Holds") {
		t.Errorf("a job that has just arrived holds a cluster:\n%s", d.Explanation)
	}
	h.Ended(first)
	if d := decide("second"); d.Cluster != "c1" {
		t.Errorf("second after first ended: %+v, want c1", d)
	}
}

func TestManifestGetsPatchAndDefaults(t *testing.T) {
	m := readManifest(t, "gate.yaml")
	m.Patch = []byte(`{"spec":{"periodSeconds":2,"freshness":{"maxSampleAgeSeconds":20}}}`)
	invalid := m
	invalid.Patch = []byte(`{"spec":{"periodSeconds":-1}}`)
	if _, err := NewHub(t.Context(), HubOptions{Policy: readManifest(t, "policy.yaml"), Gate: invalid}); err == nil {
		t.Error("a gate with periodSeconds -1 is accepted")
	}
	h, err := NewHub(t.Context(), HubOptions{Policy: readManifest(t, "policy.yaml"), Gate: m})
	if err != nil {
		t.Fatal(err)
	}
	spec := h.gate.Spec
	if spec.PeriodSeconds != 2 || spec.Freshness.MaxSampleAgeSeconds != 20 || spec.Freshness.UnknownAfterSeconds != 300 ||
		len(spec.ModelFrom) == 0 || spec.SourceRef.Name != "thanos" {
		t.Errorf("the gate has %+v, want the values of the patch, the object and the CRD", spec)
	}
}
