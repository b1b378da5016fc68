package querycache

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestResultsAreSharedByKey(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.source.responses["floor("] = series("cluster1", 3.0)
	for range 5 {
		f.results(t)
	}
	if got := len(f.source.queries); got != 10 {
		t.Errorf("five workloads with one key ran %d queries, want 10: %q", got, f.source.queries)
	}
	other := f.facts
	other.PodSets = podSets("NVIDIA-L4", 4)
	if f.Candidates(t.Context(), f.gate, other); len(f.source.queries) != 12 {
		t.Errorf("another size must run only the queries that depend on the size, ran %q", f.source.queries[10:])
	}
	f.clock.add(time.Millisecond)
	if f.refresh(); len(f.source.queries) != 22 {
		t.Errorf("%d queries after a refresh, want 22", len(f.source.queries))
	}
	if f.results(t); len(f.source.queries) != 22 {
		t.Errorf("%d queries after a decision with refreshed results, want 22", len(f.source.queries))
	}
}

// A query whose selectors saw different series counts pods by CPU and memory on a node without devices.
func TestFitIsAtMostTheFitByDevices(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.source.responses["floor(min by"] = series("cluster1", 14.0, "cluster2", 1.0, "cluster3", 5.0)
	f.source.responses["by (cluster) (floor(node"] = series("cluster1", 0.0, "cluster2", 3.0)
	results, _ := f.results(t)
	for cluster, want := range map[string]float64{"cluster1": 0, "cluster2": 1} {
		if got := results[cluster].Shapes[0].Fit; got != gate.Known(want) {
			t.Errorf("%s: fit %v, want %v", cluster, got, want)
		}
	}
}

// All workloads that wait for a slow or failing source share one query.
func TestResultsQueryASlowSourceOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
	}{{"slow", nil}, {"slow and failing", errors.New("timeout")}} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{})
			f.source.responses["floor("] = series("cluster1", 3.0)
			f.source.fitTakes, f.source.err = 1100*time.Millisecond, tc.err
			for range 5 {
				f.results(t)
			}
			for expr, n := range f.source.queryCounts() {
				if n > 1 && strings.Contains(expr, "floor(") {
					t.Errorf("five workloads with one key ran %s %d times", expr, n)
				}
			}
		})
	}
}

func TestResultsAreExplicit(t *testing.T) {
	f := newRequirementFixture()
	f.source.responses["floor("] = series("cluster1", 3.0, "cluster2", math.NaN())
	f.source.responses["sample_timestamp"] = series("cluster1", f.unixIn(-5), "cluster2", f.unixIn(-7))
	f.source.responses["power_ok"] = series("cluster1", 0.0, "cluster2", 1.0)
	delete(f.source.responses, "freeze")
	got, fleet := f.results(t)
	if want := []gate.RequirementResult{{Name: "freeze", EvaluatedAt: noon}}; fleet.Problem != "" || cmp.Diff(want, fleet.Requirements) != "" {
		t.Errorf("an empty response is a result: got %+v, want requirements %+v", fleet, want)
	}
	if n := got["cluster1"].Shapes[0].Fit; n != gate.Known(3) || !got["cluster1"].SampledAt.Equal(noon.Add(-5*time.Second)) {
		t.Errorf("cluster1: %+v", got["cluster1"])
	}
	if got["cluster2"].Shapes[0].Fit.Known {
		t.Error("NaN counts as a known value")
	}
	one, two := got["cluster1"].Requirements, got["cluster2"].Requirements
	if len(one) != 1 || one[0].Name != "power" || one[0].Number != gate.Known(0) || two[0].Number != gate.Known(1) {
		t.Errorf("requirements: %v and %v", one, two)
	}
	f.source.responses["freeze"] = series("", 1.0)
	f.source.responses["floor("] = series("cluster1", 3.0, "cluster1", 4.0)
	f.clock.add(time.Minute)
	got, fleet = f.results(t)
	if c := fleet.Requirements[0]; c.Number != gate.Known(1) {
		t.Errorf("a series without a cluster must count for the fleet: %+v", c)
	}
	if n := got["cluster1"].Shapes[0].Fit; n.Known {
		t.Errorf("two series for cluster1 make a known fit: %+v", n)
	}
}

