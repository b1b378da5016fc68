package querycache

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// A workload is rejected for good only if the results are complete.
func TestFleetIncomplete(t *testing.T) {
	partial := series("cluster1", 0.0)
	partial.Partial = true
	for _, tc := range []struct {
		name string
		fit  query.Result
		err  error
		want bool
	}{
		{name: "complete", fit: series("cluster1", 0.0)},
		{name: "NaN", fit: series("cluster1", 0.0, "cluster2", math.NaN()), want: true},
		{name: "two series for one cluster", fit: series("cluster1", 0.0, "cluster1", 1.0), want: true},
		{name: "incomplete response", fit: partial, want: true},
		{name: "failed query", fit: series("cluster1", 0.0), err: errors.New("timeout"), want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{})
			f.source.responses["floor("] = tc.fit
			f.setSampleAge(5)
			f.results(t)
			f.source.err = tc.err
			f.clock.add(time.Minute)
			if _, fleet := f.results(t); fleet.Incomplete != tc.want {
				t.Errorf("incomplete %t, want %t (%+v)", fleet.Incomplete, tc.want, fleet)
			}
		})
	}
}

// However often a query fails, the requirement keeps its last result and its time.
func TestFleetRequirementKeepsItsTime(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(*fakeSource)
	}{
		{"the query fails", func(s *fakeSource) { s.failing = "freeze" }},
		{"the source fails", func(s *fakeSource) { s.err = context.DeadlineExceeded }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRequirementFixture()
			f.results(t)
			tc.fail(f.source)
			for range 10 {
				f.clock.add(time.Minute)
				f.refresh()
			}
			_, fleet := f.requirements(t)
			if diff := cmp.Diff(gate.RequirementResult{Name: "freeze", Number: gate.Known(1), EvaluatedAt: noon}, fleet); diff != "" {
				t.Errorf("after ten failures (-want +got):\n%s", diff)
			}
			f.source.failing, f.source.err = "", nil
			f.clock.add(time.Minute)
			f.refresh()
			if _, fleet := f.requirements(t); !fleet.EvaluatedAt.Equal(noon.Add(11 * time.Minute)) {
				t.Errorf("after the next success: %+v", fleet)
			}
		})
	}
}

// FailingSince is the time of the first failure, as long as decisions use the query.
func TestFleetFailingSince(t *testing.T) {
	f := newRequirementFixture()
	f.results(t)
	f.source.err = errors.New("connection refused")
	failingSince := noon.Add(time.Minute)
	for range 3 {
		f.clock.add(time.Minute)
		f.cleanUp()
		if _, fleet := f.results(t); !fleet.FailingSince.Equal(failingSince) {
			t.Errorf("the source fails since %s, want %s", fleet.FailingSince, failingSince)
		}
	}
	f.source.err, f.source.failing = nil, "freeze"
	f.clock.add(time.Minute)
	if _, fleet := f.results(t); !fleet.FailingSince.Equal(failingSince) {
		t.Errorf("freeze fails since %s, want %s", fleet.FailingSince, failingSince)
	}
	f.source.failing = ""
	f.clock.add(time.Minute)
	if _, fleet := f.results(t); !fleet.FailingSince.IsZero() {
		t.Errorf("every query succeeds: %+v", fleet)
	}
}

// A query that only ranks clusters does not decide, so its failure does not count as a
// failure of what decides.
func TestFleetFailingSinceIgnoresRanking(t *testing.T) {
	f := newOpenFixture()
	f.source.failing = "free_devices:sum"
	if _, fleet := f.results(t); fleet.Problem == "" || !fleet.FailingSince.IsZero() {
		t.Errorf("got %+v, want a problem but no failure", fleet)
	}
}

