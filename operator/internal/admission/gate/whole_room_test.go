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

// Spare devices are those on nodes with too few of them. Others are not spare, although the pods in flight may take them.
func TestSpareDevices(t *testing.T) {
	r := rules()
	r.SpareKnown = true
	for _, tc := range []struct {
		name     string
		c        Candidate
		facts    shape.Facts
		inFlight shape.Facts
		want     State
	}{
		{"a node has too few", withFits(cluster("c1", 1, 12, 8, 16), 1, 2), job("a", 8, 1), job("b", 1, 4), Ready},
		// Other pods can't start there, either.
		{"a node has no CPU", withFits(cluster("c1", 1, 16, 8, 16), 2, 1, "cpu"), whole("a", 8, 1, shape.Requests{MilliCPU: 64_000}), job("b", 1, 4), Pending},
		// The results of queries have samples of different times, here fit the latest.
		{"a node is free as a whole since then", withFits(cluster("c1", 1, 5, 8, 8), 0, 1), job("a", 8, 1), job("b", 2, 1), Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(time.Second, time.Hour)
			l.Debit(ledger.Entry{UID: "b", Cluster: "c1", PodSets: tc.inFlight.PodSets, DebitedAt: t0})
			if d := Decide(tc.facts, []Candidate{tc.c}, Fleet{}, l.View(), r, 1, t0); d.State != tc.want {
				t.Errorf("%s: %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}
