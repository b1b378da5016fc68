package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestNoRoomMessageStatesPromisedDevices(t *testing.T) {
	const promised = " (16 devices there promised to other workloads)"
	l := ledger.New(time.Second, time.Hour)
	l.Debit(ledger.Entry{UID: "other", Cluster: "c1", PodSets: job("other", 8, 2).PodSets, DebitedAt: t0})
	for _, tc := range []struct {
		name      string
		facts     shape.Facts
		candidate Candidate
		want      string
	}{
		{"one pod too many", job("a", 8, 2), cluster("c1", 3, 24, 8, 64), "no cluster has room for 2 pods of 8 " + h100 + ": best is c1 with room for 1"},
		{"all nodes promised", job("a", 8, 1), cluster("c1", 2, 16, 8, 64), "no cluster has room for 1 pod of 8 " + h100 + ": best is c1 with room for 0"},
		{"too few nodes, and all promised", job("a", 8, 4), cluster("c1", 2, 16, 8, 64), "no cluster has room for 4 pods of 8 " + h100 + ": best is c1 with room for 0"},
		{"no node is large enough", job("a", 8, 2), cluster("c1", 0, 20, 6, 64), "no cluster has 8 free " + h100 + " on one node: best is c1 with 6"},
		{"a node is large enough, but not by the query", job("a", 8, 1), cluster("c1", 0, 20, 8, 64), "no cluster has room for 1 pod of 8 " + h100 + " by the gate's query fit: best is c1 with 8 free on one node"},
		{"best node unknown", job("a", 8, 1), withLargest(cluster("c1", 0, 20, 0, 64), Number{}), "no cluster has 8 free " + h100 + " on one node: best is c1 with 4 in total"},
		{"one node, and that is promised", job("a", 8, 2), cluster("c1", 1, 8, 8, 64), "no cluster has room for 2 pods of 8 " + h100 + ": best is c1 with room for 0"},
		{"best node unknown, and more promised than free", job("a", 8, 1), withLargest(cluster("c1", 0, 12, 0, 64), Number{}), "no cluster has 8 free " + h100 + " on one node: best is c1 with 0 in total"},
		{"too little quota", remote(job("a", 8, 2)), withQuota(cluster("c1", 4, 32, 8, 64), 8), "no cluster has room for 2 pods of 8 " + h100 + ": best is c1, whose queue has quota for 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(tc.facts, []Candidate{tc.candidate}, Fleet{}, l.View(), rules(), 1, t0)
			if want := tc.want + promised; d.Message != want {
				t.Errorf("got  %q\nwant %q", d.Message, want)
			}
		})
	}
}

func TestNoRoomMessageWithoutSuchDevices(t *testing.T) {
	for _, shapes := range [][]ShapeMetrics{nil, make([]ShapeMetrics, 1)} {
		d := Decide(job("a", 8, 1), []Candidate{{Name: "cluster1", SampledAt: t0, Shapes: shapes}}, Fleet{}, ledger.View{}, rules(), 1, t0)
		if want := "no cluster has 8 free " + h100 + " on one node: none has any"; d.Message != want {
			t.Errorf("got  %q\nwant %q", d.Message, want)
		}
	}
}

// The query fit of a gate may lack series for devices that exist: no node is trusted or known to
// kube-state-metrics, the nodes have no label for the topology, or no slices.
func TestMessageWithoutSeriesOfFit(t *testing.T) {
	noSeries := cluster("cluster1", 0, 12, 6, 64)
	noSeries.Shapes[0].Fit = Number{}
	noDevices := Candidate{Name: "cluster2", SampledAt: t0, Shapes: make([]ShapeMetrics, 1)}
	const message = "no cluster is eligible; cluster1 has 64 " + h100 + ", and no series of the gate's query fit"
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		reason     string
		message    string
		mayGiveUp  bool
	}{
		{"devices without series", []Candidate{noSeries, noDevices}, ReasonNoMetrics, message, false},
		{"no devices", []Candidate{noDevices}, ReasonNoRoom, "no cluster has 8 free " + h100 + " on one node: none has any", true},
		{"a full cluster, too", []Candidate{noSeries, cluster("cluster3", 0, 12, 6, 64)}, ReasonNoRoom, "no cluster has 8 free " + h100 + " on one node: best is cluster3 with 6; cluster1 has 64 " + h100 + ", and no series of the gate's query fit", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(job("a", 8, 1), tc.candidates, Fleet{}, ledger.View{}, rules(), 1, t0)
			if d.Message != tc.message || d.Reason != tc.reason || d.NoRoomAnywhere != tc.mayGiveUp {
				t.Errorf("%s, no room anywhere: %t: %q\nwant %q", d.Reason, d.NoRoomAnywhere, d.Message, tc.message)
			}
		})
	}
}

