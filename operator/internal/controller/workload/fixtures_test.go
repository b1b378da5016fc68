package workload

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// clock is a clock that tests advance.
type clock struct {
	mu   sync.Mutex
	time time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
}

// fakeSource returns the result of the first key that the expression contains.
type fakeSource struct {
	mu      sync.Mutex
	results map[string]query.Result
	err     error
	// fails is a part of the expressions that fail.
	fails   string
	queries []string
}

func (s *fakeSource) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, expr)
	if s.err != nil {
		return query.Result{}, s.err
	}
	if s.fails != "" && strings.Contains(expr, s.fails) {
		return query.Result{}, errors.New("too heavy")
	}
	for key, result := range s.results {
		if strings.Contains(expr, key) {
			return result, nil
		}
	}
	return query.Result{}, nil
}

// series builds a result from pairs of cluster name and value.
func series(values ...any) query.Result {
	var a query.Result
	for i := 0; i < len(values); i += 2 {
		labels := map[string]string{}
		if name := values[i].(string); name != "" {
			labels["cluster"] = name
		}
		a.Samples = append(a.Samples, query.Sample{Labels: labels, Value: values[i+1].(float64)})
	}
	return a
}

// bench is a gate over two clusters, a fake source and a workload that requests two
// devices for one pod.
type bench struct {
	*clock
	cache  *querycache.Cache
	ledger *ledger.Ledger
	source *fakeSource
	gate   registry.Gate
	facts  shape.Facts
}

func newBench(spec v1alpha1.PlacementGateSpec) *bench {
	c := &clock{time: noon}
	b := &bench{source: &fakeSource{results: map[string]query.Result{}}, clock: c, ledger: ledger.New(time.Second, time.Hour)}
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, b.source)
	b.cache = querycache.New(sources, b.ledger, nil, c.now)
	spec.SourceRef.Name = "thanos"
	b.gate = registry.Gate{Name: "gpu", Spec: spec, Clusters: []registry.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}}
	b.facts = shape.Facts{UID: "uid", Namespace: "team-a", Name: "job", Queue: "gpu",
		PodSets: []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 2, Pods: 1}}}
	return b
}

func (b *bench) at(seconds float64) float64 { return float64(b.clock.now().Unix()) + seconds }
