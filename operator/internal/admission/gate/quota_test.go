package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// wholeJob is a workload whose pods request 8 devices, 8 cores and 64 GiB each.
func wholeJob(uid string, pods int64) shape.Facts {
	f := remote(job(uid, 8, pods))
	f.PodSets[0].Requests = shape.Requests{MilliCPU: 8000, Memory: 64 << 30}
	return f
}

// withRequestQuota adds the quota of the worker's queue for cores and GiB.
func withRequestQuota(c Candidate, cores, gib Number) Candidate {
	c.Shapes[0].CPUQuota, c.Shapes[0].MemoryQuota = cores, Number{gib.Value * (1 << 30), gib.Known}
	return c
}

func TestDecideQuotaOfRequests(t *testing.T) {
	free := func(cores, gib Number) []Candidate {
		return []Candidate{withRequestQuota(withQuota(cluster("cluster1", 4, 32, 8, 64), 32), cores, gib)}
	}
	const noRoom = "no cluster has room for 2 pods of 8 " + h100 + ": best is cluster1, whose queue has "
	partial := wholeJob("a", 4)
	partial.PodSets[0].MinPods = 2
	f := wholeJob("a", 2)
	noRequests := remote(job("a", 8, 2))
	runDecideCases(t, []decideCase{
		{name: "enough", facts: f, candidates: free(Known(16), Known(128)), state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 2 such pods", order: []string{"cluster1"}},
		{name: "cores", facts: f, candidates: free(Known(15.5), Known(256)), state: Pending, reason: ReasonNoRoom, message: noRoom + "quota of cpu for 1"},
		{name: "memory", facts: f, candidates: free(Known(64), Known(63)), state: Pending, reason: ReasonNoRoom, message: noRoom + "quota of memory for 0"},
		{name: "of no such resources", facts: f, candidates: free(Number{}, Number{}), state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "pods that request none", facts: noRequests, candidates: free(Known(0), Known(0)), state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "sums of decimal fractions", facts: f, candidates: free(Known(15.999999999999998), Known(128)), state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 2 such pods", order: []string{"cluster1"}},
		{name: "for a part of the pods", facts: partial, candidates: free(Known(24), Known(256)), state: Ready, reason: ReasonPlaceable,
			message: "cluster1 has room for 3 such pods; its queue has quota for 3 of 4 pods", order: []string{"cluster1"}},
	})
}

// Workloads in flight take CPU and memory of their queue, whatever devices they request.
func TestQuotaOfRequestsIsDebited(t *testing.T) {
	for queue, want := range map[string]float64{"cq": 1, "other": 2} {
		l := ledger.New(time.Second, time.Hour)
		sent := wholeJob("b", 1).PodSets
		sent[0].Model = "NVIDIA-L4"
		l.Debit(ledger.Entry{UID: "b", Cluster: "cluster1", Queue: ledger.Queue{Cluster: queue}, PodSets: sent, DebitedAt: t0})
		c := withRequestQuota(withQuota(cluster("cluster1", 4, 32, 8, 64), 32), Known(16), Known(1024))
		if d := Decide(wholeJob("a", 1), []Candidate{c}, Fleet{}, l.View(), rules(), 1, t0); d.Verdicts[0].Room != Known(want) {
			t.Errorf("room %v beside a workload of queue %s, want %v", d.Verdicts[0].Room, queue, want)
		}
	}
}

// Kueue on the worker gets CPU by preemption as well, and a workload that needs more than the queue can ever have does
// not hold the cluster.
func TestQuotaOfRequestsByPreemption(t *testing.T) {
	for _, tc := range []struct {
		name     string
		cores    float64
		room     float64
		mayStart bool
	}{
		{"enough with the cores of the victim", 0, 1, true},
		{"too little even then", -1, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(time.Second, time.Hour)
			l.PutRunning(ledger.Running{UID: "r", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: -1, PodSets: wholeJob("r", 1).PodSets})
			r, f := rules(), wholeJob("a", 1)
			r.PreemptsLowerPriority, f.Preempts = true, true
			c := withRequestQuota(withQuota(cluster("cluster1", 0, 0, 0, 64), 0), Known(tc.cores), Known(1024))
			if d := Decide(f, []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.Verdicts[0].Room != Known(tc.room) {
				t.Errorf("room %v, want %v", d.Verdicts[0].Room, tc.room)
			}
			e := newEvaluation(f, nil, Fleet{}, r, t0)
			if got := e.mayGetQuota(&c, 0, l.View()); got != tc.mayStart {
				t.Errorf("the queue can have the quota: %t", got)
			}
		})
	}
}
