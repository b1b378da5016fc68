package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestExplainListsEveryBrokenRule(t *testing.T) {
	minimum := int32(30)
	r := scoreRules(&minimum)
	r.Scores = append(r.Scores, v1alpha1.GateScore{ResourceName: "health", ScoreName: "total", Use: v1alpha1.UseRequire})
	excluded := withRequirements(withScore(cluster("cluster1", 1, 8, 8, 64), 10), evaluated("power", 0), evaluated("cooling", 2), RequirementResult{Name: "network"})
	eligible := withScore(cluster("cluster2", 2, 16, 8, 64), 80)
	eligible.Scores["health/total"] = Score{Value: 1}
	l := ledger.New(time.Second, time.Hour)
	promised := ledger.Entry{UID: "b", Workload: "team-a/b", Cluster: "cluster1", PodSets: job("b", 8, 1).PodSets, DebitedAt: t0}
	l.Debit(promised)
	l.Credit(ledger.Credit{Cluster: "cluster2", PodSets: job("c", 4, 1).PodSets, FinishedAt: t0})

	d, got := Explain(job("a", 8, 1), []Candidate{excluded, eligible}, Fleet{}, l.View(), r, 1, t0)
	if d.State != Ready || cmp.Diff([]string{"cluster2"}, d.Order) != "" || d.Verdicts != nil {
		t.Errorf("decision: %+v", d)
	}
	t.Run("excluded cluster", func(t *testing.T) {
		want := []BrokenRule{{RejectScore, "fleet/total"}, {RejectNoScore, "health/total"}, {RejectRequirement, "power"}, {RejectRequirementFailing, "network"}, {RejectNoRoom, "main"}}
		if diff := cmp.Diff(want, got[0].Broken); diff != "" {
			t.Errorf("broken rules (-want +got):\n%s", diff)
		}
		if want := "has a score fleet/total below the minimum, has no valid score health/total, does not meet requirement power, " +
			"has no result for requirement network, has room for 0 such pods, with 8 devices promised"; got[0].Why != want {
			t.Errorf("why:\ngot  %q\nwant %q", got[0].Why, want)
		}
		if got[0].Rejection != RejectScore || got[0].Score != Known(10) || got[0].Fit != Known(1) {
			t.Errorf("verdict: %+v", got[0].Verdict)
		}
		if diff := cmp.Diff(excluded.Requirements, got[0].Requirements); diff != "" {
			t.Errorf("requirements (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]ledger.Entry{promised}, got[0].Ledger); diff != "" {
			t.Errorf("ledger (-want +got):\n%s", diff)
		}
	})
	t.Run("eligible cluster", func(t *testing.T) {
		if got[1].Why != "is eligible" || got[1].Broken != nil || got[1].Credited != 4 || got[1].Net != 20 {
			t.Errorf("explanation: %+v", got[1])
		}
	})
}

// Old samples say nothing about room.
func TestExplainEvaluatesRoomOfFreshSamples(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sampled time.Time
		want    string
		fit     Number
		age     float64
	}{
		{"as old as permitted", before(120), "has room for 0 such pods", Known(0), 120},
		{"too old", before(121), "has samples 2m1s old", Number{}, 121},
		{"unknown", time.Time{}, "reports no samples", Number{}, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster("cluster1", 0, 0, 0, 64)
			c.SampledAt = tc.sampled
			_, got := Explain(job("a", 8, 1), []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0)
			if got[0].Why != tc.want || got[0].Fit != tc.fit || got[0].Age != tc.age {
				t.Errorf("%q with fit %v and age %v, want %q with %v and %v", got[0].Why, got[0].Fit, got[0].Age, tc.want, tc.fit, tc.age)
			}
		})
	}
}

