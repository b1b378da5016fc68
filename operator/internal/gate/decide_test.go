package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

func TestDecide(t *testing.T) {
	minimum := int32(30)
	stale := cluster("cluster3", 4, 32, 8, 64)
	stale.SampledAt = t0.Add(-200 * time.Second)
	unusable := cluster("cluster3", 4, 32, 8, 64)
	unusable.Unusable = "is not in MultiKueueConfig plimsoll-gpu"
	unknown := Candidate{Name: "cluster1", Shapes: make([]ShapeMetrics, 1)}
	unmet := cluster("cluster1", 4, 32, 8, 64)
	unmet.Conditions = []ConditionResult{says("power", 0)}
	silent := cluster("cluster1", 4, 32, 8, 64)
	silent.Conditions = []ConditionResult{sometime("power", 1, t0.Add(-121*time.Second))}
	long := cluster("cluster1", 4, 32, 8, 64)
	long.Conditions = []ConditionResult{sometime("power", 0, t0.Add(-301*time.Second))}
	empty := unknown
	empty.Conditions = []ConditionResult{says("power", math.NaN())}
	lacking := unknown
	lacking.Conditions = []ConditionResult{{Name: "power", EvaluatedAt: t0, Partial: true}}
	refused := unknown
	refused.Conditions = []ConditionResult{says("power", 0)}
	old := cluster("cluster1", 4, 32, 8, 64)
	old.SampledAt = t0.Add(-400 * time.Second)
	expired := scored(cluster("cluster2", 4, 32, 8, 64), 90)
	expired.Scores = map[string]Score{"fleet/total": {Value: 90, ValidUntil: t0.Add(-time.Second)}}
	open := rules()
	open.OnStale = v1alpha1.StaleOpen
	withScores := rules()
	withScores.Policies = prefer(nil)
	withMinimum := rules()
	withMinimum.Policies = prefer(&minimum)

	for _, tc := range []struct {
		name       string
		facts      shape.Facts
		candidates []Candidate
		fleet      Fleet
		rules      Rules
		state      State
		reason     string
		message    string
		order      []string
	}{
		{name: "the only cluster with eight on one node, though another has more in all",
			facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 0, 40, 6, 64), cluster("cluster2", 1, 8, 8, 64)},
			state: Ready, reason: ReasonPlaceable, message: "cluster2 can take it: room for 1 such pod there", order: []string{"cluster2"}},
		{name: "nothing free on one node",
			facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 0, 20, 4, 64), cluster("cluster2", 0, 12, 6, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6"},
		{name: "room for some pods only",
			facts: job("a", 8, 4), candidates: []Candidate{cluster("cluster1", 1, 8, 8, 64), cluster("cluster2", 2, 16, 8, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster2 with room for 2"},
		{name: "cordoned best node", facts: job("a", 8, 1),
			candidates: []Candidate{cluster("cluster1", 0, 0, 0, 64), cluster("cluster2", 2, 16, 8, 32)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 can take it: room for 2 such pods there", order: []string{"cluster2"}},
		{name: "no decisions", facts: job("a", 8, 1), state: Pending, reason: ReasonNoDecisions, message: "Placement plimsoll-system/gpu has decided no cluster"},
		{name: "stale and unusable are named", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster2", 0, 12, 6, 64), stale},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6; cluster3 has samples older than 2m0s"},
		{name: "not in the configuration", facts: job("a", 8, 1), candidates: []Candidate{unusable},
			state: Pending, reason: ReasonRuledOut, message: "no cluster can take it; cluster3 is not in MultiKueueConfig plimsoll-gpu"},
		{name: "cluster condition", facts: job("a", 8, 1), candidates: []Candidate{unmet},
			state: Pending, reason: ReasonRuledOut, message: "no cluster can take it; cluster1 does not meet condition power"},
		{name: "fleet condition", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)}, fleet: fleetSays(says("freeze", 0)),
			state: Pending, reason: ReasonFleetConditionUnmet, message: "waits for condition freeze"},
		{name: "fleet condition without series", facts: job("a", 8, 1), candidates: []Candidate{old}, fleet: fleetSays(says("freeze", math.NaN())), rules: open,
			state: Pending, reason: ReasonFleetConditionUnmet, message: "waits for condition freeze"},
		{name: "fleet condition, as far as its last answer is trusted", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)},
			fleet: fleetSays(sometime("freeze", 1, t0.Add(-120*time.Second))),
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there", order: []string{"cluster1"}},
		{name: "fleet condition not answered", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)},
			fleet: fleetSays(sometime("freeze", 1, t0.Add(-121*time.Second)), ConditionResult{Name: "budget"}, says("power", 1)),
			state: Pending, reason: ReasonNoMetrics, message: "waits for an answer to condition freeze, budget"},
		{name: "fleet condition not answered, not yet forgiven", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)}, rules: open,
			fleet: fleetSays(sometime("freeze", 0, t0.Add(-121*time.Second))),
			state: Pending, reason: ReasonNoMetrics, message: "waits for an answer to condition freeze"},
		{name: "fleet condition not answered, open", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)}, rules: open,
			fleet: fleetSays(sometime("freeze", 0, t0.Add(-301*time.Second))), state: Ready, reason: ReasonPlaceable, order: []string{"cluster1"},
			message: "cluster1 can take it: room for 4 such pods there, nobody answers condition freeze, and onStale is Open"},
		{name: "fleet condition not met counts before one not answered", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)},
			fleet: fleetSays(says("freeze", 0), ConditionResult{Name: "budget"}), state: Pending, reason: ReasonFleetConditionUnmet, message: "waits for condition freeze"},
		{name: "fleet condition answered in part", facts: job("a", 8, 1), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)}, rules: open,
			fleet: Fleet{Conditions: []ConditionResult{{Name: "freeze", EvaluatedAt: t0, Partial: true}}},
			state: Pending, reason: ReasonNoMetrics, message: "waits for an answer to condition freeze"},
		{name: "cluster condition not answered", facts: job("a", 8, 1), candidates: []Candidate{silent}, fleet: Fleet{Problem: "conditions/power: too heavy"},
			state: Pending, reason: ReasonNoMetrics, message: "no cluster can take it; cluster1 has no answer to condition power; conditions/power: too heavy"},
		{name: "cluster condition not answered to a workload without devices", facts: shape.Facts{UID: "a"}, candidates: []Candidate{silent},
			state: Pending, reason: ReasonNoMetrics, message: "no cluster can take it; cluster1 has no answer to condition power"},
		{name: "cluster condition not answered, open", facts: shape.Facts{UID: "a"}, candidates: []Candidate{long}, rules: open, state: Ready, reason: ReasonPlaceable,
			message: "cluster1 can take it: it asks for no devices, nobody answers condition power, and onStale is Open", order: []string{"cluster1"}},
		{name: "nothing known of the cluster, nor whether it meets the condition, open", facts: job("a", 8, 1), candidates: []Candidate{empty}, rules: open,
			state: Ready, reason: ReasonPlaceable, message: "cluster1 may take it: nothing is known of any cluster, and onStale is Open", order: []string{"cluster1"}},
		{name: "nothing known of the cluster, and condition answered in part, open", facts: job("a", 8, 1), candidates: []Candidate{lacking}, rules: open,
			state: Ready, reason: ReasonPlaceable, message: "cluster1 may take it: nothing is known of any cluster, and onStale is Open", order: []string{"cluster1"}},
		{name: "nothing known of the cluster, and condition answered in part", facts: job("a", 8, 1), candidates: []Candidate{lacking},
			state: Pending, reason: ReasonNoMetrics, message: "no cluster can take it; cluster1 has no answer to condition power"},
		{name: "nothing known of the cluster but that it does not meet the condition, open", facts: job("a", 8, 1), candidates: []Candidate{refused}, rules: open,
			state: Pending, reason: ReasonRuledOut, message: "no cluster can take it; cluster1 does not meet condition power"},
		{name: "source down", facts: job("a", 8, 1), candidates: []Candidate{unknown}, fleet: Fleet{Problem: "fit: connection refused"},
			state: Pending, reason: ReasonNoMetrics, message: "no cluster can take it; cluster1 reports no samples; fit: connection refused"},
		{name: "unknown, closed", facts: job("a", 8, 1), candidates: []Candidate{old},
			state: Pending, reason: ReasonStale, message: "no cluster can take it; cluster1 has samples older than 2m0s"},
		{name: "unknown, open", facts: job("a", 8, 1), candidates: []Candidate{old}, rules: open,
			state: Ready, reason: ReasonPlaceable, message: "cluster1 may take it: nothing is known of any cluster, and onStale is Open", order: []string{"cluster1"}},
		{name: "source down since before anybody could tell, open", facts: job("a", 8, 1), candidates: []Candidate{unknown}, rules: open,
			fleet: Fleet{Problem: "fit: connection refused", FailingSince: t0.Add(-300 * time.Second)},
			state: Pending, reason: ReasonNoMetrics, message: "no cluster can take it; cluster1 reports no samples; fit: connection refused"},
		{name: "condition not answered since before anybody could tell, open", facts: shape.Facts{UID: "a"}, candidates: []Candidate{long}, rules: open,
			fleet: Fleet{Problem: "conditions/power: too heavy", FailingSince: t0.Add(-300 * time.Second)},
			state: Pending, reason: ReasonNoMetrics, message: "no cluster can take it; cluster1 has no answer to condition power; conditions/power: too heavy"},
		{name: "source down for so long that nothing is known, open", facts: job("a", 8, 1), candidates: []Candidate{unknown}, rules: open,
			fleet: Fleet{Problem: "fit: connection refused", FailingSince: t0.Add(-301 * time.Second)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 may take it: nothing is known of any cluster, and onStale is Open", order: []string{"cluster1"}},
		{name: "open still obeys a cluster that is known", facts: job("a", 8, 1), candidates: []Candidate{old, cluster("cluster2", 0, 12, 6, 64)}, rules: open,
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6; cluster1 has samples older than 2m0s"},
		{name: "a better tier beats more room", facts: job("a", 8, 1), rules: withScores,
			candidates: []Candidate{scored(cluster("cluster1", 9, 72, 8, 512), 40), scored(cluster("cluster2", 1, 8, 8, 16), 61)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 can take it: room for 1 such pod there", order: []string{"cluster2", "cluster1"}},
		{name: "within one tier the room decides", facts: job("a", 8, 1), rules: withScores,
			candidates: []Candidate{scored(cluster("cluster1", 9, 72, 8, 512), 41), scored(cluster("cluster2", 1, 8, 8, 16), 61)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 9 such pods there", order: []string{"cluster1", "cluster2"}},
		{name: "an expired score is the last tier, not zero", facts: job("a", 8, 1), rules: withScores,
			candidates: []Candidate{expired, scored(cluster("cluster1", 1, 8, 8, 16), -50)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 1 such pod there", order: []string{"cluster1", "cluster2"}},
		{name: "below the minimum", facts: job("a", 8, 1), rules: withMinimum, candidates: []Candidate{scored(cluster("cluster1", 9, 72, 8, 512), 29)},
			state: Pending, reason: ReasonRuledOut, message: "no cluster can take it; cluster1 is below the minimum of fleet/total"},
		{name: "required score missing", facts: job("a", 8, 1), rules: withMinimum, candidates: []Candidate{cluster("cluster1", 9, 72, 8, 512)},
			state: Pending, reason: ReasonRuledOut, message: "no cluster can take it; cluster1 has no valid score fleet/total"},
		{name: "quota that is not known", facts: remote(job("a", 8, 1)), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there, as far as its queue has quota (QuotaUnknown)", order: []string{"cluster1"}},
		{name: "quota that nobody answers", facts: remote(job("a", 8, 1)), candidates: []Candidate{quotaUnanswered(cluster("cluster1", 4, 32, 8, 64))},
			fleet: Fleet{Problem: "quota: too heavy"}, state: Pending, reason: ReasonNoMetrics,
			message: "no cluster can take it; cluster1 has no answer about its queue's quota; quota: too heavy"},
		{name: "quota that nobody answers, and no room", facts: remote(job("a", 8, 1)), candidates: []Candidate{quotaUnanswered(cluster("cluster1", 0, 20, 4, 64))},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster1 with 4"},
		{name: "quota that nobody answers, not yet forgiven", facts: remote(job("a", 8, 1)), candidates: []Candidate{quotaUnanswered(cluster("cluster1", 4, 32, 8, 64))}, rules: open,
			fleet: Fleet{Problem: "quota: too heavy", FailingSince: t0.Add(-300 * time.Second)}, state: Pending, reason: ReasonNoMetrics,
			message: "no cluster can take it; cluster1 has no answer about its queue's quota; quota: too heavy"},
		{name: "quota that nobody answers, open", facts: remote(job("a", 8, 1)), candidates: []Candidate{quotaUnanswered(cluster("cluster1", 4, 32, 8, 64))}, rules: open,
			fleet: Fleet{Problem: "quota: too heavy", FailingSince: t0.Add(-301 * time.Second)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there, as far as its queue has quota (QuotaUnknown)", order: []string{"cluster1"}},
		{name: "quota that nobody answers of a queue that preempts", facts: preempting(job("a", 8, 1)), candidates: []Candidate{quotaUnanswered(cluster("cluster1", 4, 32, 8, 64))},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there", order: []string{"cluster1"}},
		{name: "less quota than room", facts: remote(job("a", 8, 2)), candidates: []Candidate{withQuota(cluster("cluster1", 4, 32, 8, 64), 15), cluster("cluster2", 0, 0, 0, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 2 pods of 8 " + h100 + ": best is cluster1, whose queue has quota for 1"},
		{name: "a queue that preempts is not bound by what others reserved", facts: preempting(job("a", 8, 2)), candidates: []Candidate{withQuota(cluster("cluster1", 4, 32, 8, 64), 0)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there", order: []string{"cluster1"}},
		{name: "less room than quota", facts: remote(job("a", 8, 1)), candidates: []Candidate{withQuota(cluster("cluster1", 4, 32, 8, 64), 400)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there", order: []string{"cluster1"}},
		{name: "quota bounds headroom, too", facts: remote(job("a", 8, 1)),
			candidates: []Candidate{withQuota(cluster("cluster1", 4, 32, 8, 64), 8), withQuota(cluster("cluster2", 2, 16, 8, 64), 64)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 can take it: room for 2 such pods there", order: []string{"cluster2", "cluster1"}},
		{name: "a worker without the queue is named", facts: remote(job("a", 8, 1)), candidates: []Candidate{noQuota(cluster("cluster1", 4, 32, 8, 64)), cluster("cluster2", 0, 12, 6, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6; cluster1 has no quota for nvidia.com/gpu in a ClusterQueue cq"},
		{name: "a workload without devices fits anywhere", facts: shape.Facts{UID: "a"}, candidates: []Candidate{{Name: "cluster1"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: it asks for no devices", order: []string{"cluster1"}},
		{name: "what nobody measures is named", facts: shape.Facts{UID: "a", Unmeasured: []string{"claim gpu", "nvidia.com/pgpu"}}, candidates: []Candidate{{Name: "cluster1"}},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it, as far as it has claim gpu and nvidia.com/pgpu, which the gate does not measure", order: []string{"cluster1"}},
		{name: "besides what is measured, too", facts: alsoAsking(job("a", 8, 1), "rdma/hca"), candidates: []Candidate{cluster("cluster1", 4, 32, 8, 64)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 can take it: room for 4 such pods there, as far as it has rdma/hca, which the gate does not measure", order: []string{"cluster1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.rules.Placement == "" {
				tc.rules = rules()
			}
			d := Decide(tc.facts, tc.candidates, tc.fleet, ledger.View{}, tc.rules, 1, t0)
			if d.State != tc.state || d.Reason != tc.reason || d.Message != tc.message {
				t.Errorf("got %s %s %q\nwant %s %s %q", d.State, d.Reason, d.Message, tc.state, tc.reason, tc.message)
			}
			if diff := cmp.Diff(tc.order, d.Order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if chosen := kueuestate.ChosenCluster(d.Message); chosen != strings.Join(tc.order[:min(1, len(tc.order))], "") {
				t.Errorf("the message %q names %q", d.Message, chosen)
			}
		})
	}
}

// burst sends n equal jobs, each seeing what the ledger holds of the ones before.
func burst(l *ledger.Ledger, n int, candidates []Candidate) map[string]int {
	sent := map[string]int{}
	for i := range n {
		f := job(fmt.Sprintf("uid-%d", i), 8, 1)
		l.Reserve(f.UID, nil, func(view ledger.View) []ledger.Entry {
			d := Decide(f, candidates, Fleet{}, view, rules(), 1, t0)
			if d.State != Ready {
				sent["waits: "+d.Message]++
				return nil
			}
			sent[d.Order[0]]++
			return []ledger.Entry{{UID: f.UID, Workload: f.Key(), Cluster: d.Order[0], PodSets: f.PodSets, DebitedAt: t0}}
		})
	}
	return sent
}

func TestBurstFillsBothClusters(t *testing.T) {
	two := []Candidate{cluster("cluster1", 5, 40, 8, 40), cluster("cluster2", 5, 40, 8, 40)}
	if diff := cmp.Diff(map[string]int{"cluster1": 5, "cluster2": 5}, burst(ledger.New(5*time.Second, time.Hour), 10, two)); diff != "" {
		t.Errorf("ten jobs onto two clusters with room for five each (-want +got):\n%s", diff)
	}
	got := burst(ledger.New(5*time.Second, time.Hour), 11, two)
	waits := "waits: no cluster has room for 1 pod of 8 " + h100 + ": best is cluster1 with room for 0 (40 devices there promised to workloads on their way)"
	if got[waits] != 1 {
		t.Errorf("the eleventh must wait and say why, got %v", got)
	}
}

func TestSaysWhatIsPromised(t *testing.T) {
	const promised = " (16 devices there promised to workloads on their way)"
	l := ledger.New(time.Second, time.Hour)
	l.Debit(ledger.Entry{UID: "other", Cluster: "c1", PodSets: job("other", 8, 2).PodSets, DebitedAt: t0})
	for name, tc := range map[string]struct {
		facts     shape.Facts
		candidate Candidate
		want      string
	}{
		"a node with eight, one pod too few": {job("a", 8, 2), cluster("c1", 3, 24, 8, 64), "no cluster has room for 2 pods of 8 " + h100 + ": best is c1 with room for 1"},
		"two nodes with eight, all promised": {job("a", 8, 1), cluster("c1", 2, 16, 8, 64), "no cluster has room for 1 pod of 8 " + h100 + ": best is c1 with room for 0"},
		"too few, and these are promised":    {job("a", 8, 4), cluster("c1", 2, 16, 8, 64), "no cluster has room for 4 pods of 8 " + h100 + ": best is c1 with room for 0"},
		"no node with eight":                 {job("a", 8, 2), cluster("c1", 0, 20, 6, 64), "no cluster has 8 free " + h100 + " on one node: best is c1 with 6"},
		"no node with eight, none known":     {job("a", 8, 1), withLargest(cluster("c1", 0, 20, 0, 64), Number{}), "no cluster has 8 free " + h100 + " on one node: best is c1 with 4 in all"},
		"a queue without quota":              {remote(job("a", 8, 2)), withQuota(cluster("c1", 4, 32, 8, 64), 8), "no cluster has room for 2 pods of 8 " + h100 + ": best is c1, whose queue has quota for 1"},
	} {
		d := Decide(tc.facts, []Candidate{tc.candidate}, Fleet{}, l.View(), rules(), 1, t0)
		if want := tc.want + promised; d.Message != want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, d.Message, want)
		}
	}
}

// Where a cluster lacks quota alone nobody asks for the best nodes.
func TestOneThatOnlyLacksQuotaIsTheNearest(t *testing.T) {
	nodes, quota := withQuota(cluster("c1", 0, 20, 0, 64), 64), withQuota(cluster("c2", 4, 32, 0, 64), 0)
	d := Decide(remote(job("a", 8, 1)), []Candidate{withLargest(nodes, Number{}), withLargest(quota, Number{})}, Fleet{}, ledger.View{}, rules(), 1, t0)
	if want := "no cluster has room for 1 pod of 8 " + h100 + ": best is c2, whose queue has quota for 0"; d.Message != want {
		t.Errorf("got  %q\nwant %q", d.Message, want)
	}
}

// Each workload that waits would write its status once a round.
func TestMessageStandsWhileNothingChangesButTime(t *testing.T) {
	stale := cluster("cluster2", 4, 32, 8, 64)
	stale.SampledAt = t0.Add(-200 * time.Second)
	list := []Candidate{cluster("cluster1", 0, 12, 6, 64), stale}
	first := Decide(job("a", 8, 1), list, Fleet{}, ledger.View{}, rules(), 1, t0)
	next := Decide(job("a", 8, 1), list, Fleet{}, ledger.View{}, rules(), 1, t0.Add(15*time.Second))
	if first.Message != next.Message {
		t.Errorf("said %q and 15 s later %q", first.Message, next.Message)
	}
	if why := next.Verdicts[1].Why(); why != "has samples 3m35s old" {
		t.Errorf("explained as %q", why)
	}
}

func TestPodSetsTakeFromEachOther(t *testing.T) {
	f := job("a", 8, 2)
	f.PodSets = append(f.PodSets, shape.PodSet{Name: "small", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: 4, Pods: 2})
	c := cluster("cluster1", 3, 24, 8, 64)
	c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(6)})
	if d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0); d.State != Ready {
		t.Errorf("3 nodes of 8 hold 2×8 and 2×4: %s", d.Message)
	}
	for fit, want := range map[float64]string{5: "1", 4: "0"} {
		c.Shapes[1].Fit = Known(fit)
		d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0)
		if want := "no cluster has room for 2 pods of 4 " + h100 + ": best is cluster1 with room for " + want; d.Message != want {
			t.Errorf("got %q, want %q", d.Message, want)
		}
	}
}

// TestNeverNominatesWhatIsNoCandidate draws random fleets: whatever is ordered
// is a usable candidate with room after the ledger, each once.
func TestNeverNominatesWhatIsNoCandidate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		f := job(fmt.Sprint("uid", round), 1+random.Int64N(8), 1+random.Int64N(4))
		var list []Candidate
		l := ledger.New(time.Second, time.Hour)
		for i := range random.IntN(12) {
			c := scored(cluster(fmt.Sprint("c", i), float64(random.IntN(6)), float64(random.IntN(64)), 8, float64(random.IntN(64))), int32(random.IntN(201)-100))
			if random.IntN(4) == 0 {
				c.Unusable = "is gone"
			}
			if random.IntN(5) == 0 {
				c.SampledAt = t0.Add(-time.Duration(random.IntN(600)) * time.Second)
			}
			if random.IntN(3) == 0 {
				l.Debit(ledger.Entry{UID: "other", Cluster: c.Name, PodSets: job("other", 4, random.Int64N(4)+1).PodSets, DebitedAt: t0})
			}
			list = append(list, c)
		}
		r := rules()
		r.Policies = prefer(nil)
		view := l.View()
		d := Decide(f, list, Fleet{}, view, r, round%3, t0)
		if again := Decide(f, list, Fleet{}, view, r, round%3, t0); !slices.Equal(d.Order, again.Order) {
			t.Fatalf("the same question was answered %v and %v", d.Order, again.Order)
		}
		seen := map[string]bool{}
		for _, name := range d.Order {
			i := slices.IndexFunc(list, func(c Candidate) bool { return c.Name == name })
			if i < 0 || seen[name] || list[i].Unusable != "" || t0.Sub(list[i].SampledAt) > r.MaxSampleAge ||
				int64(list[i].Shapes[0].Fit.Value)-view.Slots(name, time.Time{}, f.UID, f.PodSets[0]) < f.PodSets[0].Pods {
				t.Fatalf("round %d nominates %s of %v", round, name, d.Order)
			}
			seen[name] = true
		}
		if (d.State == Ready) != (len(d.Order) > 0) || d.Message == "" || strings.Contains(d.Message, "%!") {
			t.Fatalf("round %d: %s with order %v: %q", round, d.State, d.Order, d.Message)
		}
	}
}

func TestDrawFollowsCapacity(t *testing.T) {
	list := []Candidate{cluster("big", 100, 800, 8, 900), cluster("mid", 100, 800, 8, 90), cluster("small", 100, 800, 8, 10)}
	got := map[string]int{}
	for i := range 1000 {
		d := Decide(job(fmt.Sprint("uid-", i), 8, 1), list, Fleet{}, ledger.View{}, rules(), 1, t0)
		got[d.Order[0]]++
	}
	if got["big"] < 850 || got["small"] > 40 {
		t.Errorf("equal headroom, capacities 900, 90 and 10: drew %v", got)
	}
}

func BenchmarkDecide1000Candidates(b *testing.B) {
	var list []Candidate
	for i := range 1000 {
		list = append(list, scored(cluster(fmt.Sprint("cluster", i), float64(i%7), float64(i), 8, 64), int32(i%100)))
	}
	r := rules()
	r.Policies = prefer(nil)
	f := job("uid", 8, 1)
	for b.Loop() {
		Decide(f, list, Fleet{}, ledger.View{}, r, 1, t0)
	}
}

// Every other cluster would be one copy more.
func TestKeepsWhatIsNominatedWhereItHasRoom(t *testing.T) {
	full, far := cluster("cluster1", 0, 0, 0, 64), cluster("cluster3", 1, 8, 8, 64)
	candidates := []Candidate{full, cluster("cluster2", 8, 64, 8, 64), far}
	r := rules()
	r.Incumbents = []string{"cluster1", "cluster3"}
	for attempt := range 10 {
		d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, r, attempt, t0)
		if diff := cmp.Diff([]string{"cluster3", "cluster2"}, d.Order); diff != "" || !strings.HasPrefix(d.Message, "cluster3 ") {
			t.Fatalf("attempt %d: %q (-want +got):\n%s", attempt, d.Message, diff)
		}
	}
}
