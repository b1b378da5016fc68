package gate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/ledger"
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
		{name: "required score missing", rules: scoreRules(&minimum), candidates: []Candidate{cluster("cluster1", 9, 72, 8, 512)},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 has no valid score fleet/total"},
	})
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
	candidates := []Candidate{cluster("big", 100, 800, 8, 900), cluster("mid", 100, 800, 8, 90), cluster("small", 100, 800, 8, 10)}
	drawn := map[string]int{}
	for i := range 1000 {
		d := Decide(job(fmt.Sprint("uid-", i), 8, 1), candidates, Fleet{}, ledger.View{}, rules(), 1, t0)
		drawn[d.Order[0]]++
	}
	if drawn["big"] < 850 || drawn["small"] > 40 {
		t.Errorf("with equal headroom and capacities of 900, 90 and 10 devices, drew %v", drawn)
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