func TestFleetRequirementsOfIncompleteResponses(t *testing.T) {
	incomplete := func(a query.Result, failedClusters ...string) query.Result {
		a.Partial = failedClusters == nil
		for _, name := range failedClusters {
			if a.Failed == nil {
				a.Failed = map[string]string{}
			}
			a.Failed[name] = "Unauthorized"
		}
		return a
	}
	for _, tc := range []struct {
		name           string
		power, freeze  query.Result
		cluster, fleet bool // partial
	}{
		{"neither requirement is met", incomplete(series("cluster2", 1.0)), incomplete(series("cluster2", 0.0)), true, true},
		{"both are met by a part of the data", incomplete(series("cluster1", 1.0)), incomplete(series("cluster2", 7.0)), true, true},
		{"the cluster's value is no number", incomplete(series("cluster1", math.NaN())), series(), true, false},
		{"the cluster's requirement is unmet", incomplete(series("cluster1", 0.0)), series(), false, false},
		{"both are met, and another cluster failed", incomplete(series("cluster1", 1.0), "cluster2"), incomplete(series("cluster1", 1.0), "cluster2"), false, false},
		{"this cluster failed", incomplete(series(), "cluster1"), incomplete(series(), "cluster1"), true, true},
		{"another cluster failed", incomplete(series(), "cluster2"), series(), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRequirementFixture()
			f.source.responses["power_ok"], f.source.responses["freeze"] = tc.power, tc.freeze
			if cluster, fleet := f.requirements(t); cluster.Partial != tc.cluster || fleet.Partial != tc.fleet {
				t.Errorf("cluster %+v, fleet %+v, want partial %t and %t", cluster, fleet, tc.cluster, tc.fleet)
			}
		})
	}
}

// onStale Open ignores missing data only after unknownAfterSeconds. The time of a failure
// is that of the query itself: how long another workload's queries succeed or fail does
// not matter.
func TestOnStaleOpenCountsTheTimeOfEachQuery(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(*fixture)
		want outcome
	}{
		{
			"a requirement for another namespace fails",
			func(f *fixture) { f.facts.Namespace, f.source.failing = "team-b", `freeze{ns="team-b"}` },
			outcome{Cluster: "cluster1", Room: gate.Known(3), IgnoresFreeze: true},
		},
		{
			"fit fails for another size",
			func(f *fixture) {
				f.source.responses["freeze"] = series("", 1.0)
				f.facts.PodSets, f.source.failing = podSets("", 8), "/ 8"
				f.facts.PodSets[0].Pods = 100
			},
			outcome{Cluster: "cluster1", WithoutMetrics: true},
		},
		{
			"the source fails and another namespace needs a query",
			func(f *fixture) { f.facts.Namespace, f.source.err = "team-b", errors.New("timeout") },
			outcome{Cluster: "cluster1", WithoutMetrics: true, IgnoresFreeze: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newOpenFixture()
			f.runRounds(t, 10*time.Minute)
			f.wantPending(t, "while every query succeeds", gate.ReasonFleetRequirementUnmet)
			tc.fail(f)
			f.clock.add(time.Minute)
			f.setSampleAge(5)
			f.wantPending(t, "after the first failure", gate.ReasonNoMetrics)
			f.runRounds(t, 5*time.Minute)
			f.wantPending(t, "until unknownAfterSeconds", gate.ReasonNoMetrics)
			f.runRounds(t, 15*time.Second)
			f.wantReady(t, "after unknownAfterSeconds", tc.want)
			f.facts.Namespace = "team-c"
			if f.source.err != nil {
				f.wantReady(t, "for a third namespace while the source fails", tc.want)
			}
		})
	}
}

// If the quota query fails, the room on the nodes is still known.
func TestOnStaleOpenWithFailingQuota(t *testing.T) {
	for _, tc := range []struct {
		name           string
		succeedsBefore bool
	}{{"after a success", true}, {"without a success", false}} {
		t.Run(tc.name, func(t *testing.T) {
			f := newOpenFixture()
			f.facts.Remote, f.facts.ClusterQueue = true, "cq"
			f.source.responses["freeze"], f.source.responses["unreserved_quota"] = series("", 1.0), ofQueue("cq", series("cluster1", 12.0, "cluster2", 12.0))
			if tc.succeedsBefore {
				f.wantReady(t, "while every query succeeds", outcome{Cluster: "cluster1", Room: gate.Known(3)})
			}
			f.source.failing = "unreserved_quota"
			f.runRounds(t, 5*time.Minute)
			f.wantPending(t, "until unknownAfterSeconds", gate.ReasonNoMetrics)
			f.runRounds(t, 30*time.Second)
			f.wantReady(t, "after unknownAfterSeconds", outcome{Cluster: "cluster1", Room: gate.Known(3), QuotaUnknown: true})
			f.source.responses["floor("] = series("cluster1", 0.0, "cluster2", 0.0)
			f.runRounds(t, 30*time.Second)
			f.wantPending(t, "without room", gate.ReasonNoRoom)
			f.gate.Spec.Freshness.OnStale, f.gate.Generation = v1alpha1.StaleClosed, 2
			f.source.responses["floor("] = series("cluster1", 3.0, "cluster2", 3.0)
			f.runRounds(t, 5*time.Minute)
			d := f.decide(t)
			isQuotaFailing := func(v gate.Verdict) bool { return v.Rejection == gate.RejectQuotaFailing }
			if d.State != gate.Pending || !isQuotaFailing(d.Verdicts[0]) || !isQuotaFailing(d.Verdicts[1]) || !strings.HasSuffix(d.Message, "; quota: too heavy") {
				t.Errorf("onStale Closed: got %s: %s, want Pending because quota fails", d.State, d.Message)
			}
		})
	}
}

