package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// whole returns a job whose pods request CPU and memory, too.
func whole(uid string, devices, pods int64, r shape.Requests) shape.Facts {
	f := job(uid, devices, pods)
	f.PodSets[0].Requests = r
	return f
}

func withFits(c Candidate, byDevices, byRequests float64, measured ...string) Candidate {
	m := &c.Shapes[0]
	m.DeviceFit, m.RequestFit, m.Measured = Known(byDevices), Known(byRequests), map[string]bool{}
	for _, name := range measured {
		m.Measured[name] = true
	}
	return c
}

// The pods in flight take CPU and memory, too, of what the nodes with devices have.
func TestPodsInFlightTakeCPUAndMemory(t *testing.T) {
	light, heavy := shape.Requests{MilliCPU: 4000}, shape.Requests{MilliCPU: 32_000, Memory: 64 << 30}
	node := withFits(cluster("c1", 8, 8, 8, 8), 8, 16, "cpu", "memory") // 8 devices, 64 CPU
	for _, tc := range []struct {
		name     string
		facts    shape.Facts
		inFlight shape.Facts
		want     string
	}{
		{"none", whole("a", 1, 8, light), job("b", 1, 0), ""},
		{"two with half of the CPU each", whole("a", 1, 1, light), whole("b", 1, 2, heavy), "no cluster has room for 1 pod of 1 " + h100 + ": best is c1 with room for 0 (2 devices there promised to other workloads)"},
		{"one with half of the CPU", whole("a", 1, 7, light), whole("b", 1, 1, heavy), ""},
		{"one with half of the CPU, and devices for seven", whole("a", 1, 8, light), whole("b", 1, 1, heavy), "no cluster has room for 8 pods of 1 " + h100 + ": best is c1 with room for 7 (1 device there promised to other workloads)"},
		{"those of a gate without CPU", whole("a", 1, 6, light), job("b", 1, 2), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(time.Second, time.Hour)
			l.Debit(ledger.Entry{UID: "b", Cluster: "c1", PodSets: tc.inFlight.PodSets, DebitedAt: t0})
			d := Decide(tc.facts, []Candidate{node}, Fleet{}, l.View(), rules(), 1, t0)
			if (d.State == Ready) != (tc.want == "") || tc.want != "" && d.Message != tc.want {
				t.Errorf("%s: %q, want %q", d.State, d.Message, tc.want)
			}
		})
	}
	both := whole("a", 1, 2, heavy)
	both.PodSets = append(both.PodSets, whole("", 1, 1, light).PodSets[0])
	both.PodSets[1].Name = "workers"
	c := withFits(cluster("c1", 2, 8, 8, 8), 8, 2, "cpu", "memory")
	c.Shapes = append(c.Shapes, node.Shapes[0])
	if d := Decide(both, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0); d.State == Ready {
		t.Errorf("the second pod set has no CPU left: %q", d.Message)
	}
}

// Spare devices are those on nodes with too few of them. Devices on nodes without CPU are none: other pods can't start
// there, either.
func TestDevicesWithoutCPUAreNotSpare(t *testing.T) {
	l := ledger.New(time.Second, time.Hour)
	l.Debit(ledger.Entry{UID: "b", Cluster: "c1", PodSets: job("b", 1, 4).PodSets, DebitedAt: t0})
	c := withFits(cluster("c1", 1, 16, 8, 16), 2, 1, "cpu", "memory") // one of two nodes has CPU
	if d := Decide(whole("a", 8, 1, shape.Requests{MilliCPU: 64_000}), []Candidate{c}, Fleet{}, l.View(), rules(), 1, t0); d.State == Ready {
		t.Errorf("four small pods in flight take no room: %q", d.Message)
	}
}

// Messages name what limits the room beside devices, and what a cluster does not report.
func TestMessagesAboutWholePods(t *testing.T) {
	r := shape.Requests{MilliCPU: 64_000, Memory: 256 << 30}
	zone := whole("a", 8, 2, r)
	zone.PodSets[0].NodeLabels = []shape.NodeLabel{{Key: "zone", Values: []string{"a"}}}
	ofFlavor := zone
	ofFlavor.PodSets = []shape.PodSet{zone.PodSets[0]}
	ofFlavor.PodSets[0].FlavorLabels = map[string]string{"zone": "a"}
	for _, tc := range []struct {
		name  string
		facts shape.Facts
		c     Candidate
		want  string
	}{
		{"no CPU", whole("a", 8, 2, r), withFits(cluster("c1", 0, 32, 8, 32), 4, 0, "cpu", "memory"),
			"no cluster has room for 2 pods of 8 " + h100 + " with 64 CPU and 256Gi: best is c1 with room for 0 (4 by devices alone)"},
		{"a taint", job("a", 8, 2), withFits(cluster("c1", 0, 32, 8, 32), 4, 4, "cpu", "memory", "taint team", "taint dedicated"),
			"no cluster has room for 2 pods of 8 " + h100 + ": best is c1 with room for 0 (4 by devices alone; the pods do not tolerate taint dedicated, team)"},
		{"another zone", zone, withFits(cluster("c1", 1, 32, 8, 32), 4, 4, "cpu", "memory", "node label zone"),
			"no cluster has room for 2 pods of 8 " + h100 + " with 64 CPU and 256Gi, node label zone: best is c1 with room for 1 (4 by devices alone)"},
		{"devices are what is missing", whole("a", 8, 2, r), withFits(cluster("c1", 1, 8, 8, 32), 1, 1, "cpu", "memory"),
			"no cluster has room for 2 pods of 8 " + h100 + ": best is c1 with room for 1"},
		{"all is reported", zone, withFits(cluster("c1", 4, 32, 8, 32), 4, 4, "cpu", "memory", "node label zone"), "c1 has room for 4 such pods"},
		{"nothing is reported", zone, withFits(cluster("c1", 4, 32, 8, 32), 4, 4), "c1 has room for 4 such pods; c1 does not report CPU, memory, node label zone of its nodes"},
		{"no zone is reported, and the flavor has it", ofFlavor, withFits(cluster("c1", 4, 32, 8, 32), 4, 4, "cpu", "memory"), "c1 has room for 4 such pods"},
		{"the query has no result", whole("a", 8, 2, r), cluster("c1", 4, 32, 8, 32), "c1 has room for 4 such pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := Decide(tc.facts, []Candidate{tc.c}, Fleet{}, ledger.View{}, rules(), 1, t0); d.Message != tc.want {
				t.Errorf("got  %q\nwant %q", d.Message, tc.want)
			}
		})
	}
}

// The results of queries have samples of different times. Devices of a node that is free as a whole by newer samples are
// not spare by older ones.
func TestFreedNodeIsNotSpare(t *testing.T) {
	l := ledger.New(time.Second, time.Hour)
	l.Debit(ledger.Entry{UID: "b", Cluster: "c1", PodSets: job("b", 2, 1).PodSets, DebitedAt: t0})
	c := withFits(cluster("c1", 1, 5, 8, 8), 0, 1) // fit is newer than the free devices and the fit by these
	if d := Decide(job("a", 8, 1), []Candidate{c}, Fleet{}, l.View(), rules(), 1, t0); d.State == Ready {
		t.Errorf("a pod in flight takes no room: %q", d.Message)
	}
}
