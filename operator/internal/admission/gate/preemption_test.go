package gate

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

func dispatchRecord() dispatch.Record { return dispatch.Record{} }

// A workload that may preempt finds room where lower priorities of its ClusterQueue run, once.
func TestPreemptionCountsLowerPriorities(t *testing.T) {
	victims := func(queue string, priority int32, devices, n int64) *ledger.Ledger {
		l := ledger.New(0, 0)
		for i := range n {
			uid := string(rune('p' + i))
			l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", Queue: ledger.Queue{Cluster: queue}, Priority: priority, PodSets: job(uid, devices, 1).PodSets})
		}
		return l
	}
	itself := ledger.New(0, 0)
	itself.PutRunning(ledger.Running{UID: "a", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job("a", 8, 1).PodSets})
	claimed := victims("cq", 1, 8, 1)
	claimed.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", PodSets: job("other", 8, 1).PodSets, DebitedAt: t0})
	for _, tc := range []struct {
		name     string
		ledger   *ledger.Ledger
		priority int32
		preempts bool
		whole    bool
		free     float64
		want     State
		message  string
	}{
		{"a lower priority", victims("cq", 1, 8, 1), 2, true, false, 0, Ready, "cluster1 has room for 1 such pod after preemption of lower priorities"},
		{"several small ones", victims("cq", 1, 1, 8), 2, true, false, 0, Ready, "cluster1 has room for 1 such pod after preemption of lower priorities"},
		{"several small ones, whole nodes", victims("cq", 1, 1, 8), 2, true, true, 0, Pending, ""},
		{"a lower priority, whole nodes", victims("cq", 1, 8, 1), 2, true, true, 0, Ready, "cluster1 has room for 1 such pod after preemption of lower priorities"},
		{"too few", victims("cq", 1, 1, 7), 2, true, false, 0, Pending, ""},
		{"the same priority", victims("cq", 2, 8, 1), 2, true, false, 0, Pending, ""},
		{"another ClusterQueue", victims("other", 1, 8, 1), 2, true, false, 0, Pending, ""},
		{"a queue that does not preempt", victims("cq", 1, 8, 1), 2, false, false, 0, Pending, ""},
		{"the workload itself, with the priority that it had before", itself, 2, true, false, 0, Pending, ""},
		{"already claimed by another workload", claimed, 2, true, false, 0, Pending, ""},
		{"free devices beside them", victims("cq", 1, 8, 1), 2, true, false, 1, Ready, "cluster1 has room for 2 such pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			r.Rank.Priority, r.PreemptsLowerPriority, r.WholeNodes = tc.priority, tc.preempts, tc.whole
			d := Decide(preempting(job("a", 8, 1)), []Candidate{withQuota(cluster("cluster1", tc.free, 8*tc.free, 8*tc.free, 64), 0)}, Fleet{}, tc.ledger.View(), r, 1, t0)
			if d.State != tc.want || tc.message != "" && d.Message != tc.message {
				t.Errorf("%s %q, want %s %q", d.State, d.Message, tc.want, tc.message)
			}
		})
	}
}

