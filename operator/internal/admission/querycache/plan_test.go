package querycache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestPlanEscapesFacts(t *testing.T) {
	const hostile = `a"} or vector(1) #`
	for _, tc := range []struct{ name, query, want string }{
		{"namespace", `sum by (cluster) (quota{namespace="$namespace"})`, `sum by (cluster) (quota{namespace="a\"} or vector(1) #"})`},
		{
			"labels", `sum by (cluster) (quota{zone="$node_selector_zone",tier="$flavor_label_tier"})`,
			`sum by (cluster) (quota{tier="a\"} or vector(1) #",zone="a\"} or vector(1) #"})`,
		},
		{"absent label", `sum by (cluster) (quota{zone="$node_selector_absent"})`, `sum by (cluster) (quota{zone=~".+"})`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.query}})
			f.facts.Namespace = hostile
			f.facts.PodSets[0].NodeSelector = map[string]string{"zone": hostile}
			f.facts.PodSets[0].FlavorLabels = map[string]string{"tier": hostile}
			f.results(t)
			if !slices.Contains(f.source.queries, tc.want) {
				t.Errorf("queries %q\nwant %s", f.source.queries, tc.want)
			}
		})
	}
}

// The queries of a gate fit every source: $cluster_label is the label of the source.
func TestPlanExpandsTheClusterLabel(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{
		Queries:      v1alpha1.GateQueries{Fit: `sum by ($cluster_label) (free{model="$model"})`},
		Requirements: []v1alpha1.GateRequirement{{Name: "power", Query: `max by ($cluster_label) (power_ok)`, Scope: v1alpha1.ScopeCluster}},
	})
	f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "site"}, f.source)
	f.results(t)
	for _, want := range []string{`sum by (site) (free{model="NVIDIA-L4"})`, `max by (site) (power_ok)`} {
		if !slices.Contains(f.source.queries, want) {
			t.Errorf("queries %q\nwant %s", f.source.queries, want)
		}
	}
}

// mixedFleet is a script for promqltest: cluster1 has whole GPUs, MIG instances, GPUs for
// resource claims and TPUs, cluster2 has only MIG instances.
func mixedFleet() string {
	script := strings.Builder{}
	script.WriteString("load 1m\n")
	for _, d := range []struct {
		cluster, node, resource, model string
		free, all                      int
	}{
		{"cluster1", "n1", "nvidia.com/gpu", "NVIDIA-A100", 6, 8},
		{"cluster1", "n1", "nvidia.com/mig-1g.10gb", "NVIDIA-A100-MIG-1g.10gb", 21, 28},
		{"cluster1", "n2", "gpu.nvidia.com", "NVIDIA-A100", 5, 8},
		{"cluster1", "n3", "google.com/tpu", "tpu-v5-lite-podslice", 8, 8},
		{"cluster2", "m1", "nvidia.com/mig-1g.10gb", "NVIDIA-A100-MIG-1g.10gb", 14, 14},
	} {
		labels := fmt.Sprintf("cluster=%q,resource=%q,model=%q", d.cluster, d.resource, d.model)
		fmt.Fprintf(&script, "  node_resource_model:plimsoll_free_devices:placeable{%s,node=%q} %d\n", labels, d.node, d.free)
		fmt.Fprintf(&script, "  cluster_resource_model:plimsoll_free_devices:sum{%s} %d\n", labels, d.free)
		fmt.Fprintf(&script, "  cluster_resource_model:plimsoll_node_free_devices:max{%s} %d\n", labels, d.free)
		fmt.Fprintf(&script, "  cluster_resource_model:plimsoll_devices:sum{%s} %d\n", labels, d.all)
	}
	return script.String()
}

