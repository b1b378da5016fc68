package querycache

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// newHub returns a client of a hub whose ManagedClusters have these values of the label
// "prometheus", by cluster name. Each has the claim "id" with "id-" and the name.
func newHub(t *testing.T, labels map[string]string, funcs interceptor.Funcs) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(funcs)
	for name, label := range labels {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"prometheus": label}}}
		c.Spec.HubAcceptsClient = true
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "id", Value: "id-" + name}}
		hub.WithObjects(c)
	}
	return hub.Build()
}

func TestFetchMapsSeriesToClusters(t *testing.T) {
	hub := newHub(t, map[string]string{"a": "one", "b": "two", "c": "two", "d": "two", "e": ""}, interceptor.Funcs{})
	for _, tc := range []struct {
		name         string
		match        v1alpha1.ClusterMatch
		key          string
		response     query.Result
		want         map[string]gate.Number
		wantUnmapped []float64
	}{
		{
			name: "label value is the name", match: v1alpha1.MatchName,
			response: series("a", 1.0, "elsewhere", 2.0, "", 3.0),
			want:     map[string]gate.Number{"a": gate.Known(1), "elsewhere": gate.Known(2)}, wantUnmapped: []float64{3},
		},
		{
			name: "unknown and shared values of a label map to no cluster", match: v1alpha1.MatchLabel, key: "prometheus",
			response: series("one", 1.0, "two", 2.0, "a", 3.0, "", 4.0),
			want:     map[string]gate.Number{"a": gate.Known(1)}, wantUnmapped: []float64{2, 3, 4},
		},
		{
			name: "claim", match: v1alpha1.MatchClusterClaim, key: "id",
			response: series("id-a", 1.0, "id-e", 2.0, "e", 3.0),
			want:     map[string]gate.Number{"a": gate.Known(1), "e": gate.Known(2)}, wantUnmapped: []float64{3},
		},
		{
			name: "unusable values", match: v1alpha1.MatchName,
			response: series("a", math.NaN(), "b", math.Inf(1), "c", 1.0, "c", 1.0),
			want:     map[string]gate.Number{"a": {}, "b": {}, "c": {}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{})
			f.hub = hub
			f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: string(tc.match), Key: tc.key}, f.source)
			f.source.responses["expr"] = tc.response
			source, result := f.querySource(t.Context(), "thanos", "cluster"), &cachedResult{queriedAt: noon}
			if err := source.fetch(t.Context(), "expr", result); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, result.values, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			sorted := cmpopts.SortSlices(func(a, b float64) bool { return a < b })
			if diff := cmp.Diff(tc.wantUnmapped, result.unmappedValues, sorted); diff != "" {
				t.Errorf("unmapped values (-want +got):\n%s", diff)
			}
		})
	}
}

// Several series of unmapped clusters do not contradict each other. They count for
// requirements on the fleet.
func TestFetchIgnoresUnmappedSeriesOfClusters(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{Requirements: []v1alpha1.GateRequirement{{Name: "budget", Query: `budget`, Scope: v1alpha1.ScopeFleet}}})
	f.mapByLabel(newHub(t, map[string]string{"cluster1": "eu"}, interceptor.Funcs{}))
	f.source.responses["floor("] = series("eu", 3.0, "us", 4.0, "asia", 5.0)
	f.source.responses["budget"] = series("us", 0.0, "asia", 1.0)
	got, fleet := f.results(t)
	if fleet.Incomplete || fleet.Requirements[0].Number != gate.Known(1) {
		t.Errorf("fleet: %+v, want complete results and a met requirement", fleet)
	}
	if n := got["cluster1"].Shapes[0].Fit; n != gate.Known(3) {
		t.Errorf("fit of cluster1: %+v, want 3", n)
	}
}

// The mapping is only needed to run queries, not to serve cached results.
func TestFetchListsManagedClustersOnlyToQuery(t *testing.T) {
	lists := 0
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.mapByLabel(newHub(t, map[string]string{"cluster1": "eu"}, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, list, opts...)
		},
	}))
	f.results(t)
	listsToQuery := lists
	for range 5 {
		f.results(t)
	}
	if listsToQuery == 0 || lists != listsToQuery {
		t.Errorf("listed %d times to query, and %d times for cached results", listsToQuery, lists-listsToQuery)
	}
}

func TestFetchFailsWithoutTheMapping(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.mapByLabel(newHub(t, nil, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("cache not started")
		},
	}))
	if _, fleet := f.results(t); fleet.Problem != "sampleTime: list ManagedClusters: cache not started" {
		t.Errorf("problem %q", fleet.Problem)
	}
	want := "failing: capacity, deviceFit, emptyFit, excess, fit, headroom, largest, largestNode, measured, sampleTime: list ManagedClusters: cache not started"
	if got := f.failureMessage(); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// Sample times belong only to results that were queried after them.