// The query for the largest node completes the message. Its failure does not change the
// decision that no cluster has room.
func TestFleetIgnoresAFailureOfLargest(t *testing.T) {
	f := newOpenFixture()
	f.source.responses["freeze"], f.source.responses["floor("] = series("", 1.0), series("cluster1", 0.0, "cluster2", 0.0)
	f.source.failing = "node_free_devices:max"
	d := f.decide(t)
	if !d.NoRoomAnywhere || !strings.HasPrefix(d.Message, "no cluster has 2 free NVIDIA-L4 on one node: best is cluster1 with 0") || strings.Contains(d.Message, "too heavy") {
		t.Errorf("no room anywhere %t: %s", d.NoRoomAnywhere, d.Message)
	}
	if got, want := f.failureMessage(), "failing: largest: too heavy"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// A store that is lost for good makes every response incomplete. onStale Open ignores this
// after unknownAfterSeconds as well.
func TestOnStaleOpenWithIncompleteResponses(t *testing.T) {
	ready := func(cluster string) outcome {
		return outcome{Cluster: cluster, Room: gate.Known(3), IgnoresFreeze: true}
	}
	failedEndpoints := func(clusters ...string) query.Result {
		a := query.Result{Failed: map[string]string{}}
		for _, name := range clusters {
			a.Failed[name] = "Unauthorized"
		}
		return a
	}
	for _, scope := range []v1alpha1.RequirementScope{v1alpha1.ScopeFleet, v1alpha1.ScopeCluster} {
		t.Run("scope "+string(scope), func(t *testing.T) {
			f := newOpenFixture()
			f.gate.Spec.Requirements[0].Scope = scope
			f.source.responses["freeze"] = series("cluster1", 1.0, "cluster2", 1.0)
			f.runRounds(t, 10*time.Minute)
			f.source.responses["freeze"] = query.Result{Partial: true}
			f.runRounds(t, 5*time.Minute)
			f.wantPending(t, "until unknownAfterSeconds", gate.ReasonNoMetrics)
			f.runRounds(t, 30*time.Second)
			f.wantReady(t, "after unknownAfterSeconds", ready("cluster1"))
			f.source.err = errors.New("timeout")
			f.runRounds(t, 30*time.Second)
			f.wantPending(t, "after a failure of the source", gate.ReasonNoMetrics)
		})
	}
	t.Run("a failure before counts", func(t *testing.T) {
		f := newOpenFixture()
		f.source.failing = "freeze"
		f.runRounds(t, 6*time.Minute)
		f.source.responses["freeze"], f.source.failing = query.Result{Partial: true}, ""
		f.clock.add(time.Minute)
		f.setSampleAge(5)
		f.wantReady(t, "after unknownAfterSeconds", ready("cluster1"))
	})
	t.Run("an unmet requirement of the other stores stays unmet", func(t *testing.T) {
		f := newOpenFixture()
		unmet := series("", 0.0)
		unmet.Partial = true
		f.source.responses["freeze"] = unmet
		f.runRounds(t, time.Hour)
		f.wantPending(t, "after an hour", gate.ReasonNoMetrics)
	})
	// Thanos has stores of its own for each cluster: one that is gone must not stop the other clusters.
	t.Run("Thanos lacks a store of another cluster", func(t *testing.T) {
		f := newOpenFixture()
		f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Partial: true}, f.source)
		f.gate.Spec.Requirements[0].Scope = v1alpha1.ScopeCluster
		part := series("cluster1", 1.0)
		part.Partial = true
		f.source.responses["freeze"] = part
		f.runRounds(t, 30*time.Second)
		f.wantReady(t, "cluster1 is complete", outcome{Cluster: "cluster1", Room: gate.Known(3)})
		part = series("cluster2", 1.0)
		part.Partial = true
		f.source.responses["freeze"] = part
		f.runRounds(t, 30*time.Second)
		f.wantReady(t, "cluster1 has no data, and cluster2 is complete", outcome{Cluster: "cluster2", Room: gate.Known(3)})
	})
	t.Run("Thanos lacks a store, and a requirement on the fleet names clusters", func(t *testing.T) {
		f := newOpenFixture()
		f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Partial: true}, f.source)
		part := series("cluster1", 1.0)
		part.Partial = true
		f.source.responses["freeze"] = part
		f.runRounds(t, 30*time.Second)
		f.wantReady(t, "cluster1 is complete", outcome{Cluster: "cluster1", Room: gate.Known(3)})
		part = series("cluster1", 0.0, "", 1.0)
		part.Partial = true
		f.source.responses["freeze"] = part
		f.runRounds(t, 30*time.Second)
		f.wantPending(t, "while only a sum over the stores meets the requirement", gate.ReasonNoMetrics)
	})
	// A store that is gone could hide frozen, and then cluster1 would pass.
	t.Run("Thanos lacks a store, and a requirement reads the series of other clusters", func(t *testing.T) {
		for _, scope := range []v1alpha1.RequirementScope{v1alpha1.ScopeFleet, v1alpha1.ScopeCluster} {
			f := newOpenFixture()
			f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Partial: true}, f.source)
			f.gate.Spec.Requirements[0].Scope, f.gate.Spec.Requirements[0].Query = scope, "freeze unless on () (frozen == 1)"
			part := series("cluster1", 1.0)
			part.Partial = true
			f.source.responses["freeze"] = part
			f.runRounds(t, 30*time.Second)
			f.wantPending(t, "because of "+string(scope), gate.ReasonNoMetrics)
		}
	})
	t.Run("a part of the data meets no requirement", func(t *testing.T) {
		for _, scope := range []v1alpha1.RequirementScope{v1alpha1.ScopeFleet, v1alpha1.ScopeCluster} {
			f := newOpenFixture()
			f.gate.Spec.Requirements[0].Scope = scope
			f.source.responses["freeze"] = series("cluster1", 1.0, "cluster2", 1.0)
			f.runRounds(t, 10*time.Minute)
			f.wantReady(t, "while responses are complete", outcome{Cluster: "cluster1", Room: gate.Known(3)})
			part := series("cluster1", 1.0, "cluster2", 1.0)
			part.Partial = true
			f.source.responses["freeze"] = part
			f.runRounds(t, 30*time.Second)
			f.wantPending(t, "while responses are partial", gate.ReasonNoMetrics)
			f.runRounds(t, 5*time.Minute)
			f.wantReady(t, "after unknownAfterSeconds", ready("cluster1"))
			f.source.responses["freeze"] = series("cluster1", 1.0, "cluster2", 1.0)
			f.runRounds(t, 30*time.Second)
			f.wantReady(t, "when responses are complete again", outcome{Cluster: "cluster1", Room: gate.Known(3)})
		}
	})
	t.Run("an endpoint per cluster", func(t *testing.T) {
		f := newOpenFixture()
		f.gate.Spec.Requirements[0].Scope = v1alpha1.ScopeCluster
		f.source.responses["freeze"] = failedEndpoints("cluster2")
		f.runRounds(t, 10*time.Minute)
		f.wantReady(t, "after the endpoint of cluster2 has failed for 10 min", ready("cluster2"))
		f.source.responses["freeze"] = failedEndpoints("cluster1", "cluster2")
		f.gate.Clusters = slices.Clone(f.gate.Clusters[:1])
		f.runRounds(t, 30*time.Second)
		f.wantPending(t, "after the endpoint of cluster1 has failed for 30 s", gate.ReasonNoMetrics)
		f.gate.Spec.Requirements[0].Scope, f.gate.Generation = v1alpha1.ScopeFleet, 2
		f.wantPending(t, "for a requirement on the fleet, after 30 s", gate.ReasonNoMetrics)
		f.runRounds(t, 5*time.Minute)
		f.wantReady(t, "for a requirement on the fleet, after 5 min", ready("cluster1"))
	})
}
