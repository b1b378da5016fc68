package querycache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func (f *fixture) wantFailureMessage(t *testing.T, when, want string) {
	t.Helper()
	if got := f.failureMessage(); got != want {
		t.Errorf("%s: message %q, want %q", when, got, want)
	}
}

func TestFailureMessageOfFailingQueries(t *testing.T) {
	f := newRequirementFixture()
	f.results(t)
	f.wantFailureMessage(t, "every query succeeds", "")
	f.source.failing = "freeze"
	f.clock.add(time.Minute)
	f.results(t)
	small := f.facts
	small.PodSets = podSets("", 1)
	f.Candidates(t.Context(), f.gate, small)
	f.wantFailureMessage(t, "one query fails for two keys", "failing since 2026-05-01T12:00:00Z: requirements/freeze: too heavy")
	f.source.err = errors.New("connection refused")
	f.clock.add(time.Minute)
	f.refresh()
	f.wantFailureMessage(t, "the source fails",
		"failing since 2026-05-01T12:00:00Z: capacity, deviceFit, emptyFit, excess, fit, headroom, largest, largestNode, measured, requirements/freeze, requirements/power, sampleTime: connection refused")
	f.source.err = nil
	f.gate.Generation++
	f.gate.Spec.Requirements = []v1alpha1.GateRequirement{{Name: "freeze", Query: `frozen`, Scope: v1alpha1.ScopeFleet}}
	f.clock.add(time.Minute)
	f.results(t)
	f.wantFailureMessage(t, "a new generation replaces the failing query", "")

	f.source.failing = "frozen"
	f.clock.add(time.Minute)
	f.results(t)
	f.gate.UID, f.gate.Generation, f.gate.Spec.Requirements = "created again", 1, nil
	f.clock.add(time.Minute)
	f.results(t)
	f.wantFailureMessage(t, "a gate that was created again has other queries", "")
}

func TestFailureMessageOfIncompleteResponses(t *testing.T) {
	f := newRequirementFixture()
	fit := series("cluster1", 3.0)
	fit.Failed = map[string]string{"cluster3": "timeout", "cluster2": "Unauthorized"}
	f.source.responses["floor("] = fit
	f.results(t)
	f.wantFailureMessage(t, "two endpoints fail", "incomplete: deviceFit, fit: cluster2: Unauthorized")
	f.source.failing = "freeze"
	f.clock.add(time.Minute)
	f.results(t)
	f.wantFailureMessage(t, "another query fails", "failing since 2026-05-01T12:00:00Z: requirements/freeze: too heavy")
	fit.Failed, fit.Partial, f.source.failing = nil, true, ""
	f.source.responses["floor("] = fit
	f.clock.add(time.Minute)
	f.results(t)
	f.wantFailureMessage(t, "a store fails", "incomplete: deviceFit, fit: some stores of the source did not respond")
}

func TestFailureMessageWithoutSuccess(t *testing.T) {
	f := newRequirementFixture()
	f.source.failing = "freeze"
	f.results(t)
	f.wantFailureMessage(t, "the query has never succeeded", "failing: requirements/freeze: too heavy")
	f.clock.add(timing.UnusedResultTTL + time.Second)
	f.wantFailureMessage(t, "no workload needs the query", "")
}

// faultsOfGate returns the faults of the gate's queries.
func (f *fixture) faultsOfGate() (faults gatestate.QueryFaults) {
	f.OnFaults(func(of map[string]gatestate.QueryFaults) { faults = of["gpu"] })
	f.cleanUp()
	return faults
}

