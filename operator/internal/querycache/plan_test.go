package querycache

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// mixed fleet: cluster1 has whole devices, instances, devices for claims and chips,
// cluster2 instances alone.
func mixed() string {
	script := strings.Builder{}
	script.WriteString("load 1m\n")
	for _, g := range []struct {
		cluster, node, resource, model string
		free, all                      int
	}{
		{"cluster1", "n1", "nvidia.com/gpu", "NVIDIA-A100", 6, 8},
		{"cluster1", "n1", "nvidia.com/mig-1g.10gb", "NVIDIA-A100-MIG-1g.10gb", 21, 28},
		{"cluster1", "n2", "gpu.nvidia.com", "NVIDIA-A100", 5, 8},
		{"cluster1", "n3", "google.com/tpu", "tpu-v5-lite-podslice", 8, 8},
		{"cluster2", "m1", "nvidia.com/mig-1g.10gb", "NVIDIA-A100-MIG-1g.10gb", 14, 14},
	} {
		of := fmt.Sprintf("cluster=%q,resource=%q,model=%q", g.cluster, g.resource, g.model)
		fmt.Fprintf(&script, "  node:plimsoll_free_devices:placeable{%s,node=%q} %d\n", of, g.node, g.free)
		fmt.Fprintf(&script, "  cluster_model:plimsoll_free_devices:sum{%s} %d\n", of, g.free)
		fmt.Fprintf(&script, "  cluster_model:plimsoll_node_free_devices:max{%s} %d\n", of, g.free)
		fmt.Fprintf(&script, "  cluster_model:plimsoll_devices:sum{%s} %d\n", of, g.all)
	}
	return script.String()
}

// A pod starts only on devices of the resource that it asks for, whatever else of
// the model is free.
func TestRoomIsOfTheResourceThatThePodsAskFor(t *testing.T) {
	store := promqltest.LoadedStorage(t, mixed())
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	ask := query.QuerierFunc(func(ctx context.Context, expr string, _ time.Time) (a query.Result, err error) {
		q, err := engine.NewInstantQuery(ctx, store, nil, expr, time.Unix(0, 0))
		if err != nil {
			return a, err
		}
		vector, err := q.Exec(ctx).Vector()
		for _, s := range vector {
			a.Samples = append(a.Samples, query.Sample{Labels: s.Metric.Map(), Value: s.F})
		}
		return a, err
	})
	n := func(fit, free, all, largest float64) gate.ShapeMetrics {
		return gate.ShapeMetrics{Fit: gate.Known(fit), Headroom: gate.Known(free), Capacity: gate.Known(all), Largest: gate.Known(largest)}
	}
	for _, tc := range []struct {
		resource, model string
		one, two        gate.ShapeMetrics
	}{
		{"nvidia.com/gpu", "NVIDIA-A100", n(3, 6, 8, 6), gate.ShapeMetrics{}},
		{"nvidia.com/gpu", "", n(3, 6, 8, 6), gate.ShapeMetrics{}},
		{"nvidia.com/mig-1g.10gb", "NVIDIA-A100-MIG-1g.10gb", n(10, 21, 28, 21), n(7, 14, 14, 14)},
		{"nvidia.com/mig-1g.10gb", "", n(10, 21, 28, 21), n(7, 14, 14, 14)},
		{"google.com/tpu", "", n(4, 8, 8, 8), gate.ShapeMetrics{}},
		{"amd.com/gpu", "", gate.ShapeMetrics{}, gate.ShapeMetrics{}},
	} {
		b := newFixture(v1alpha1.PlacementGateSpec{})
		b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, ask)
		b.facts.PodSets = []shape.PodSet{{Name: "main", Resource: tc.resource, Model: tc.model, DevicesPerPod: 2, Pods: 1}}
		got, fleet := b.Results(t.Context(), b.gate, b.facts)
		if fleet.Problem != "" {
			t.Error(fleet.Problem)
		}
		for name, want := range map[string]gate.ShapeMetrics{"cluster1": tc.one, "cluster2": tc.two} {
			if d := cmp.Diff(want, got[name].Shapes[0]); d != "" {
				t.Errorf("%s %q on %s (-want +got):\n%s", tc.resource, tc.model, name, d)
			}
		}
	}
}
