package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

func TestDecideScores(t *testing.T) {
	minimum := int32(30)
	expired := cluster("cluster2", 4, 32, 8, 64)
	expired.Scores = map[string]Score{"fleet/total": {Value: 90, ValidUntil: before(1)}}
	runDecideCases(t, []decideCase{
		{name: "a better tier ranks before more room", rules: scoreRules(nil),
			candidates: []Candidate{withScore(cluster("cluster1", 9, 72, 8, 512), 40), withScore(cluster("cluster2", 1, 8, 8, 16), 61)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 has room for 1 such pod", order: []string{"cluster2", "cluster1"}},
		{name: "room decides within a tier", rules: scoreRules(nil),
			candidates: []Candidate{withScore(cluster("cluster1", 9, 72, 8, 512), 41), withScore(cluster("cluster2", 1, 8, 8, 16), 61)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster1 has room for 9 such pods", order: []string{"cluster1", "cluster2"}},
		{name: "an expired score is the last tier, not zero", rules: scoreRules(nil),
			candidates: []Candidate{expired, withScore(cluster("cluster1", 1, 8, 8, 16), -50)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster1 has room for 1 such pod", order: []string{"cluster1", "cluster2"}},
		{name: "below the minimum", rules: scoreRules(&minimum), candidates: []Candidate{withScore(cluster("cluster1", 9, 72, 8, 512), 29)},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 has a score fleet/total below the minimum"},
		{name: "the minimum", rules: scoreRules(&minimum), candidates: []Candidate{withScore(cluster("cluster1", 9, 72, 8, 512), 30)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 9 such pods", order: []string{"cluster1"}},
		{name: "the default minimum", rules: requiredScore(), candidates: []Candidate{withScore(cluster("cluster1", 9, 72, 8, 512), -99), withScore(cluster("cluster2", 9, 72, 8, 512), -100)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 9 such pods", order: []string{"cluster1"}},
		{name: "required score missing, open and without metrics", rules: openly(scoreRules(&minimum)), candidates: []Candidate{{Name: "cluster1"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 is chosen without metrics: no cluster has usable metrics and onStale is Open", order: []string{"cluster1"}},
		{name: "required score missing", rules: scoreRules(&minimum), candidates: []Candidate{cluster("cluster1", 9, 72, 8, 512)},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 has no valid score fleet/total"},
	})
}

func TestPreferred(t *testing.T) {
	scores := map[string]Score{"fleet/total": {Value: 10}, "fleet/power": {Value: 40}}
	prefer := func(names ...string) []v1alpha1.GateScore {
		policies := []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "required", Use: v1alpha1.UseRequire}}
		for _, name := range names {
			policies = append(policies, v1alpha1.GateScore{ResourceName: "fleet", ScoreName: name, Use: v1alpha1.UsePrefer})
		}
		return policies
	}
	for _, tc := range []struct {
		name     string
		policies []v1alpha1.GateScore
		want     Number
	}{
		{"none is preferred", prefer(), Known(0)},
		{"the mean", prefer("total", "power"), Known(25)},
		{"one is missing", prefer("total", "cost"), Number{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Preferred(scores, tc.policies, t0); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// The gate's preference comes before scores and headroom. Room, incumbents and preemption count as
// without it.
func TestPreferenceOrdersClustersWithRoom(t *testing.T) {
	preferring := func(c Candidate, preference Number) Candidate { c.Preference = preference; return c }
	slow := withScore(cluster("slow", 9, 72, 8, 512), 100)
	fast := withScore(cluster("fast", 1, 8, 8, 16), 0)
	full := withScore(cluster("full", 0, 0, 0, 64), 100)
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		incumbents []string
		want       []string
	}{
		{"no preference", []Candidate{slow, fast}, nil, []string{"slow", "fast"}},
		{"the preferred cluster has room", []Candidate{preferring(slow, Known(1)), preferring(fast, Known(2))}, nil, []string{"fast", "slow"}},
		{"a negative value is a value", []Candidate{preferring(slow, Known(-2)), preferring(fast, Known(-1))}, nil, []string{"fast", "slow"}},
		{"equal values: the score decides", []Candidate{preferring(slow, Known(2)), preferring(fast, Known(2))}, nil, []string{"slow", "fast"}},
		{"unknown comes last", []Candidate{slow, preferring(fast, Known(0))}, nil, []string{"fast", "slow"}},
		{"the preferred cluster is full", []Candidate{preferring(full, Known(3)), preferring(slow, Known(1)), preferring(fast, Known(2))}, nil, []string{"fast", "slow"}},
		{"sent to another one before", []Candidate{preferring(slow, Known(1)), preferring(fast, Known(2))}, []string{"slow"}, []string{"slow", "fast"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := scoreRules(nil)
			r.Incumbents = tc.incumbents
			d := Decide(job("a", 8, 1), tc.candidates, Fleet{}, ledger.View{}, r, 1, t0)
			if diff := cmp.Diff(tc.want, d.Order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFullClustersKeepTheirTier(t *testing.T) {
	// 100 and 85 are one tier, and 75 is the next, although 75 is within 20 points of 85.
	candidates := []Candidate{
		withScore(cluster("full", 0, 0, 0, 64), 100),
		withScore(cluster("near", 1, 8, 8, 64), 85),
		withScore(cluster("far", 9, 72, 8, 64), 75),
	}
	d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, scoreRules(nil), 1, t0)
	if diff := cmp.Diff([]string{"near", "far"}, d.Order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestDrawFollowsCapacity(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 100, 800, 8, 10), cluster("cluster2", 100, 800, 8, 90), cluster("cluster3", 100, 800, 8, 900)}
	drawn := map[string]int{}
	for i := range 1000 {
		d := Decide(job(fmt.Sprint("uid-", i), 8, 1), candidates, Fleet{}, ledger.View{}, rules(), 1, t0)
		drawn[d.Order[0]]++
	}
	if drawn["cluster3"] < 850 || drawn["cluster2"] < 50 || drawn["cluster1"] > 40 || drawn["cluster1"] == 0 {
		t.Errorf("with equal headroom and capacities of 10, 90 and 900 devices, drew %v", drawn)
	}
}

// A cluster of unknown capacity counts as one device.
func TestDrawWithoutCapacities(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 100, 800, 8, 0), cluster("cluster2", 100, 800, 8, 0), cluster("cluster3", 100, 800, 8, 0)}
	drawn := map[string]int{}
	for i := range 100 {
		drawn[Decide(job(fmt.Sprint("uid-", i), 8, 1), candidates, Fleet{}, ledger.View{}, rules(), 1, t0).Order[0]]++
	}
	if len(drawn) < 3 {
		t.Errorf("drew %v, want each cluster", drawn)
	}
}

// The draw is of two different clusters, so that the better one of a tier of two always comes first.
func TestBetterOfTwoClustersComesFirst(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 8, 64, 8, 64), cluster("cluster2", 9, 72, 8, 64)}
	for attempt := range 40 {
		d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, rules(), attempt, t0)
		if diff := cmp.Diff([]string{"cluster2", "cluster1"}, d.Order); diff != "" {
			t.Fatalf("attempt %d: order (-want +got):\n%s", attempt, diff)
		}
	}
}

// Only the first of the best tier is drawn. All others follow by free devices, then by name, in whatever
// order the Placement decides them.
func TestClustersBehindTheFirstFollowByFreeDevices(t *testing.T) {
	candidates := []Candidate{
		withScore(cluster("cluster1", 2, 16, 8, 64), 100),
		withScore(cluster("cluster2", 3, 24, 8, 64), 100),
		withScore(cluster("cluster3", 4, 32, 8, 64), 100),
		withScore(cluster("cluster4", 3, 24, 8, 64), 100),
		withScore(cluster("cluster5", 2, 16, 8, 64), 50),
		withScore(cluster("cluster6", 3, 24, 8, 64), 50),
		withScore(cluster("cluster7", 4, 32, 8, 64), 50),
		withScore(cluster("cluster8", 3, 24, 8, 64), 50),
	}
	firsts := map[string]bool{}
	for attempt := range 40 {
		slices.Reverse(candidates)
		order := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, scoreRules(nil), attempt, t0).Order
		firsts[order[0]] = true
		best := slices.DeleteFunc([]string{"cluster3", "cluster2", "cluster4", "cluster1"}, func(c string) bool { return c == order[0] })
		want := slices.Concat(order[:1], best, []string{"cluster7", "cluster6", "cluster8", "cluster5"})
		if diff := cmp.Diff(want, order); diff != "" {
			t.Fatalf("attempt %d: order (-want +got):\n%s", attempt, diff)
		}
	}
	if firsts["cluster1"] || !firsts["cluster2"] || !firsts["cluster3"] || !firsts["cluster4"] {
		t.Errorf("first were %v, want each but cluster1, which has least devices", firsts)
	}
}

func TestIncumbentWithRoomStaysFirst(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 0, 0, 0, 64), cluster("cluster2", 8, 64, 8, 64), cluster("cluster3", 1, 8, 8, 64)}
	r := rules()
	r.Incumbents = []string{"cluster1", "cluster3"}
	for attempt := range 10 {
		d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, r, attempt, t0)
		if diff := cmp.Diff([]string{"cluster3", "cluster2"}, d.Order); diff != "" || !strings.HasPrefix(d.Message, "cluster3 ") {
			t.Fatalf("attempt %d: %q, order (-want +got):\n%s", attempt, d.Message, diff)
		}
	}
}

// A cluster is compared with another one, not with itself.
func TestTheSecondDrawIsOfAnotherCluster(t *testing.T) {
	a, b := &Verdict{Cluster: "cluster1", Capacity: 64, Net: 1}, &Verdict{Cluster: "cluster2", Capacity: 64, Net: 2}
	random := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		if got := drawByCapacity([]*Verdict{a, b}, a, random); got != b {
			t.Fatalf("drew %s", got.Cluster)
		}
		if got := drawByCapacity([]*Verdict{a, b}, b, random); got != a {
			t.Fatalf("drew %s", got.Cluster)
		}
	}
}

// Spare devices are known if fit and headroom are both the default or both the gate's own.
func TestSpareDevicesNeedQueriesOfOneKind(t *testing.T) {
	for _, tc := range []struct {
		fit, headroom string
		want          bool
	}{{"", "", true}, {"own", "", false}, {"", "own", false}, {"own", "own", true}} {
		if got := RulesOf(&v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.fit, Headroom: tc.headroom}}).SpareKnown; got != tc.want {
			t.Errorf("fit %q, headroom %q: spare devices known %t", tc.fit, tc.headroom, got)
		}
	}
}