// Without sample times no other result is usable, so the other queries are skipped.
func TestResultsDoNotWaitForAFailingSource(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.source.err = errors.New("timeout")
	f.results(t)
	if got := len(f.source.queries); got != 1 {
		t.Errorf("ran %d queries without sample times, want 1: %q", got, f.source.queries)
	}
	f.clock.add(30 * time.Second)
	f.facts.PodSets[0].DevicesPerPod = 4
	if _, fleet := f.results(t); !strings.Contains(fleet.Problem, "timeout") || len(f.source.queries) != 1 {
		t.Errorf("problem %q after %d queries, want the timeout after 1", fleet.Problem, len(f.source.queries))
	}
	f.source.err = nil
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.refreshQueued(t)
	if got := f.fit(t); got != gate.Known(3) {
		t.Errorf("fit %v after the source has recovered, want 3", got)
	}
}

// With a period longer than maxSampleAge, results would become too old while they are
// served, and onStale Open would open a gate whose source works.
func TestResultsAreNotServedUntilTheyAreStale(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 3600, Freshness: v1alpha1.GateFreshness{MaxSampleAgeSeconds: 120, OnStale: v1alpha1.StaleOpen}})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.setSampleAge(5)
	f.results(t)
	queries := len(f.source.queries)
	f.clock.add(59 * time.Second)
	if f.results(t); len(f.source.queries) != queries {
		t.Errorf("ran %d queries although the results are still fresh", len(f.source.queries)-queries)
	}
	f.clock.add(10 * time.Minute)
	f.setSampleAge(5)
	if age := f.clock.now().Sub(f.sampledAt(t)); age != 5*time.Second {
		t.Errorf("the samples are %s old, want 5s", age)
	}
}

// The URL of the source changes while the new server fails. The values of the previous server
// say nothing about the clusters of the new one.
func TestResultsOfThePreviousServerAreNotUsed(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	serve := func(settings string, source query.Querier) {
		f.sources.Set(query.SourceInfo{Name: "thanos", Settings: settings, ClusterLabel: "cluster"}, source)
	}
	f.setSampleAge(5)
	f.source.responses["floor("] = series("cluster1", 8.0)
	serve("a", f.source)
	if got := f.fit(t); got != gate.Known(8) {
		t.Fatalf("fit %v of the first server, want 8", got)
	}
	serve("b", &fakeSource{clock: f.clock, err: errors.New("refused")})
	if got := f.fit(t); got.Known {
		t.Errorf("fit %v of the previous server at once", got)
	}
	f.clock.add(15 * time.Second)
	f.refresh()
	if got := f.fit(t); got.Known {
		t.Errorf("fit %v of the previous server after a refresh", got)
	}
	serve("a", f.source)
	if got := f.fit(t); got != gate.Known(8) {
		t.Errorf("fit %v after the URL is corrected, want 8", got)
	}
}

// A plan of the previous server is refreshed once more after the URL has changed. It must not
// store the values of the new server as those of the previous one, to which the URL returns.
func TestRefreshAfterTheServerChangedStoresNothing(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	serve := func(settings string, source query.Querier) {
		f.sources.Set(query.SourceInfo{Name: "thanos", Settings: settings, ClusterLabel: "cluster"}, source)
	}
	f.setSampleAge(5)
	f.source.responses["floor("] = series("cluster1", 8.0)
	serve("a", f.source)
	f.results(t)
	previous := f.KeyOf(f.gate, f.facts)

	f.clock.add(15 * time.Second)
	serve("b", &fakeSource{clock: f.clock, responses: map[string]query.Result{"floor(": series("cluster1", 3.0), "sample_timestamp": f.source.responses["sample_timestamp"]}})
	f.Refresh(previous, f.clock.now())
	f.refreshQueued(t)
	if got := f.fit(t); got != gate.Known(3) {
		t.Errorf("fit %v of the new server, want 3", got)
	}
	if message := f.failureMessage(); message != "" {
		t.Errorf("the gate reports %q, although the new server responds", message)
	}
	f.source.err = errors.New("refused")
	serve("a", f.source)
	if got := f.fit(t); got != gate.Known(8) {
		t.Errorf("fit %v after the URL returned to the first server, which now fails, want its last value 8", got)
	}
}
