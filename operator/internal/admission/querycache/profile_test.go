package querycache

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// profileGate uses profiles in every query that may.
func profileGate() v1alpha1.PlacementGateSpec {
	return v1alpha1.PlacementGateSpec{
		Queries: v1alpha1.GateQueries{
			Headroom:   `sum by (cluster) (own_headroom) / $profile_memory_peak`,
			Capacity:   `sum by (cluster) (own_capacity) / $profile_duration`,
			Preference: `sum by (cluster) (own_preference) * $profile_duration`,
		},
		Requirements: []v1alpha1.GateRequirement{
			{Name: "memory", Query: `max by (cluster) (memory_bytes) > bool 1.15 * $profile_memory_peak`, Scope: v1alpha1.ScopeCluster},
			{Name: "window", Query: `min(window_seconds) > bool $profile_duration`, Scope: v1alpha1.ScopeFleet},
			{Name: "power", Query: `max by (cluster) (power_ok)`, Scope: v1alpha1.ScopeCluster},
		},
	}
}

// ownQueries returns the queries that name a metric of profileGate.
func ownQueries(f *fixture) []string {
	var own []string
	for _, expr := range f.source.queries {
		for _, metric := range []string{"own_", "memory_bytes", "window_seconds", "power_ok"} {
			if strings.Contains(expr, metric) {
				own = append(own, expr)
			}
		}
	}
	slices.Sort(own)
	return own
}

func TestQueriesWithAProfile(t *testing.T) {
	for _, tc := range []struct {
		name    string
		profile *shape.Profile
		queries []string // by ownQueries
		skipped []string
		// requirements are those of the cluster.
		requirements []string
		// defaults are the fields whose default queries run.
		defaults []string
	}{
		{"all values", &shape.Profile{MemoryPeak: 40e9, Duration: 600}, []string{
			`max by (cluster) (memory_bytes) > bool 1.15 * 40000000000`, `max by (cluster) (power_ok)`, `min(window_seconds) > bool 600`,
			`sum by (cluster) (own_capacity) / 600`, `sum by (cluster) (own_headroom) / 40000000000`, `sum by (cluster) (own_preference) * 600`,
		}, nil, []string{"memory", "power"}, nil},
		{"no duration", &shape.Profile{MemoryPeak: 40e9}, []string{
			`max by (cluster) (memory_bytes) > bool 1.15 * 40000000000`, `max by (cluster) (power_ok)`, `sum by (cluster) (own_headroom) / 40000000000`,
		}, []string{"window"}, []string{"memory", "power"}, []string{"plimsoll_devices:sum"}},
		{"no profile", nil, []string{`max by (cluster) (power_ok)`}, []string{"memory", "window"}, []string{"power"}, []string{"plimsoll_devices:sum", "plimsoll_free_devices:sum"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(profileGate())
			f.facts.PodSets[0].Profile = tc.profile
			results, fleet := f.results(t)
			if diff := cmp.Diff(tc.queries, ownQueries(f)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.skipped, fleet.SkippedRequirements); diff != "" {
				t.Error(diff)
			}
			for _, metric := range []string{"plimsoll_devices:sum", "plimsoll_free_devices:sum"} {
				runs := slices.ContainsFunc(f.source.queries, func(expr string) bool { return strings.Contains(expr, metric) })
				if want := slices.Contains(tc.defaults, metric); runs != want {
					t.Errorf("query of %s runs: %v, want %v", metric, runs, want)
				}
			}
			var requirements []string
			for _, c := range results["cluster1"].Requirements {
				requirements = append(requirements, c.Name)
			}
			if diff := cmp.Diff(tc.requirements, requirements); diff != "" {
				t.Error(diff)
			}
			if fleet.Problem != "" {
				t.Error(fleet.Problem)
			}
		})
	}
}

// Queries that decide room must not depend on a profile.
func TestRoomQueriesCanNotUseProfiles(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: `sum by (cluster) (free) / $profile_memory_peak`}})
	f.facts.PodSets[0].Profile = &shape.Profile{MemoryPeak: 40e9}
	if _, fleet := f.results(t); !strings.Contains(fleet.Problem, "unknown variable $profile_memory_peak") {
		t.Errorf("problem %q", fleet.Problem)
	}
}

// A gate without these variables sends the same queries for a workload with a profile.
func TestProfilesDoNotChangeOtherGates(t *testing.T) {
	queries := func(profile *shape.Profile) []string {
		f := newFixture(v1alpha1.PlacementGateSpec{Profiles: &v1alpha1.GateProfiles{},
			Requirements: []v1alpha1.GateRequirement{{Name: "power", Query: `max by (cluster) (power_ok)`, Scope: v1alpha1.ScopeCluster}}})
		f.facts.PodSets[0].Profile = profile
		f.results(t)
		slices.Sort(f.source.queries)
		return f.source.queries
	}
	if diff := cmp.Diff(queries(nil), queries(&shape.Profile{MemoryPeak: 40e9, Duration: 600})); diff != "" {
		t.Error(diff)
	}
}

// A gate prefers clusters by a query of its own. For a workload whose best model is unknown, the query
// does not run, and all clusters are equal.
func TestPreferenceByTheBestModel(t *testing.T) {
	for _, tc := range []struct {
		name    string
		profile *shape.Profile
		want    map[string]gate.Number
	}{
		{"known", &shape.Profile{BestModel: "NVIDIA-H100"}, map[string]gate.Number{"cluster1": gate.Known(2), "cluster2": {}}},
		{"unknown", &shape.Profile{Duration: 600}, map[string]gate.Number{"cluster1": {}, "cluster2": {}}},
		{"no profile", nil, map[string]gate.Number{"cluster1": {}, "cluster2": {}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Preference: `sum by (cluster) (best_fit{model="$profile_best_model"})`}})
			f.source.responses[`best_fit{model="NVIDIA-H100"}`] = series("cluster1", 2.0)
			f.facts.PodSets[0].Profile = tc.profile
			results, fleet := f.results(t)
			for cluster, want := range tc.want {
				if got := results[cluster].Preference; got != want {
					t.Errorf("%s: %v, want %v", cluster, got, want)
				}
			}
			if fleet.Problem != "" {
				t.Error(fleet.Problem)
			}
		})
	}
}
