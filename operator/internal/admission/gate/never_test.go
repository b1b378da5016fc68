package gate

import (
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// emptyCluster returns a full cluster whose empty nodes hold a number of pods, and the largest of them some devices.
func emptyCluster(name string, pods, largest float64) Candidate {
	c := cluster(name, 0, 0, 0, 64)
	c.Shapes[0].EmptyFit, c.Shapes[0].LargestNode = Known(pods), Known(largest)
	return c
}

func change(c Candidate, f func(*Candidate, *ShapeMetrics)) Candidate {
	c.Shapes = slices.Clone(c.Shapes)
	f(&c, &c.Shapes[0])
	return c
}

func TestNever(t *testing.T) {
	tooSmall, tooFew := emptyCluster("cluster1", 0, 8), emptyCluster("cluster2", 3, 8)
	tainted := change(tooSmall, func(_ *Candidate, m *ShapeMetrics) { m.Measured = map[string]bool{"taint dedicated": true} })
	partial := job("a", 8, 8)
	partial.PodSets[0].MinPods = 3
	share := job("a", 1, 1)
	share.PodSets[0].Share = &shape.Share{}
	for _, tc := range []struct {
		name       string
		facts      shape.Facts
		candidates []Candidate
		fleet      Fleet
		want       Prospect
		message    string
	}{
		{"no node is large enough", job("a", 9, 1), []Candidate{emptyCluster("cluster1", 0, 4), emptyCluster("cluster2", 0, 8)}, Fleet{}, ProspectNever,
			"can never start here: no node holds a pod of 9 " + h100 + ": the largest, on cluster1, has 4"},
		{"too few nodes", job("a", 8, 4), []Candidate{tooSmall, tooFew}, Fleet{}, ProspectNever,
			"can never start here: no cluster, even if empty, holds 4 pods of 8 " + h100 + ": best is cluster2 with room for 3"},
		{"one cluster is large enough", job("a", 8, 3), []Candidate{tooSmall, tooFew}, Fleet{}, ProspectPossible, ""},
		{"a part of the pods suffices", partial, []Candidate{tooFew}, Fleet{}, ProspectPossible, ""},
		{"the nodes have taints", job("a", 8, 1), []Candidate{tainted}, Fleet{}, ProspectNever,
			"can never start here: no node, even if empty, holds a pod of 8 " + h100 + " (the pods do not tolerate taint dedicated)"},
		{"the nodes lack CPU", job("a", 8, 1), []Candidate{emptyCluster("cluster1", 0, 8)}, Fleet{}, ProspectNever,
			"can never start here: no node, even if empty, holds a pod of 8 " + h100},
		{"no such devices", job("a", 8, 1), []Candidate{change(tooFew, func(_ *Candidate, m *ShapeMetrics) { *m = ShapeMetrics{} })}, Fleet{}, ProspectNever,
			"can never start here: no cluster has nodes with " + h100},
		{"no queue", remote(job("a", 8, 1)), []Candidate{change(tooFew, func(c *Candidate, m *ShapeMetrics) {
			m.QueueMissing, c.LocalQueues = true, map[string]string{"team-a/gpu": "own"}
		})}, Fleet{}, ProspectNever,
			"can never start here: no cluster has quota for nvidia.com/gpu; cluster2 has no quota for nvidia.com/gpu in ClusterQueue own, to which its LocalQueue team-a/gpu points"},
		{"no queue of the hub's name", remote(job("a", 8, 1)), []Candidate{change(tooFew, func(_ *Candidate, m *ShapeMetrics) { m.QueueMissing = true })}, Fleet{}, ProspectUnknown, ""},
		{"too little quota, ever", remote(job("a", 8, 2)), []Candidate{change(tooFew, func(_ *Candidate, m *ShapeMetrics) { m.QuotaLimit = Known(15) })}, Fleet{}, ProspectNever,
			"can never start here: the queue on cluster2 can have quota for at most 15 of 16 devices"},
		{"enough quota, sometimes", remote(job("a", 8, 2)), []Candidate{change(tooFew, func(_ *Candidate, m *ShapeMetrics) { m.QuotaLimit = Known(16) })}, Fleet{}, ProspectPossible, ""},
		{"the job permits no cluster", job("a", 8, 1), []Candidate{change(tooFew, func(c *Candidate, _ *ShapeMetrics) { c.Exclude(RejectNotPermitted, "x") })}, Fleet{}, ProspectNever,
			"can never start here: the job permits no cluster of the gate; cluster2 is not in annotation x"},
		{"the larger cluster is not connected now", job("a", 8, 3), []Candidate{tooSmall, change(tooFew, func(c *Candidate, _ *ShapeMetrics) { c.Exclude(RejectDisconnected, "is not connected") })}, Fleet{}, ProspectPossible, ""},
		{"samples are old", job("a", 8, 4), []Candidate{tooSmall, sampledBefore(tooFew, 121)}, Fleet{}, ProspectUnknown, ""},
		{"a query fails", job("a", 8, 4), []Candidate{tooFew}, Fleet{Problem: "fit: timeout"}, ProspectUnknown, ""},
		{"a response lacks clusters", job("a", 8, 4), []Candidate{tooFew}, Fleet{Incomplete: true}, ProspectUnknown, ""},
		{"emptyFit fails", job("a", 8, 4), []Candidate{change(tooFew, func(_ *Candidate, m *ShapeMetrics) { m.EmptyFitUncertain = true })}, Fleet{}, ProspectUnknown, ""},
		{"emptyFit has no result", job("a", 8, 4), []Candidate{change(tooFew, func(_ *Candidate, m *ShapeMetrics) { m.EmptyFit = Number{} })}, Fleet{}, ProspectUnknown, ""},
		{"no cluster is decided", job("a", 8, 4), nil, Fleet{}, ProspectUnknown, ""},
		{"a share of a device", share, []Candidate{tooSmall}, Fleet{}, ProspectUnknown, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			r.EmptyFitKnown = true
			d := Decide(tc.facts, tc.candidates, tc.fleet, ledger.View{}, r, 1, t0)
			if d.Prospect != tc.want || (d.Reason == ReasonNever) != (tc.want == ProspectNever) || tc.message != "" && d.Message != tc.message {
				t.Errorf("got %q, %s: %s\nwant %q: %s", d.Prospect, d.Reason, d.Message, tc.want, tc.message)
			}
			r.EmptyFitKnown = false // the gate has its own query fit only
			if d := Decide(tc.facts, tc.candidates, tc.fleet, ledger.View{}, r, 1, t0); d.Prospect == ProspectNever && strings.Contains(d.Message, "even if empty") {
				t.Errorf("without its own emptyFit: %s", d.Message)
			}
		})
	}
}

