//go:build !race

package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// TestCandidatesAreThoseOfQueries compares the candidates of a world with those that the query cache makes of the
// results of the gate's queries, at the same moment.
func TestCandidatesAreThoseOfQueries(t *testing.T) {
	if testing.Short() {
		t.Skip("runs worlds")
	}
	for seed := uint64(1); seed <= 6; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			spec, compared := withSmallQuotas(world.Random(seed), random), 0
			Run(t, spec, Options{Steps: func(d *Driver) {
				for range 25 {
					d.Advance(time.Duration(1+random.IntN(60))*time.Second, nil)
					compared += compareCandidates(t, d, random)
				}
			}})
			if compared == 0 {
				t.Error("no cluster had known samples")
			}
		})
	}
}

// withSmallQuotas is a world in which queues borrow on the workers, each cluster loses devices, and no fault concerns
// the queries.
func withSmallQuotas(s world.Spec, random *rand.Rand) world.Spec {
	s.Faults = slices.DeleteFunc(s.Faults, func(f world.Fault) bool { return f.Kind == world.StoreLost })
	if len(s.Queues) == 1 {
		s.Queues = append(s.Queues, world.Queue{Name: "second"})
	}
	for i := range s.Queues {
		s.Queues[i].Cohort = "all"
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		c.Quotas = map[string]map[string]int64{}
		for _, q := range s.Queues {
			c.Quotas[q.Name] = map[string]int64{}
			for _, p := range c.Pools {
				c.Quotas[q.Name][p.Model] = 1 + random.Int64N(4*p.Devices)
			}
			if q.Name == "gpu" {
				c.Quotas[q.Name][c.Pools[0].Model] = 1
			}
		}
		s.Faults = append(s.Faults, world.Fault{Kind: world.DeviceLost, Cluster: c.Name, Amount: 1, At: time.Minute, Lasts: 8 * time.Minute})
	}
	return s
}

// compareCandidates compares the candidates of some workloads and returns the number of clusters with known samples.
func compareCandidates(t *testing.T, d *Driver, random *rand.Rand) int {
	g := gatestate.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{SourceRef: v1alpha1.LocalReference{Name: "store"}}}
	for _, c := range d.Spec.Clusters {
		g.Clusters = append(g.Clusters, gatestate.Cluster{Name: c.Name})
	}
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "store", ClusterLabel: "cluster"}, d.Store)
	known := 0
	for range 6 {
		f := randomFacts(&d.Spec, random)
		want, fleet := querycache.New(sources, ledger.New(0, 0), nil, time.Now).Candidates(t.Context(), g, f)
		if fleet.Problem != "" || fleet.Incomplete {
			t.Fatalf("fleet: %+v", fleet)
		}
		got := d.Candidates(g, f)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s, for %+v (-queries +world):\n%s", d.Elapsed(), f, diff)
		}
		for _, c := range got {
			if !c.SampledAt.IsZero() && c.Shapes[0].Fit.Known && c.Shapes[0].Quota.Known {
				known++
			}
		}
	}
	return known
}

// randomFacts are those of a workload that may exist in the world, or whose model, flavor or queue is unknown there.
func randomFacts(s *world.Spec, random *rand.Rand) shape.Facts {
	models := []string{"", "unknown"}
	for _, c := range s.Clusters {
		for _, p := range c.Pools {
			models = append(models, p.Model, p.Model, p.Model)
		}
	}
	queues := []string{"", "unknown", "gpu", "gpu", "gpu"}
	for _, q := range s.Queues {
		queues = append(queues, q.Name)
	}
	f := shape.Facts{Namespace: "team-a", Name: "x", ClusterQueue: queues[random.IntN(len(queues))], Remote: random.IntN(8) > 0, Reclaims: random.IntN(2) == 0}
	for range 1 + random.IntN(2) {
		p := shape.PodSet{Resource: "nvidia.com/gpu", Model: models[random.IntN(len(models))], DevicesPerPod: 1 + random.Int64N(8), Pods: 1}
		p.Tolerations = [][]shape.Toleration{nil, {{Key: world.DedicatedTaint, AnyValue: true}}, {{Key: "team", Value: "a"}}, {{AnyValue: true}}}[random.IntN(4)]
		p.Requests = shape.Requests{MilliCPU: random.Int64N(3) * random.Int64N(64_000), Memory: random.Int64N(3) * random.Int64N(256<<30)}
		p.Flavor = []string{"", "unknown", world.FlavorOf(p.Model)}[random.IntN(3)]
		f.PodSets = append(f.PodSets, p)
	}
	return f
}