// A pod needs devices of the resource that it requests. Other devices of the same model
// do not count.
func TestPlanQueriesTheRequestedResource(t *testing.T) {
	store := promqltest.LoadedStorage(t, mixedFleet())
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	source := query.QuerierFunc(func(ctx context.Context, expr string, _ time.Time) (response query.Result, err error) {
		q, err := engine.NewInstantQuery(ctx, store, nil, expr, time.Unix(0, 0))
		if err != nil {
			return response, err
		}
		vector, err := q.Exec(ctx).Vector()
		for _, s := range vector {
			response.Samples = append(response.Samples, query.Sample{Labels: s.Metric.Map(), Value: s.F})
		}
		return response, err
	})
	metrics := func(fit, free, all, largest float64) gate.ShapeMetrics {
		return gate.ShapeMetrics{Fit: gate.Known(fit), DeviceFit: gate.Known(fit), Headroom: gate.Known(free), Capacity: gate.Known(all), Largest: gate.Known(largest)}
	}
	for _, tc := range []struct {
		name, resource, model string
		cluster1, cluster2    gate.ShapeMetrics
	}{
		{"GPUs of a model", "nvidia.com/gpu", "NVIDIA-A100", metrics(3, 6, 8, 6), gate.ShapeMetrics{}},
		{"GPUs of any model", "nvidia.com/gpu", "", metrics(3, 6, 8, 6), gate.ShapeMetrics{}},
		{"MIG instances of a model", "nvidia.com/mig-1g.10gb", "NVIDIA-A100-MIG-1g.10gb", metrics(10, 21, 28, 21), metrics(7, 14, 14, 14)},
		{"MIG instances of any model", "nvidia.com/mig-1g.10gb", "", metrics(10, 21, 28, 21), metrics(7, 14, 14, 14)},
		{"TPUs", "google.com/tpu", "", metrics(4, 8, 8, 8), gate.ShapeMetrics{}},
		{"devices that no cluster has", "amd.com/gpu", "", gate.ShapeMetrics{}, gate.ShapeMetrics{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{})
			f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, source)
			f.facts.PodSets = []shape.PodSet{{Name: "main", Resource: tc.resource, Model: tc.model, DevicesPerPod: 2, Pods: 1}}
			got, fleet := f.results(t)
			if fleet.Problem != "" {
				t.Error(fleet.Problem)
			}
			for name, want := range map[string]gate.ShapeMetrics{"cluster1": tc.cluster1, "cluster2": tc.cluster2} {
				want.Measured = map[string]bool{}
				if diff := cmp.Diff(want, got[name].Shapes[0]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// Results are kept for as long as a decision may use them, even if no workload needs them
// meanwhile. With onStale Open, decisions depend on the time of the last success for
// unknownAfterSeconds.
func TestPlanKeepsResultsWhileTheyMayDecide(t *testing.T) {
	for _, tc := range []struct {
		name      string
		freshness v1alpha1.GateFreshness
	}{
		{"maxSampleAge", v1alpha1.GateFreshness{MaxSampleAgeSeconds: 300, UnknownAfterSeconds: 300}},
		{"unknownAfter with onStale Open", v1alpha1.GateFreshness{OnStale: v1alpha1.StaleOpen, UnknownAfterSeconds: 300}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{Freshness: tc.freshness, Requirements: []v1alpha1.GateRequirement{
				{Name: "freeze", Query: `freeze`, Scope: v1alpha1.ScopeFleet},
			}})
			f.source.responses["floor("], f.source.responses["freeze"] = series("cluster1", 3.0), series("", 0.0)
			f.setSampleAge(5)
			f.results(t)
			f.source.err = errors.New("connection refused")
			f.clock.add(299 * time.Second)
			f.cleanUp()
			got, fleet := f.results(t)
			if !fleet.Requirements[0].EvaluatedAt.Equal(noon) || !got["cluster1"].SampledAt.Equal(noon.Add(-5*time.Second)) {
				t.Errorf("299 s after the last success: %+v, sampled at %s", fleet.Requirements[0], got["cluster1"].SampledAt)
			}
			f.clock.add(301 * time.Second)
			if f.cleanUp(); len(f.Cache.results) != 0 || len(f.plans) != 0 {
				t.Errorf("%d results and %d plans are left after the TTL", len(f.Cache.results), len(f.plans))
			}
		})
	}
}

// TestUnusableSourceKeepsItsResults: the Secret of a source with another cluster label is deleted.
func TestUnusableSourceKeepsItsResults(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	info := query.SourceInfo{Name: "thanos", ClusterLabel: "site"}
	f.sources.Set(info, f.source)
	usable := f.KeyOf(f.gate, f.facts)
	f.sources.SetUnusable(info, errors.New("no Secret"))
	if key := f.KeyOf(f.gate, f.facts); key != usable {
		t.Errorf("the results of the key %+v are not found with %+v", usable, key)
	}
}

// Two workloads of a new shape are decided at once. A refresh that one of them requested is
// not lost.
func TestConcurrentPlansKeepRequestedRefreshes(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	key := f.KeyOf(f.gate, f.facts)
	late := newPlan(key, f.gate, f.facts) // created before the other workload's plan was stored
	f.plan(key, f.gate, f.facts)
	f.Refresh(key, noon)
	f.usePlan(key, late)
	if _, newerThan := f.refreshTarget(key); !newerThan.Equal(noon) {
		t.Errorf("the next refresh accepts results from %s, want from %s on", newerThan, noon)
	}
}

// The generations of a gate that was deleted and created again start from 1.
func TestRecreatedGateHasItsOwnPlans(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.gate.UID, f.gate.Generation = "first", 1
	f.source.responses["floor("] = series("cluster1", 3.0)
	if got := f.fit(t); got != gate.Known(3) {
		t.Fatalf("fit %v, want 3", got)
	}
	f.source.responses["other_fit"] = series("cluster1", 7.0)
	f.gate.UID, f.gate.Spec.Queries.Fit = "second", "other_fit"
	if got := f.fit(t); got != gate.Known(7) {
		t.Errorf("fit %v, want the 7 of the new gate's query", got)
	}
}
