package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestDecide(t *testing.T) {
	runDecideCases(t, []decideCase{
		{name: "the only cluster with eight devices on one node, although another has more in total",
			candidates: []Candidate{cluster("cluster1", 0, 40, 6, 64), cluster("cluster2", 1, 8, 8, 64)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 has room for 1 such pod", order: []string{"cluster2"}},
		{name: "no node is large enough",
			candidates: []Candidate{cluster("cluster1", 0, 20, 4, 64), cluster("cluster2", 0, 12, 6, 64)},
			state:      Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6"},
		{name: "room for some of the pods", facts: job("a", 8, 4),
			candidates: []Candidate{cluster("cluster1", 1, 8, 8, 64), cluster("cluster2", 2, 16, 8, 64)},
			state:      Pending, reason: ReasonNoRoom, message: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster2 with room for 2"},
		{name: "all nodes of one cluster are cordoned",
			candidates: []Candidate{cluster("cluster1", 0, 0, 0, 64), cluster("cluster2", 2, 16, 8, 32)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 has room for 2 such pods", order: []string{"cluster2"}},
		{name: "no decisions of the Placement", state: Pending, reason: ReasonNoDecisions, message: "Placement plimsoll-system/gpu has decided no cluster"},
		{name: "the message names stale clusters",
			candidates: []Candidate{cluster("cluster2", 0, 12, 6, 64), sampledBefore(cluster("cluster3", 4, 32, 8, 64), 200)},
			state:      Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6; cluster3 has samples older than 2m0s"},
		{name: "unusable cluster",
			candidates: []Candidate{withUnusable(cluster("cluster3", 4, 32, 8, 64), "is not in MultiKueueConfig plimsoll-gpu")},
			state:      Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster3 is not in MultiKueueConfig plimsoll-gpu"},
		{name: "workload without devices", facts: shape.Facts{UID: "a"}, candidates: []Candidate{{Name: "cluster1"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 is eligible: the workload requests no devices", order: []string{"cluster1"}},
		{name: "unmeasured requests only", facts: shape.Facts{UID: "a", Unmeasured: []string{"claim gpu", "nvidia.com/pgpu"}}, candidates: []Candidate{{Name: "cluster1"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 is eligible; the gate does not measure claim gpu, nvidia.com/pgpu", order: []string{"cluster1"}},
		{name: "unmeasured requests besides measured devices", facts: withUnmeasured(job("a", 8, 1), "rdma/hca"), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods; the gate does not measure rdma/hca", order: []string{"cluster1"}},
	})
}

func TestDecideWithoutUsableMetrics(t *testing.T) {
	const chosen = "cluster1 is chosen without metrics: no cluster has usable metrics and onStale is Open"
	unknown := Candidate{Name: "cluster1", Shapes: make([]ShapeMetrics, 1)}
	old := sampledBefore(cluster("cluster1", 4, 32, 8, 64), 400)
	failing := func(seconds int) Fleet {
		return Fleet{Problem: "fit: connection refused", FailingSince: before(seconds)}
	}
	runDecideCases(t, []decideCase{
		{name: "source down", candidates: []Candidate{unknown}, fleet: failing(0),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 reports no samples; fit: connection refused"},
		{name: "old samples, closed", candidates: []Candidate{old},
			state: Pending, reason: ReasonStale, message: "no cluster is eligible; cluster1 has samples older than 2m0s"},
		{name: "old samples, open", candidates: []Candidate{old}, rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "source down for less than unknownAfter, open", candidates: []Candidate{unknown}, fleet: failing(300), rules: openRules(),
			state: Pending, reason: ReasonNoMetrics, message: "no cluster is eligible; cluster1 reports no samples; fit: connection refused"},
		{name: "source down for longer than unknownAfter, open", candidates: []Candidate{unknown}, fleet: failing(301), rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "samples as old as unknownAfter, open", candidates: []Candidate{sampledBefore(cluster("cluster1", 4, 32, 8, 64), 300)}, rules: openRules(),
			state: Pending, reason: ReasonStale, message: "no cluster is eligible; cluster1 has samples older than 2m0s"},
		{name: "only an unusable cluster has metrics, open", candidates: []Candidate{unknown, withUnusable(cluster("cluster2", 4, 32, 8, 64), "is deleted")}, rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "unmeasured requests, open", facts: withUnmeasured(job("a", 8, 1), "rdma/hca"), candidates: []Candidate{unknown}, rules: openRules(),
			state: Ready, reason: ReasonPlaceable, message: chosen, order: []string{"cluster1"}},
		{name: "one cluster has metrics, open", candidates: []Candidate{old, cluster("cluster2", 0, 12, 6, 64)}, rules: openRules(),
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6; cluster1 has samples older than 2m0s"},
	})
}

// Random fleets: every ordered cluster is a usable candidate with room after the ledger,
// and appears once.
func TestDecideOrdersOnlyClustersWithRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := scoreRules(nil)
	for round := range 2000 {
		f := job(fmt.Sprint("uid", round), 1+random.Int64N(8), 1+random.Int64N(4))
		candidates, view := randomFleet(random)
		d := Decide(f, candidates, Fleet{}, view, r, round%3, t0)
		if again := Decide(f, candidates, Fleet{}, view, r, round%3, t0); !slices.Equal(d.Order, again.Order) {
			t.Fatalf("round %d: the same input gave the orders %v and %v", round, d.Order, again.Order)
		}
		seen := map[string]bool{}
		for _, name := range d.Order {
			i := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Name == name })
			if i < 0 || seen[name] || candidates[i].Unusable != "" || t0.Sub(candidates[i].SampledAt) > r.MaxSampleAge ||
				int64(candidates[i].Shapes[0].Fit.Value)-view.Slots(name, time.Time{}, f.UID, f.PodSets[0], 0) < f.PodSets[0].Pods {
				t.Fatalf("round %d: cluster %s must not be in the order %v", round, name, d.Order)
			}
			seen[name] = true
		}
		if (d.State == Ready) != (len(d.Order) > 0) || d.Message == "" || strings.Contains(d.Message, "%!") {
			t.Fatalf("round %d: %s with order %v: %q", round, d.State, d.Order, d.Message)
		}
	}
}

func randomFleet(random *rand.Rand) ([]Candidate, ledger.View) {
	var candidates []Candidate
	l := ledger.New(time.Second, time.Hour)
	for i := range random.IntN(12) {
		c := cluster(fmt.Sprint("c", i), float64(random.IntN(6)), float64(random.IntN(64)), 8, float64(random.IntN(64)))
		c = withScore(c, int32(random.IntN(201)-100))
		if random.IntN(4) == 0 {
			c = withUnusable(c, "is deleted")
		}
		if random.IntN(5) == 0 {
			c = sampledBefore(c, random.IntN(600))
		}
		if random.IntN(3) == 0 {
			l.Debit(ledger.Entry{UID: "other", Cluster: c.Name, PodSets: job("other", 4, random.Int64N(4)+1).PodSets, DebitedAt: t0})
		}
		candidates = append(candidates, c)
	}
	return candidates, l.View()
}

func BenchmarkDecide1000Candidates(b *testing.B) {
	var candidates []Candidate
	for i := range 1000 {
		candidates = append(candidates, withScore(cluster(fmt.Sprint("cluster", i), float64(i%7), float64(i), 8, 64), int32(i%100)))
	}
	r, f := scoreRules(nil), job("uid", 8, 1)
	for b.Loop() {
		Decide(f, candidates, Fleet{}, ledger.View{}, r, 1, t0)
	}
}