// The pod sets before take at least their devices from a cluster. How they lie on nodes is not known.
func TestNeverOfSeveralPodSets(t *testing.T) {
	f := job("a", 5, 1)
	f.PodSets = append(f.PodSets, shape.PodSet{Name: "worker", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: 3, Pods: 3})
	c := emptyCluster("cluster1", 2, 8)
	c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(0), EmptyFit: Known(4), LargestNode: Known(8), Capacity: Known(16)})
	r := rules()
	r.EmptyFitKnown = true
	if d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, r, 1, t0); d.Prospect != ProspectPossible { // 5 + 3 and 3 + 3 of two nodes of 8
		t.Errorf("got %q: %s", d.Prospect, d.Message)
	}
	f.PodSets[1].Pods = 4
	if d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, r, 1, t0); d.Prospect != ProspectNever || !strings.HasSuffix(d.Message, "holds all pods of the job: best is cluster1") {
		t.Errorf("got %q: %s", d.Prospect, d.Message)
	}
}

func TestEmptyFitOfAGateIsKnown(t *testing.T) {
	for _, tc := range []struct {
		fit, emptyFit string
		want          bool
	}{{"", "", true}, {"q", "", false}, {"q", "q", true}, {"", "q", true}} {
		spec := &v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: tc.fit, EmptyFit: tc.emptyFit}}
		if got := RulesOf(spec).EmptyFitKnown; got != tc.want {
			t.Errorf("fit %q, emptyFit %q: %t", tc.fit, tc.emptyFit, got)
		}
	}
}