// Victims on several nodes make no node that is large enough: no more pods start than on empty nodes.
func TestPreemptionMakesNoLargerNode(t *testing.T) {
	l := ledger.New(0, 0)
	for i := range 8 {
		uid := string(rune('p' + i))
		l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job(uid, 4, 1).PodSets})
	}
	r := rules()
	r.Rank.Priority, r.PreemptsLowerPriority = 2, true
	for empty, want := range map[float64]string{0: "", 1: "cluster1 has room for 1 such pod after preemption of lower priorities", 9: "cluster1 has room for 1 such pod after preemption of lower priorities"} {
		c := withEmptyFit(withQuota(cluster("cluster1", 0, 0, 0, 64), 0), empty)
		d := Decide(preempting(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
		if (d.State == Ready) != (want != "") || want != "" && d.Message != want {
			t.Errorf("room for %v pods on empty nodes: %s %q, want %q", empty, d.State, d.Message, want)
		}
	}
}

// Kueue on the worker preempts only for quota that its queue lacks. A queue with quota beside busy
// nodes admits the workload, whose pods then find no node.
func TestPreemptionNeedsAShortageOfQuota(t *testing.T) {
	l := ledger.New(0, 0)
	for _, uid := range []string{"p", "q"} {
		l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job(uid, 8, 1).PodSets})
		l.PutRunning(ledger.Running{UID: uid + "2", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "friend"}, Priority: 1, PodSets: job(uid, 8, 1).PodSets})
	}
	for _, tc := range []struct {
		name  string
		free  float64
		quota Number
		pods  int64
		want  State
	}{
		{"no quota left", 0, Known(0), 1, Ready},
		{"less quota left than a pod needs", 0, Known(7), 1, Ready},
		{"quota for the pod", 0, Known(8), 1, Pending},
		{"quota without end", 0, Known(math.Inf(1)), 1, Pending},
		{"quota exceeded", 0, Known(-8), 1, Ready},
		{"quota exceeded by all that the victims return", 0, Known(-16), 1, Pending},
		{"unknown quota", 0, Number{}, 1, Pending},
		{"unknown quota and a free node", 1, Number{}, 1, Ready},
		{"quota and a free node", 1, Known(8), 1, Ready},
		{"quota for two pods, and a node for the only one", 1, Known(16), 1, Ready},
		{"quota for one of two pods, and no node for it", 0, Known(8), 2, Pending},
		{"quota for one of two pods, and a node for it", 1, Known(8), 2, Ready},
	} {
		for name, change := range map[string]func(*Rules, *Candidate){
			"lower priorities": func(r *Rules, _ *Candidate) { r.PreemptsLowerPriority = true },
			"borrowers": func(r *Rules, c *Candidate) {
				r.Reclaim = Reclaim{Queues: []string{"friend"}, AnyPriority: true}
				c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(16), borrowed("friend", 16)
			},
		} {
			t.Run(tc.name+", "+name, func(t *testing.T) {
				r, c := rules(), cluster("cluster1", tc.free, 8*tc.free, 8*tc.free, 64)
				r.Rank.Priority, c.Shapes[0].Quota = 2, tc.quota
				change(&r, &c)
				if d := Decide(preempting(job("a", 8, tc.pods)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.State != tc.want {
					t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
				}
			})
		}
	}
}

// What was sent to the cluster for the same queue and is not measured yet uses the quota, too. What was
// sent for another queue takes devices, but is no reason for Kueue to preempt.
func TestPreemptionCountsPromisedQuota(t *testing.T) {
	for _, tc := range []struct {
		name  string
		queue string
		quota float64
		want  State
	}{
		{"the quota is promised", "cq", 8, Ready},
		{"quota is left", "cq", 16, Pending},
		{"quota of another queue is promised", "other", 8, Pending},
		{"quota of another queue of the cohort is promised", "friend", 8, Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, time.Hour)
			l.PutRunning(ledger.Running{UID: "p", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job("p", 8, 2).PodSets})
			l.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", Queue: ledger.Queue{Cluster: tc.queue}, PodSets: job("other", 8, 1).PodSets, DebitedAt: t0})
			r := rules()
			r.Rank.Priority, r.PreemptsLowerPriority, r.CohortQueues = 2, true, []string{"friend"}
			c := withQuota(cluster("cluster1", 1, 8, 8, 64), tc.quota)
			if d := Decide(preempting(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.State != tc.want {
				t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// Clusters with free devices come before those where others would be preempted.
func TestFreeDevicesComeBeforePreemption(t *testing.T) {
	l := ledger.New(0, 0)
	l.PutRunning(ledger.Running{UID: "victim", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job("victim", 8, 4).PodSets})
	r := rules()
	r.Rank.Priority, r.PreemptsLowerPriority = 2, true
	for attempt := range 20 {
		d := Decide(preempting(job("a", 8, 1)), []Candidate{withQuota(cluster("cluster1", 0, 60, 4, 640), 0), cluster("cluster2", 1, 8, 8, 16)}, Fleet{}, l.View(), r, attempt, t0)
		if diff := cmp.Diff([]string{"cluster2", "cluster1"}, d.Order); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
}

// Kueue admits nothing without quota, whatever nodes are free. A cluster with quota for the workload
// comes before one where others have to lose theirs.
func TestFreeQuotaComesBeforePreemption(t *testing.T) {
	r := rules()
	r.Rank.Priority, r.PreemptsLowerPriority = 2, true
	larger, smaller := withQuota(cluster("cluster1", 8, 64, 8, 640), 0), withQuota(cluster("cluster2", 1, 8, 8, 16), 8)
	l := ledger.New(0, 0)
	l.PutRunning(ledger.Running{UID: "victim", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job("victim", 8, 1).PodSets})
	for attempt := range 20 {
		d := Decide(preempting(job("a", 8, 1)), []Candidate{larger, smaller}, Fleet{}, l.View(), r, attempt, t0)
		if diff := cmp.Diff([]string{"cluster2", "cluster1"}, d.Order); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
}

// Four jobs with one device each, sent to a cluster with four idle nodes of eight, leave three
// nodes for jobs with eight devices.
func TestSmallEntriesDoNotHideIdleNodes(t *testing.T) {
	l := ledger.New(0, 0)
	for _, uid := range []string{"w", "x", "y", "z"} {
		l.Debit(ledger.Entry{UID: uid, Cluster: "cluster1", PodSets: job(uid, 1, 1).PodSets, DebitedAt: t0})
	}
	for _, tc := range []struct {
		name       string
		free       float64
		spareKnown bool
		pods       int64
		want       State
	}{
		{"on idle nodes alone", 32, true, 3, Ready},
		{"not all four nodes", 32, true, 4, Pending},
		{"beside four spare devices", 36, true, 4, Ready},
		{"queries of different devices", 36, false, 4, Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			r.SpareKnown = tc.spareKnown
			d := Decide(job("a", 8, tc.pods), []Candidate{cluster("cluster1", 4, tc.free, 8, 64)}, Fleet{}, l.View(), r, 1, t0)
			if d.State != tc.want {
				t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// One device more would hide the node that a job with one device takes.
func TestSpareDevicesAreCountedExactly(t *testing.T) {
	one := ledger.New(0, 0)
	one.Debit(ledger.Entry{UID: "w", Cluster: "cluster1", PodSets: job("w", 1, 1).PodSets, DebitedAt: t0})
	for _, tc := range []struct {
		name       string
		view       ledger.View
		free       float64
		spareKnown bool
		want       State
	}{
		{"no spare device", one.View(), 32, true, Pending},
		{"one spare device", one.View(), 33, true, Ready},
		{"unknown spare devices", one.View(), 33, false, Pending},
		{"fewer free devices than on idle nodes, by a later sample", ledger.View{}, 31, true, Ready},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			r.SpareKnown = tc.spareKnown
			d := Decide(job("a", 8, 4), []Candidate{cluster("cluster1", 4, tc.free, 8, 64)}, Fleet{}, tc.view, r, 1, t0)
			if d.State != tc.want {
				t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// Two workloads arrive between two samples. The first one uses up the nominal quota with which
// its queue may reclaim.
func TestReclaimSubtractsTheLedger(t *testing.T) {
	l := ledger.New(0, time.Hour)
	l.PutRunning(ledger.Running{UID: "p", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "lender"}, PodSets: job("p", 8, 2).PodSets})
	r := rules()
	r.Rank.Priority, r.Reclaim = 2, Reclaim{Queues: []string{"lender"}, AnyPriority: true}
	decide := func(uid string) Decision {
		c := withQuota(cluster("cluster1", 1, 8, 8, 64), 0)
		c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(8), borrowed("lender", 16)
		return Decide(preempting(job(uid, 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
	}
	if d := decide("first"); d.State != Ready {
		t.Fatalf("%s %q", d.State, d.Message)
	}
	l.Debit(ledger.Entry{UID: "first", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, PodSets: job("first", 8, 1).PodSets, DebitedAt: t0})
	if d := decide("second"); d.State != Pending {
		t.Errorf("%s %q: the queue has no nominal quota left", d.State, d.Message)
	}
}

// borrowed returns the quota that a queue borrows.
func borrowed(queue string, devices float64) map[string]Number {
	return map[string]Number{queue: Known(devices)}
}

// A workload whose ClusterQueue reclaims quota finds room where other queues of the cohort
// borrow it, up to its own queue's nominal quota.
func TestReclaimCountsBorrowers(t *testing.T) {
	type victim struct {
		queue    string
		priority int32
		devices  int64
		pods     int64
	}
	lowerOnly := Reclaim{Queues: []string{"lender", "friend"}}
	anyPriority := Reclaim{Queues: []string{"lender", "friend"}, AnyPriority: true}
	quota := func(nominal, lender, friend float64) ShapeMetrics {
		return ShapeMetrics{NominalQuota: Known(nominal), Borrowed: map[string]Number{"lender": Known(lender), "friend": Known(friend), "outsider": Known(8)}}
	}
	for _, tc := range []struct {
		name    string
		reclaim Reclaim
		quota   ShapeMetrics
		victims []victim
		free    float64
		pods    int64
		want    State
	}{
		{"a borrower of the cohort", anyPriority, quota(8, 0, 8), []victim{{"friend", 5, 8, 1}}, 0, 1, Ready},
		{"small borrowers of two queues", anyPriority, quota(8, 3, 5), []victim{{"friend", 5, 1, 1}, {"friend", 5, 4, 1}, {"lender", 5, 3, 1}}, 0, 1, Ready},
		{"beside free devices", anyPriority, quota(16, 0, 8), []victim{{"friend", 5, 8, 1}}, 1, 2, Ready},
		{"nothing is borrowed", anyPriority, quota(8, 0, 0), []victim{{"friend", 5, 8, 1}}, 0, 1, Pending},
		{"another queue borrows", anyPriority, quota(8, 8, 0), []victim{{"friend", 5, 8, 1}}, 0, 1, Pending},
		{"one queue borrows more than its workloads hold, and another less", anyPriority, quota(8, 12, 4), []victim{{"lender", 5, 4, 1}, {"friend", 5, 1, 1}, {"friend", 5, 3, 1}, {"friend", 5, 4, 1}}, 0, 1, Ready},
		{"the sum would do, one queue's share does not", anyPriority, quota(8, 7, 1), []victim{{"friend", 5, 6, 1}, {"friend", 5, 1, 1}, {"friend", 5, 1, 1}}, 0, 1, Pending},
		{"the last victim frees more than is borrowed", anyPriority, quota(8, 0, 1), []victim{{"friend", 5, 8, 1}}, 0, 1, Ready},
		{"the last admitted is preempted first and ends the borrowing", anyPriority, quota(8, 0, 4), []victim{{"friend", 5, 8, 1}, {"friend", 5, 4, 1}}, 0, 1, Pending},
		{"the lowest priority is preempted first", anyPriority, quota(8, 0, 4), []victim{{"friend", 4, 8, 1}, {"friend", 5, 4, 1}}, 0, 1, Ready},
		{"the borrowers hold less than was borrowed", anyPriority, quota(8, 0, 8), []victim{{"friend", 5, 1, 7}}, 0, 1, Pending},
		{"beyond the own nominal quota", anyPriority, quota(7, 0, 8), []victim{{"friend", 5, 8, 1}}, 0, 1, Pending},
		{"beyond it with all pods", anyPriority, quota(8, 0, 8), []victim{{"friend", 5, 8, 1}}, 1, 2, Pending},
		{"another cohort", anyPriority, quota(8, 0, 8), []victim{{"outsider", 5, 8, 1}}, 0, 1, Pending},
		{"lower priorities only, lower", lowerOnly, quota(8, 0, 8), []victim{{"friend", 1, 8, 1}}, 0, 1, Ready},
		{"lower priorities only, equal", lowerOnly, quota(8, 0, 8), []victim{{"friend", 2, 8, 1}}, 0, 1, Pending},
		{"the worker exports no quota", anyPriority, ShapeMetrics{}, []victim{{"friend", 5, 8, 1}}, 0, 1, Pending},
		{"the queue never reclaims", Reclaim{}, quota(8, 0, 8), []victim{{"friend", 1, 8, 1}}, 0, 1, Pending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, 0)
			for i, v := range tc.victims {
				uid := string(rune('p' + i))
				l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", Queue: ledger.Queue{Cluster: v.queue}, Priority: v.priority,
					Since: t0.Add(time.Duration(i) * time.Second), PodSets: job(uid, v.devices, v.pods).PodSets})
			}
			r := rules()
			r.Rank.Priority, r.Reclaim = 2, tc.reclaim
			c := withQuota(cluster("cluster1", tc.free, 8*tc.free, 8*tc.free, 64), 8*tc.free)
			c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = tc.quota.NominalQuota, tc.quota.Borrowed
			d := Decide(preempting(job("a", 8, tc.pods)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
			if d.State != tc.want {
				t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// Of borrowers with one priority and admission time, the first by UID is preempted first.
func TestReclaimOrdersEqualBorrowersByUID(t *testing.T) {
	for _, tc := range []struct {
		first, second int64 // devices
		want          State
	}{{8, 4, Ready}, {4, 8, Pending}} {
		l := ledger.New(0, 0)
		for uid, devices := range map[string]int64{"p": tc.first, "q": tc.second} {
			l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", Queue: ledger.Queue{Cluster: "friend"}, PodSets: job(uid, devices, 1).PodSets})
		}
		r := rules()
		r.Reclaim = Reclaim{Queues: []string{"friend"}, AnyPriority: true}
		c := withQuota(cluster("cluster1", 0, 0, 0, 64), 0)
		c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(8), borrowed("friend", 4)
		if d := Decide(preempting(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.State != tc.want {
			t.Errorf("%d devices before %d: %s %q, want %s", tc.first, tc.second, d.State, d.Message, tc.want)
		}
	}
}

// The nominal quota has to suffice for all pod sets, although one of them would fit on free devices.
func TestReclaimNeedsNominalQuotaForAllPodSets(t *testing.T) {
	l := ledger.New(0, 0)
	l.PutRunning(ledger.Running{UID: "p", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "friend"}, PodSets: job("p", 8, 3).PodSets})
	f := preempting(job("a", 8, 1))
	f.PodSets = append(f.PodSets, f.PodSets[0])
	f.PodSets[0].Pods, f.PodSets[1].DevicesPerPod, f.PodSets[1].Pods = 2, 1, 8
	for nominal, want := range map[float64]State{24: Ready, 16: Pending} {
		r := rules()
		r.Reclaim = Reclaim{Queues: []string{"friend"}, AnyPriority: true}
		c := withQuota(cluster("cluster1", 0, 8, 8, 64), 0)
		c.Shapes = append(c.Shapes, c.Shapes[0])
		c.Shapes[1].Fit = Known(24)
		for i := range c.Shapes {
			c.Shapes[i].NominalQuota, c.Shapes[i].Borrowed = Known(nominal), borrowed("friend", 24)
		}
		if d := Decide(f, []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.State != want {
			t.Errorf("nominal quota %v: %s %q, want %s", nominal, d.State, d.Message, want)
		}
	}
}

// Lower priorities of the own queue and borrowers add up.
func TestReclaimBesidePreemptionWithinTheQueue(t *testing.T) {
	l := ledger.New(0, 0)
	l.PutRunning(ledger.Running{UID: "p", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 1, PodSets: job("p", 8, 1).PodSets})
	l.PutRunning(ledger.Running{UID: "q", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "friend"}, Priority: 5, PodSets: job("q", 8, 1).PodSets})
	r := rules()
	r.Rank.Priority, r.PreemptsLowerPriority, r.Reclaim = 2, true, Reclaim{Queues: []string{"friend"}, AnyPriority: true}
	c := withQuota(cluster("cluster1", 0, 0, 0, 64), 0)
	c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(16), borrowed("friend", 8)
	d := Decide(preempting(job("a", 8, 2)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
	if want := "cluster1 has room for 2 such pods after preemption of lower priorities or of borrowers in the cohort"; d.Message != want {
		t.Errorf("%s %q, want %q", d.State, d.Message, want)
	}
}