func TestFetchQueriesSampleTimesFirst(t *testing.T) {
	// begin returns a fixture 10 s after the first query. Its samples are from first.
	begin := func(t *testing.T) (f *fixture, first time.Time) {
		f = newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
		f.source.responses["floor("] = series("cluster1", 3.0)
		first = noon.Add(-5 * time.Second)
		f.setSampleAge(5)
		if got := f.sampledAt(t); !got.Equal(first) {
			t.Fatalf("sampled at %s, want %s", got, first)
		}
		f.clock.add(10 * time.Second)
		f.setSampleAge(5)
		return f, first
	}
	t.Run("the fit of another key is newer", func(t *testing.T) {
		f, first := begin(t)
		small := f.facts.PodSets
		f.facts.PodSets = podSets("NVIDIA-L4", 4)
		f.results(t)
		f.refresh()
		if got, want := f.sampledAt(t), first.Add(10*time.Second); !got.Equal(want) {
			t.Errorf("new fit: sampled at %s, want %s", got, want)
		}
		f.facts.PodSets = small
		if got := f.sampledAt(t); !got.Equal(first) {
			t.Errorf("fit of 10 s ago: sampled at %s, want %s", got, first)
		}
	})
	t.Run("the fit fails", func(t *testing.T) {
		f, first := begin(t)
		f.source.failing = "floor("
		f.refresh()
		if got := f.sampledAt(t); !got.Equal(first) {
			t.Errorf("sampled at %s, want %s: the last fit keeps its sample time", got, first)
		}
	})
}

func TestFetchLogsTransitions(t *testing.T) {
	var (
		mu    sync.Mutex
		lines []string
	)
	logger := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{Verbosity: 1})
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	expect := func(when string, wait time.Duration, parts ...string) {
		t.Helper()
		lines = nil
		f.clock.add(wait)
		f.Candidates(log.IntoContext(t.Context(), logger), f.gate, f.facts)
		if len(lines) != len(parts) {
			t.Errorf("%s: %d log lines, want %d:\n%s", when, len(lines), len(parts), strings.Join(lines, "\n"))
		}
		for _, part := range parts {
			if !strings.Contains(strings.Join(lines, "\n"), part) {
				t.Errorf("%s: no log line with %q:\n%s", when, part, strings.Join(lines, "\n"))
			}
		}
	}
	const skipped = `"msg"="Skipped query: the query for sample times failed" "gate"="gpu" "source"="thanos" "query"=`
	expect("all succeed", time.Minute)
	f.source.failing = "floor("
	expect("fit fails", time.Minute, `"Query failed; its last values stay in use until they are too old" "error"="too heavy" "gate"="gpu" "source"="thanos" "query"="fit"`, `"query"="deviceFit"`)
	expect("fit fails again", time.Minute)
	f.source.failing, f.source.err = "", errors.New("connection refused")
	expect("the source fails", time.Minute, `"error"="connection refused" "gate"="gpu" "source"="thanos" "query"="sampleTime"`,
		skipped+`"excess"`, skipped+`"fit"`, skipped+`"deviceFit"`, skipped+`"measured"`, skipped+`"emptyFit"`, skipped+`"largestNode"`, skipped+`"headroom"`, skipped+`"capacity"`, skipped+`"largest"`)
	f.source.err = nil
	expect("all succeed again", time.Minute, `"Query succeeded again" "gate"="gpu" "source"="thanos" "query"="sampleTime"`,
		`"Query succeeded again" "gate"="gpu" "source"="thanos" "query"="fit"`, `"Query succeeded again" "gate"="gpu" "source"="thanos" "query"="deviceFit"`)
	const cached = `"Used cached query results" "gate"="gpu" "queries"=`
	expect("all results are cached", 0, cached+"1", cached+"9")
}

// stuckSource signals each query and responds after a receive from respond.
type stuckSource struct{ queried, respond chan struct{} }

func newStuckSource() *stuckSource {
	return &stuckSource{queried: make(chan struct{}, 100), respond: make(chan struct{})}
}

func (s *stuckSource) Query(ctx context.Context, _ string, _ time.Time) (query.Result, error) {
	s.queried <- struct{}{}
	select {
	case <-s.respond:
		return series("cluster1", 3.0), nil
	case <-ctx.Done():
		return query.Result{}, ctx.Err()
	}
}
