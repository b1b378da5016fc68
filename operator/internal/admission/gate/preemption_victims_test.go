package gate

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Only devices of victims that suit the workload make room. Devices of large pods count by whole pods,
// devices of small ones together.
func TestPreemptionCountsPodsOnDevicesOfVictims(t *testing.T) {
	set := func(model string, devices, pods, percent int64) shape.PodSet {
		p := shape.PodSet{Name: "main", Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: devices, Pods: pods}
		if percent > 0 {
			p.Share = &shape.Share{MemoryPercent: percent}
		}
		return p
	}
	for _, tc := range []struct {
		name   string
		own    shape.PodSet
		victim []shape.PodSet
		want   State
	}{
		{"two pods on a node of one", set(h100, 4, 2, 0), []shape.PodSet{set(h100, 8, 1, 0)}, Ready},
		{"the rest of two nodes", set(h100, 4, 3, 0), []shape.PodSet{set(h100, 6, 2, 0)}, Pending},
		{"small pods together", set(h100, 4, 1, 0), []shape.PodSet{set(h100, 1, 4, 0)}, Ready},
		{"too few small pods", set(h100, 8, 1, 0), []shape.PodSet{set(h100, 1, 7, 0)}, Pending},
		{"other devices", set(h100, 8, 1, 0), []shape.PodSet{set(h100, 1, 1, 0), set("NVIDIA-L4", 8, 1, 0)}, Pending},
		{"a share as large", set(h100, 1, 1, 50), []shape.PodSet{set(h100, 1, 1, 50)}, Ready},
		{"a smaller share", set(h100, 1, 1, 50), []shape.PodSet{set(h100, 1, 1, 10)}, Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, 0)
			l.PutRunning(ledger.Running{UID: "victim", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: tc.victim})
			f := preempting(job("a", 8, 1))
			f.PodSets = []shape.PodSet{tc.own}
			// The quota suffices with what the victim returns, so that devices decide.
			quota := tc.own.Devices() - ledger.SharedDevices(tc.victim, tc.own)
			r := rules()
			r.Rank.Priority, r.PreemptsLowerPriority = 2, true
			d := Decide(f, []Candidate{withQuota(cluster("cluster1", 0, 0, 0, 64), float64(quota))}, Fleet{}, l.View(), r, 1, t0)
			if d.State != tc.want {
				t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// What one pod set needs to preempt counts for the workload, whatever the pod sets after it need.
func TestPreemptionForTheFirstOfSeveralPodSets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		queue  string
		quotas [2]Number
		want   string
	}{
		{"quota for all", "cq", [2]Number{Known(8), Known(8)}, "cluster1 has room for 2 such pods"},
		{"a lower priority for the first", "cq", [2]Number{Known(0), Known(8)}, "cluster1 has room for 1 such pod after preemption of lower priorities"},
		{"a borrower for the first", "friend", [2]Number{Known(0), Known(8)}, "cluster1 has room for 1 such pod after preemption of lower priorities or of borrowers in the cohort"},
		{"unknown quota for the first", "cq", [2]Number{{}, Known(8)}, "cluster1 has room for 2 such pods; the quota of its queue is unknown (QuotaUnknown)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, 0)
			l.PutRunning(ledger.Running{UID: "victim", Cluster: "cluster1", Queue: ledger.Queue{Cluster: tc.queue}, Priority: 1, PodSets: job("victim", 8, 1).PodSets})
			f := preempting(job("a", 8, 1))
			f.PodSets = append(f.PodSets, f.PodSets[0])
			f.PodSets[1].Name, f.PodSets[1].Model = "second", "NVIDIA-L4"
			r := rules()
			r.Rank.Priority, r.PreemptsLowerPriority, r.Reclaim = 2, true, Reclaim{Queues: []string{"friend"}, AnyPriority: true}
			free := 2.0
			if tc.quotas[0] == Known(0) {
				free = 0
			}
			c := Candidate{Name: "cluster1", SampledAt: before(5), Shapes: []ShapeMetrics{
				{Fit: Known(free), Quota: tc.quotas[0], NominalQuota: Known(8), Borrowed: borrowed("friend", 8)}, {Fit: Known(2), Quota: tc.quotas[1]}}}
			d := Decide(f, []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
			if d.State != Ready || d.Message != tc.want || d.Verdicts[0].LacksQuota != (tc.quotas[0] == Known(0)) {
				t.Errorf("%s %q, lacks quota: %t, want %q", d.State, d.Message, d.Verdicts[0].LacksQuota, tc.want)
			}
		})
	}
}

// Lower priorities and borrowers make no more room than the workload has to preempt.
func TestPreemptionTakesNoMoreThanTheWorkloadNeeds(t *testing.T) {
	l := ledger.New(0, 0)
	l.PutRunning(ledger.Running{UID: "p", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job("p", 8, 1).PodSets})
	l.PutRunning(ledger.Running{UID: "q", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "friend"}, Priority: 5, PodSets: job("q", 8, 1).PodSets})
	r := rules()
	r.Rank.Priority, r.PreemptsLowerPriority, r.Reclaim = 2, true, Reclaim{Queues: []string{"friend"}, AnyPriority: true}
	for _, quota := range []float64{0, -8} {
		c := withQuota(cluster("cluster1", 0, 0, 0, 64), quota)
		c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(16), borrowed("friend", 8)
		d := Decide(preempting(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
		if want := "cluster1 has room for 1 such pod after preemption of lower priorities"; d.Message != want {
			t.Errorf("quota for %.0f devices: %s %q, want %q", quota, d.State, d.Message, want)
		}
	}
}
