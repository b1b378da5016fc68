package querycache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Within a period decisions use the cached results. A refresh beside them provides the
// results of the next decisions.
func TestRefreshRunsBesideDecisions(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.results(t)
	queries := len(f.source.queries)

	f.clock.add(14 * time.Second)
	f.source.responses["floor("] = series("cluster1", 2.0)
	for range 5 {
		if got := f.fit(t); got != gate.Known(3) || len(f.source.queries) != queries {
			t.Fatalf("fit %v after %d more queries, want the cached 3 after none", got, len(f.source.queries)-queries)
		}
	}
	if n := f.refreshQueue().Len(); n != 1 {
		t.Fatalf("%d keys are queued, want 1", n)
	}
	f.refreshQueued(t)
	if got := f.fit(t); got != gate.Known(2) || len(f.source.queries) != queries+10 || f.refreshQueue().Len() != 0 {
		t.Errorf("fit %v after %d more queries, want 2 after 10; %d keys are queued", got, len(f.source.queries)-queries, f.refreshQueue().Len())
	}

	f.clock.add(15 * time.Second)
	f.source.responses["floor("] = series("cluster1", 1.0)
	if got := f.fit(t); got != gate.Known(1) {
		t.Errorf("fit %v after a period without decisions, want 1 from a new query", got)
	}
}

// The duration of a slow refresh does not make its results old.
func TestRefreshOfASlowSourceRunsOnce(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.source.fitTakes = 1100 * time.Millisecond
	f.plan(f.KeyOf(f.gate, f.facts), f.gate, f.facts)
	f.refresh()
	f.results(t)
	if n := f.refreshQueue().Len(); n != 0 {
		t.Error("the decision after the refresh requests another refresh")
	}
}

// start runs Start until the returned function is called.
func (f *fixture) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Start(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Eight decisions run beside a query that hangs. None of them waits, the query runs once,
// and the end of the operator cancels it.
func TestStartEndsWithTheOperator(t *testing.T) {
	before := goleak.IgnoreCurrent()
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.results(t)
	source := newStuckSource()
	f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, source)
	f.clock.add(10 * time.Second)

	stop := f.start(t)
	var decisions sync.WaitGroup
	for range 8 {
		decisions.Go(func() {
			if got := f.fit(t); got != gate.Known(3) {
				t.Errorf("fit %v, want the cached 3", got)
			}
		})
	}
	decisions.Wait()
	<-source.queried
	stop()
	if n := len(source.queried); n != 0 {
		t.Errorf("%d more queries while the first one hangs, want none", n)
	}
	goleak.VerifyNone(t, before)
}

// A source that hangs does not delay the refresh of another source.
func TestStartIsolatesSources(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.sources.Set(query.SourceInfo{Name: "hanging", ClusterLabel: "cluster"}, newStuckSource())
	refreshed := make(chan string, 100)
	f.OnRefreshed(func(key gatestate.QueryKey, _ time.Time) { refreshed <- key.Source })
	stop := f.start(t)
	request := func(source, model string) {
		g, facts := f.gate, f.facts
		g.Spec.SourceRef.Name, facts.PodSets = source, podSets(model, 1)
		key := f.KeyOf(g, facts)
		f.plan(key, g, facts)
		f.Refresh(key, f.clock.now())
	}
	for i := range 2 * refreshWorkers {
		request("hanging", fmt.Sprint("model-", i))
	}
	request("thanos", "NVIDIA-L4")
	if got := <-refreshed; got != "thanos" {
		t.Errorf("refreshed %s first, want thanos", got)
	}
	stop()
}

// A namespace with 1,000 shapes delays the refresh of another namespace by its share, not by
// its 1,000 plans.
func TestNamespacesTakeTurnsInARefresh(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	var order []string
	f.OnRefreshed(func(key gatestate.QueryKey, _ time.Time) { order = append(order, key.Namespace) })
	request := func(namespace string, pods int64) {
		facts := f.facts
		facts.Namespace, facts.PodSets = namespace, podSets("NVIDIA-L4", pods)
		key := f.KeyOf(f.gate, facts)
		f.plan(key, f.gate, facts)
		f.Refresh(key, f.clock.now())
	}
	for i := range 1000 {
		request("flood", int64(i+1))
	}
	request("team", 1)
	for f.refreshQueue().Len() > 0 {
		f.refreshQueued(t)
	}
	if got := slices.Index(order, "team"); got > 1 || len(order) != 1001 {
		t.Errorf("the other namespace is refresh %d of %d, want the second", got+1, len(order))
	}
}
