package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// BenchmarkCost measures the CPU of each phase of a publication in which every score changes, and
// that of a plain client which sends the same requests with the same concurrency. The API server
// is a constant response, so that only the costs of the operator count. Each metric is the median
// of all iterations, in microseconds per cluster; plain/all is the part of the CPU that a plain
// client needs, too. Nothing else runs meanwhile.
func BenchmarkCost(b *testing.B) {
	for _, clusters := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) { benchmarkCost(b, clusters) })
	}
}

func benchmarkCost(b *testing.B, clusters int) {
	hub := newConstantHub(b, clusters)
	p := &Publisher{Client: hub}
	plain := make([]runtime.ApplyConfiguration, clusters)
	cost := map[string][]float64{} // by phase
	measure := func(phase string, do func()) {
		before := cpuSeconds(b)
		do()
		cost[phase] = append(cost[phase], (cpuSeconds(b)-before)/float64(clusters)*1e6)
	}
	round := 0
	for b.Loop() {
		round++
		result := hub.result(int32(round % 100))
		req := Request{Owner: benchOwner, Name: "fleet", Valid: time.Hour, Now: now}
		report := &Report{Reasons: map[WriteReason]int{}}
		var writes []plannedWrite
		measure("desire", func() { req.Want = Desire(result, true, req.Valid) })
		measure("plan", func() { writes = hub.plan(b, req, report) })
		measure("write", func() { p.apply(b.Context(), req, writes, nil, report) })
		if report.Written != clusters || report.Err != nil {
			b.Fatalf("%+v", report)
		}
		for i, w := range writes {
			plain[i] = client.ApplyConfigurationFromUnstructured(statusPatch(req, w.want, w.live))
		}
		measure("plain", func() { hub.applyAll(b, plain) })
		req.Want = hub.unchanged(req.Want)
		measure("unchanged", func() { writes = hub.plan(b, req, &Report{}) })
		if len(writes) > 0 {
			b.Fatalf("%d writes although nothing changed", len(writes))
		}
	}
	medians := map[string]float64{}
	for phase, values := range cost {
		slices.Sort(values)
		medians[phase] = values[len(values)/2]
		b.ReportMetric(medians[phase], phase+"-us/cluster")
	}
	b.ReportMetric(medians["plain"]/(medians["desire"]+medians["plan"]+medians["write"]), "plain/all")
	b.ReportMetric(0, "ns/op")
}

var benchOwner = Owner{APIVersion: "plimsoll.dev/v1alpha1", Kind: "ScoringPolicy", Name: "p", UID: "1"}

// constantHub is a client of an API server that responds to every write with the same object, and
// whose cache has an object for each cluster.
type constantHub struct {
	client.Client
	objects []clusterv1alpha1.AddOnPlacementScore
}

func newConstantHub(b *testing.B, clusters int) *constantHub {
	b.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1alpha1.Install(scheme); err != nil {
		b.Fatal(err)
	}
	h := &constantHub{objects: make([]clusterv1alpha1.AddOnPlacementScore, clusters)}
	for i := range h.objects {
		o := &h.objects[i]
		o.Name, o.Namespace, o.OwnerReferences = "fleet", fmt.Sprintf("cluster-%05d", i), []metav1.OwnerReference{benchOwner.reference()}
		o.ManagedFields = live(0, valid).ManagedFields
	}
	response := h.objects[0].DeepCopy()
	response.SetGroupVersionKind(scoreKind)
	response.Status = live(5, valid).Status
	body, err := json.Marshal(response)
	if err != nil {
		b.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(scoreKind, meta.RESTScopeNamespace)
	config := &rest.Config{Host: "http://hub", QPS: -1, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, req.Body)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: req}, err
	})}
	if h.Client, err = client.New(config, client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		b.Fatal(err)
	}
	return h
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// result has three scores and a total of each cluster.
func (h *constantHub) result(value int32) *score.Result {
	r := &score.Result{Time: score.At(now), Names: []string{"fit", "free", "power", "total"}}
	for i := range h.objects {
		r.Clusters = append(r.Clusters, h.objects[i].Namespace)
		for range r.Names {
			r.Cells = append(r.Cells, score.Cell{Value: value, Points: float64(value)})
		}
	}
	return r
}

// plan does what Publish does before its writes.
func (h *constantHub) plan(b *testing.B, req Request, report *Report) []plannedWrite {
	byCluster := make(map[string]*clusterv1alpha1.AddOnPlacementScore, len(h.objects))
	for i := range h.objects {
		byCluster[h.objects[i].Namespace] = &h.objects[i]
	}
	writes := planWrites(req, byCluster, report)
	if n := len(unwanted(req, h.objects)); n > 0 {
		b.Fatalf("%d objects would be deleted", n)
	}
	return writes
}

// unchanged makes the objects what the request wants, and returns the request.
func (h *constantHub) unchanged(want []Desired) []Desired {
	for i := range want {
		until := metav1.NewTime(want[i].ValidUntil)
		h.objects[i].Status = clusterv1alpha1.AddOnPlacementScoreStatus{Scores: want[i].Scores, ValidUntil: &until, Conditions: want[i].Conditions}
	}
	return want
}

// applyAll sends requests with the concurrency of a Publisher.
func (h *constantHub) applyAll(b *testing.B, all []runtime.ApplyConfiguration) {
	var group errgroup.Group
	group.SetLimit(16)
	for _, one := range all {
		group.Go(func() error {
			return h.Status().Apply(context.Background(), one, FieldOwner, client.ForceOwnership)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func cpuSeconds(b *testing.B) float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