// A requirement that no cluster meets is named, with what to do. One that fails, or is met for another shape, is not.
func TestRequirementsThatExcludeEveryCluster(t *testing.T) {
	for _, tc := range []struct {
		name   string
		absent v1alpha1.AbsentRequirement
		result query.Result
		want   string
	}{
		{"met by one cluster", "", series("cluster1", 1.0, "cluster2", 0.0), ""},
		{"0 for each", "", series("cluster1", 0.0, "cluster2", 0.0), "requirement power is 0 for each cluster"},
		{"no series", "", query.Result{}, "requirement power has no series for any cluster: if clusters may lack it, set absent: Met"},
		{"no series, which meets it", v1alpha1.AbsentMet, query.Result{}, ""},
		{"an incomplete result", "", query.Result{Failed: map[string]string{"cluster3": "timeout"}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRequirementFixture()
			f.gate.Spec.Requirements = []v1alpha1.GateRequirement{{Name: "power", Query: "power_ok", Scope: v1alpha1.ScopeCluster, Absent: tc.absent}}
			f.source.responses["power_ok"] = tc.result
			f.results(t)
			if got := f.faultsOfGate().Excluding; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The hint at a comparison that keeps the value 0 is for queries that have one.
func TestRequirementWithAComparisonThatKeepsZero(t *testing.T) {
	const fault = "requirement power is 0 for each cluster"
	for _, tc := range []struct{ query, want string }{
		{"max by (cluster) (faults) == 0", fault + ": a comparison without bool keeps the value 0, so write bool after its operator"},
		{"max by (cluster) (faults) == bool 0", fault},
		{"max by (cluster) (faults) > 0", fault},
	} {
		t.Run(tc.query, func(t *testing.T) {
			f := newRequirementFixture()
			f.gate.Spec.Requirements = []v1alpha1.GateRequirement{{Name: "power", Query: tc.query, Scope: v1alpha1.ScopeCluster}}
			f.source.responses["faults"] = series("cluster1", 0.0, "cluster2", 0.0)
			f.results(t)
			if got := f.faultsOfGate().Excluding; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Each requirement is met by a cluster, and no cluster meets all.
func TestRequirementsThatNoClusterMeetsTogether(t *testing.T) {
	const apart = "no cluster meets all requirements: cooling is met by cluster2, power is met by cluster1"
	type results struct{ power, cooling query.Result }
	requirement := func(name string) v1alpha1.GateRequirement {
		return v1alpha1.GateRequirement{Name: name, Query: name + `_ok{devices="$devices_per_pod"}`, Scope: v1alpha1.ScopeCluster}
	}
	for _, tc := range []struct {
		name   string
		absent v1alpha1.AbsentRequirement // of cooling
		// results for pods with 8 devices, and with 1 device, if there are any
		whole, single *results
		want          string
	}{
		{"by one cluster each", "", &results{series("cluster1", 1.0, "cluster2", 0.0), series("cluster1", 0.0, "cluster2", 1.0)}, nil, apart},
		{"without a series elsewhere", "", &results{series("cluster1", 1.0), series("cluster2", 1.0)}, nil, apart},
		{"by one cluster together", "", &results{series("cluster1", 1.0, "cluster2", 1.0), series("cluster1", 0.0, "cluster2", 1.0)}, nil, ""},
		{"absent is met", v1alpha1.AbsentMet, &results{series("cluster1", 1.0), series("cluster2", 1.0)}, nil, ""},
		{"an incomplete result", "", &results{series("cluster1", 1.0), query.Result{Samples: series("cluster2", 1.0).Samples, Partial: true}}, nil, ""},
		{"met together for another shape", "", &results{series("cluster1", 1.0), series("cluster2", 1.0)}, &results{series("cluster1", 1.0), series("cluster1", 1.0)}, ""},
		{"apart for each shape", "", &results{series("cluster1", 1.0), series("cluster2", 1.0)}, &results{series("cluster2", 1.0), query.Result{}}, apart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRequirementFixture()
			delete(f.source.responses, "power_ok")
			f.gate.Spec.Requirements = []v1alpha1.GateRequirement{requirement("cooling"), requirement("power")}
			f.gate.Spec.Requirements[0].Absent = tc.absent
			for devices, r := range map[int64]*results{8: tc.whole, 1: tc.single} {
				if r == nil {
					continue
				}
				label := fmt.Sprintf(`_ok{devices="%d"}`, devices)
				f.source.responses["power"+label], f.source.responses["cooling"+label] = r.power, r.cooling
				facts := f.facts
				facts.PodSets = podSets("", devices)
				f.Candidates(t.Context(), f.gate, facts)
			}
			if got := f.faultsOfGate().Excluding; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
