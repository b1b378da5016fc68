package querycache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// noon is the time at which every test starts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

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

// fakeSource returns the response of the first key that the expression contains, and
// records every expression.
type fakeSource struct {
	mu sync.Mutex
	// fitTakes is the time by which each fit query advances the clock.
	clock     *clock
	fitTakes  time.Duration
	responses map[string]query.Result
	// err fails every query. failing fails those whose expression contains it.
	err     error
	failing string
	queries []string
}

func (s *fakeSource) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, expr)
	if strings.Contains(expr, "floor(") {
		s.clock.add(s.fitTakes)
	}
	if s.err != nil {
		return query.Result{}, s.err
	}
	if s.failing != "" && strings.Contains(expr, s.failing) {
		return query.Result{}, errors.New("too heavy")
	}
	for key, response := range s.responses {
		if strings.Contains(expr, key) {
			return response, nil
		}
	}
	return query.Result{}, nil
}

// queryCounts returns the number of queries by expression.
func (s *fakeSource) queryCounts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, expr := range s.queries {
		n[expr]++
	}
	return n
}

// series builds a response from pairs of cluster name and value. An empty name stands
// for a series without the cluster label.
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

// fixture is a cache with a fake source, a gate over two clusters and a workload that
// requests two devices for one pod.
type fixture struct {
	*Cache
	*clock
	source *fakeSource
	gate   registry.Gate
	facts  shape.Facts
}

func newFixture(spec v1alpha1.PlacementGateSpec) *fixture {
	c := &clock{time: noon}
	f := &fixture{source: &fakeSource{responses: map[string]query.Result{}, clock: c}, clock: c}
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, f.source)
	f.Cache = New(sources, ledger.New(time.Second, time.Hour), nil, c.now)
	spec.SourceRef.Name = "thanos"
	f.gate = registry.Gate{Name: "gpu", Spec: spec, Clusters: []registry.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}}
	f.facts = shape.Facts{UID: "uid", Namespace: "team-a", Name: "job", Queue: "gpu",
		PodSets: []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 2, Pods: 1}}}
	return f
}

// unixAt returns the time that is the given number of seconds from now, as a sample value.
func (f *fixture) unixAt(seconds float64) float64 { return float64(f.clock.now().Unix()) + seconds }

// refreshAll refreshes every result of the workload's key that is older than now.
func (f *fixture) refreshAll() {
	f.Refresh(f.KeyOf(f.gate, f.facts), f.clock.now())
	f.refreshNext(context.Background(), f.refreshQueue())
}

// refreshQueue returns the queue of keys to refresh.
func (f *fixture) refreshQueue() workqueue.TypedInterface[Key] {
	f.Cache.mu.Lock()
	defer f.Cache.mu.Unlock()
	if f.queues["thanos"] == nil {
		f.queues["thanos"] = workqueue.NewTyped[Key]()
	}
	return f.queues["thanos"]
}

// ledgerEntry returns the reservation of another workload of the same shape.
func (f *fixture) ledgerEntry(uid, cluster string) ledger.Entry {
	return ledger.Entry{UID: uid, Cluster: cluster, PodSets: f.facts.PodSets, DebitedAt: f.clock.now()}
}
