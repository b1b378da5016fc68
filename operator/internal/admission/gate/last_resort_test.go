package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// holding returns a candidate with 16 free devices on nodes of 8.
func holding(name string, empty float64) Candidate {
	c := cluster(name, 2, 16, 8, 16)
	c.Shapes[0].EmptyFit = Known(empty)
	return c
}

// hanging returns the view of a ledger with workloads that a cluster admitted some time ago and has not started.
func hanging(cluster string, ago time.Duration, namespaces ...string) ledger.View {
	l := ledger.New(15*time.Second, 10*time.Minute)
	for i, namespace := range namespaces {
		l.PutRunning(ledger.Running{UID: namespace + string(rune('a'+i)), Namespace: namespace, Cluster: cluster, Since: t0.Add(-ago), ReportsPodsReady: true})
	}
	return l.View()
}

// A cluster that did not start the workload, or that starts none, is used only if no other one could hold it.
func TestLastResorts(t *testing.T) {
	avoided := func(c Candidate) Candidate { c.LastResort = "did not start its pods"; return c }
	unmeasured := cluster("cluster2", 0, 0, 0, 16)
	full := cluster("cluster2", 0, 0, 0, 16)
	full.Shapes[0].EmptyFit = Known(2)
	doubt := hanging("cluster1", 6*time.Minute, "team-a", "team-a")
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		view       ledger.View
		usable     string
		message    string
	}{
		{"another cluster has room", []Candidate{avoided(holding("cluster1", 2)), holding("cluster2", 2)}, ledger.View{}, "cluster2", ""},
		{"another cluster is full", []Candidate{avoided(holding("cluster1", 2)), full}, ledger.View{}, "", "cluster1 did not start its pods"},
		{"the other cluster is too small", []Candidate{avoided(holding("cluster1", 2)), holding("cluster2", 0)}, ledger.View{}, "cluster1 cluster2", ""},
		{"what the other cluster could hold is unknown", []Candidate{avoided(holding("cluster1", 2)), unmeasured}, ledger.View{}, "cluster1", ""},
		{"the other cluster is ruled out", []Candidate{avoided(holding("cluster1", 2)), withUnusable(holding("cluster2", 2), "is gone")}, ledger.View{}, "cluster1", ""},
		{"no other cluster", []Candidate{avoided(holding("cluster1", 2))}, ledger.View{}, "cluster1", ""},
		{"all are avoided", []Candidate{avoided(holding("cluster1", 2)), avoided(holding("cluster2", 2))}, ledger.View{}, "cluster1 cluster2", ""},
		{"doubted", []Candidate{holding("cluster1", 2), full}, doubt, "", "cluster1 is doubted: 2 workloads have not started there since 11:54:00 UTC"},
		{"doubted, and no other could hold it", []Candidate{holding("cluster1", 2)}, doubt, "cluster1", ""},
		{"doubted, and the other is avoided", []Candidate{holding("cluster1", 2), avoided(holding("cluster2", 2))}, doubt, "cluster1 cluster2", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules := Rules{Placement: "gpu", MaxSampleAge: time.Minute}
			d := Decide(job("a", 8, 1), tc.candidates, Fleet{}, tc.view, rules, 1, t0)
			if got := strings.Join(slices.Sorted(slices.Values(d.Order)), " "); got != tc.usable {
				t.Errorf("usable %q, want %q", got, tc.usable)
			}
			if !strings.Contains(d.Message, tc.message) {
				t.Errorf("message %q lacks %q", d.Message, tc.message)
			}
		})
	}
}

// A cluster whose exporter reports devices that kube-state-metrics does not follows the others, also slow ones, and is used
// if no other has room.
func TestClustersWithExcessDevicesFollow(t *testing.T) {
	rules := Rules{Placement: "gpu", MaxSampleAge: time.Minute}
	large := holding("cluster1", 8)
	large.Shapes[0].Headroom, large.Shapes[0].Capacity, large.Excess = Known(64), Known(64), Known(8)
	candidates := []Candidate{large, holding("cluster2", 2)}
	for name, view := range map[string]ledger.View{"fast": {}, "slow": hanging("cluster2", timing.SlowStart, "team-a")} {
		d, clusters := Explain(job("a", 8, 1), candidates, Fleet{}, view, rules, 1, t0)
		if !slices.Equal(d.Order, []string{"cluster2", "cluster1"}) {
			t.Errorf("%s: order %v, want cluster2 first", name, d.Order)
		}
		want := "is eligible, an exporter reports 8 devices that kube-state-metrics does not; cluster2 comes first: kube-state-metrics confirms its devices"
		if clusters[0].Why != want {
			t.Errorf("%s: cluster1 %q, want %q", name, clusters[0].Why, want)
		}
	}
	candidates[1].Shapes[0].Fit = Known(0)
	if d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, rules, 1, t0); !slices.Equal(d.Order, []string{"cluster1"}) {
		t.Errorf("order %v, want cluster1, the only one with room", d.Order)
	}
}

// What a cluster admitted and has not started counts against its rank, and not against its room.
func TestUnstartedWorkloadsCountAgainstRank(t *testing.T) {
	large := holding("cluster1", 8)
	large.Shapes[0].Headroom, large.Shapes[0].Capacity = Known(64), Known(64)
	for unstarted, want := range map[int64]string{0: "cluster1", 49: "cluster2"} {
		l := ledger.New(15*time.Second, 10*time.Minute)
		l.PutRunning(ledger.Running{UID: "u", Namespace: "team-b", Cluster: "cluster1", Since: t0.Add(-timing.SlowStart + time.Second), ReportsPodsReady: true,
			PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", Pods: 1, DevicesPerPod: unstarted}}})
		d := Decide(job("a", 8, 1), []Candidate{large, holding("cluster2", 8)}, Fleet{}, l.View(), Rules{Placement: "gpu", MaxSampleAge: time.Minute}, 1, t0)
		if len(d.Order) != 2 || d.Order[0] != want {
			t.Errorf("with %d devices of a workload that has not started on cluster1: order %v, want %s first", unstarted, d.Order, want)
		}
	}
}

// A cluster where a workload has not started for longer than usual follows the others.
func TestSlowClustersFollow(t *testing.T) {
	for _, tc := range []struct {
		name string
		view ledger.View
		want string
	}{
		{"nothing hangs", ledger.View{}, "cluster1"},
		{"a workload has not started yet", hanging("cluster1", timing.SlowStart-time.Second, "team-a"), "cluster1"},
		{"a workload of the namespace has not started for long", hanging("cluster1", timing.SlowStart, "team-a"), "cluster2"},
		{"one of another namespace", hanging("cluster1", timing.SlowStart, "team-b"), "cluster1"},
		{"those of several others", hanging("cluster1", timing.SlowStart, "team-b", "team-c"), "cluster2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			large := holding("cluster1", 8)
			large.Shapes[0].Headroom, large.Shapes[0].Capacity = Known(64), Known(64)
			d := Decide(job("a", 8, 1), []Candidate{large, holding("cluster2", 2)}, Fleet{}, tc.view, Rules{Placement: "gpu", MaxSampleAge: time.Minute}, 1, t0)
			if len(d.Order) != 2 || d.Order[0] != tc.want {
				t.Errorf("order %v, want %s first", d.Order, tc.want)
			}
		})
	}
}