func TestExplainIgnoresMissingDataAsDecideDoes(t *testing.T) {
	candidates := []Candidate{{Name: "cluster1", Requirements: []RequirementResult{{Name: "power"}}}}
	t.Run("requirement without result", func(t *testing.T) {
		_, got := Explain(shape.Facts{UID: "a"}, candidates, Fleet{}, ledger.View{}, Rules{OnStale: v1alpha1.StaleOpen}, 1, t0)
		if want := "is eligible, requirement power has no result and onStale is Open"; got[0].Why != want {
			t.Errorf("got %q, want %q", got[0].Why, want)
		}
	})
	t.Run("no usable metrics", func(t *testing.T) {
		d, got := Explain(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, openly(requiredScore()), 1, t0)
		if d.State != Ready || got[0].Broken != nil || !got[0].WithoutMetrics {
			t.Errorf("got %+v %+v", d, got[0])
		}
	})
	t.Run("failing for less than unknownAfter", func(t *testing.T) {
		_, got := Explain(job("a", 8, 1), []Candidate{{Name: "cluster1"}}, Fleet{Problem: "timeout", FailingSince: before(60)}, ledger.View{}, openRules(), 1, t0)
		if diff := cmp.Diff([]BrokenRule{{Rejection: RejectUnknown}}, got[0].Broken); diff != "" {
			t.Errorf("broken rules (-want +got):\n%s", diff)
		}
	})
}

// Each cluster that could take the workload says why another one comes first, above all one with a better score.
func TestExplainOrder(t *testing.T) {
	with := func(c Candidate, change func(*Candidate)) Candidate {
		change(&c)
		return c
	}
	prefer := func(value float64) func(*Candidate) { return func(c *Candidate) { c.Preference = Known(value) } }
	small, large := cluster("small", 1, 8, 8, 16), cluster("large", 9, 72, 8, 512)
	sentToSmall := scoreRules(nil)
	sentToSmall.Incumbents = []string{"small"}
	twin := func(name string) Candidate { return cluster(name, 4, 32, 8, 64) }
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		rules      Rules
		other, why string
	}{
		{"best score, fewer devices", []Candidate{withScore(small, 61), withScore(large, 41)}, scoreRules(nil), "small",
			"is eligible; large comes first: of free devices, it has 72 and this one 8 (scores within 20 points count as equal)"},
		{"same score, fewer devices", []Candidate{withScore(small, 41), withScore(large, 41)}, scoreRules(nil), "small",
			"is eligible; large comes first: of free devices, it has 72 and this one 8"},
		{"worse tier", []Candidate{withScore(small, 61), withScore(large, 40)}, scoreRules(nil), "large",
			"is eligible; small comes first: its score is higher by more than 20 points"},
		{"preference", []Candidate{with(withScore(small, 0), prefer(2)), with(withScore(large, 90), prefer(1))}, scoreRules(nil), "large",
			"is eligible; small comes first: the gate prefers it"},
		{"sent to another one", []Candidate{withScore(small, 41), withScore(large, 61)}, sentToSmall, "large",
			"is eligible; small comes first: the workload is sent there already"},
		{"equal clusters", []Candidate{withScore(twin("c1"), 60), withScore(twin("c2"), 60)}, scoreRules(nil), "", "; c1 comes first: it was drawn, by the sizes of the clusters"},
		{"only one has room", []Candidate{withScore(small, 61), withScore(cluster("full", 0, 0, 0, 64), 80)}, scoreRules(nil), "full", "has room for 0 such pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, clusters := Explain(job("a", 8, 1), tc.candidates, Fleet{}, ledger.View{}, tc.rules, 1, t0)
			for _, c := range clusters {
				if c.Cluster == d.Order[0] && strings.Contains(c.Why, "first") {
					t.Errorf("the first cluster %s", c.Why)
				}
				if c.Cluster == tc.other && c.Why != tc.why {
					t.Errorf("%s %q, want %q", c.Cluster, c.Why, tc.why)
				}
				if tc.other == "" && c.Cluster != d.Order[0] && !strings.HasSuffix(c.Why, strings.ReplaceAll(tc.why, "c1", d.Order[0])) {
					t.Errorf("%s %q, want %q", c.Cluster, c.Why, tc.why)
				}
			}
		})
	}
}

func TestWhyFirstByDrawbacks(t *testing.T) {
	e := &evaluation{rules: scoreRules(nil)}
	for _, tc := range []struct {
		name         string
		first, other Verdict
		want         string
	}{
		{"preemption", Verdict{}, Verdict{LacksQuota: true, Net: 9}, "it needs no preemption"},
		{"preemption counts more than slow starts", Verdict{Slow: true}, Verdict{LacksQuota: true, Net: 9}, "it needs no preemption"},
		{"slow starts", Verdict{}, Verdict{Slow: true, Net: 9}, "workloads start faster there"},
		{"slow starts where both preempt", Verdict{LacksQuota: true}, Verdict{LacksQuota: true, Slow: true, Net: 9}, "workloads start faster there"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := e.whyFirst(tc.first, tc.other, false); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