// Of the full clusters, the message names the one that comes nearest, in whatever order the Placement
// decides them.
func TestNoRoomMessageNamesTheNearestCluster(t *testing.T) {
	unknownNode := func(c Candidate) Candidate { return withLargest(c, Number{}) }
	l := holdOf("big", 2, time.Hour, func(h *ledger.Hold) { h.Cluster = "held" })
	l.Debit(ledger.Entry{UID: "other", Cluster: "promised", PodSets: job("other", 8, 2).PodSets, DebitedAt: t0})
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		want       string
	}{
		{"room for more pods", []Candidate{cluster("c1", 1, 32, 8, 64), cluster("c2", 2, 16, 8, 64)}, " room for 4 pods of 8 " + h100 + ": best is c2 with room for 2"},
		{"large enough nodes, which are promised", []Candidate{cluster("promised", 1, 8, 8, 64), cluster("c2", 0, 60, 6, 64)},
			" room for 4 pods of 8 " + h100 + ": best is promised with room for 0 (16 devices there promised to other workloads)"},
		{"only quota is missing", []Candidate{withQuota(unknownNode(cluster("c1", 0, 20, 0, 64)), 64), withQuota(unknownNode(cluster("c2", 4, 32, 0, 64)), 0)},
			" room for 4 pods of 8 " + h100 + ": best is c2, whose queue has quota for 0"},
		{"the largest node", []Candidate{cluster("c1", 0, 20, 4, 64), cluster("c2", 0, 12, 6, 64)}, " 8 free " + h100 + " on one node: best is c2 with 6"},
		{"unknown nodes: more devices", []Candidate{unknownNode(cluster("c1", 0, 20, 0, 64)), unknownNode(cluster("c2", 0, 12, 0, 64))}, " 8 free " + h100 + " on one node: best is c1 with 20 in total"},
		{"not a held cluster", []Candidate{cluster("held", 9, 72, 8, 72), cluster("c2", 1, 8, 8, 64)}, " room for 4 pods of 8 " + h100 + ": best is c2 with room for 1; held is held for team-a/big"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 {
				slices.Reverse(tc.candidates)
				d := Decide(remote(job("a", 8, 4)), tc.candidates, Fleet{}, l.View(), holdRules(v1alpha1.HoldOff, 1, 0), 1, t0)
				if want := "no cluster has" + tc.want; d.Message != want {
					t.Errorf("got  %q\nwant %q", d.Message, want)
				}
			}
		})
	}
}

func TestMessageNamesTheFirstExcludedClusters(t *testing.T) {
	for n, want := range map[int]string{5: "c4 is deleted, c5 is deleted", 7: "c4 is deleted, c5 is deleted, 2 more"} {
		var candidates []Candidate
		for i := range n {
			candidates = append(candidates, withUnusable(cluster(fmt.Sprint("c", i+1), 1, 8, 8, 64), "is deleted"))
		}
		d := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, rules(), 1, t0)
		if want := "no cluster is eligible; c1 is deleted, c2 is deleted, c3 is deleted, " + want; d.Message != want {
			t.Errorf("got  %q\nwant %q", d.Message, want)
		}
	}
}

// Nothing in the message of a workload behind equal ones changes while the reason stays.
func TestMessageInLine(t *testing.T) {
	const behind = "; an equal workload is decided first, and its check says more"
	small, stale := cluster("c1", 1, 9, 8, 64), sampledBefore(cluster("c1", 4, 32, 8, 64), 600)
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		want       string
	}{
		{"no room", []Candidate{small}, "no cluster has room for 2 pods of 8 " + h100 + behind},
		{"old samples", []Candidate{stale}, "no cluster is eligible" + behind},
		{"no decision", nil, "Placement fleet/gpu has decided no cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			r.Placement = "fleet/gpu"
			d := Decide(job("a", 8, 2), tc.candidates, Fleet{}, ledger.View{}, r, 1, t0)
			if got := d.MessageInLine(job("a", 8, 2)); d.State != Pending || got != tc.want {
				t.Errorf("%s: got  %q\nwant %q", d.Reason, got, tc.want)
			}
		})
	}
}

func TestTruncate(t *testing.T) {
	exact := strings.Repeat("x", MaxMessage)
	for _, tc := range []struct{ name, text, want string }{
		{"as long as permitted", exact, exact},
		{"too long", exact + "x", exact[3:] + "..."},
		{"escape sequences", "zone\x1b]0;title\x07\x1b[2J \u202eé", "zone]0;title[2J é"},
		{"white space", "forbidden\r\nfaked\tline", "forbidden  faked line"},
		{"within a character", exact[4:] + "üxxx", exact[4:] + "..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Truncate(tc.text); got != tc.want {
				t.Errorf("got %d bytes, want %d: %q", len(got), len(tc.want), got)
			}
		})
	}
}

// Otherwise each waiting workload would write its status at every wake-up.
func TestMessageDoesNotChangeWithTimeAlone(t *testing.T) {
	candidates := []Candidate{cluster("cluster1", 0, 12, 6, 64), sampledBefore(cluster("cluster2", 4, 32, 8, 64), 200)}
	first := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, rules(), 1, t0)
	next := Decide(job("a", 8, 1), candidates, Fleet{}, ledger.View{}, rules(), 1, t0.Add(15*time.Second))
	if first.Message != next.Message {
		t.Errorf("message %q became %q after 15 s", first.Message, next.Message)
	}
	if why := next.Verdicts[1].Why(); why != "has samples 3m35s old" {
		t.Errorf("an explanation must state the age, got %q", why)
	}
}
