package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Kueue on the worker admits nothing without quota. A queue that may preempt has as much as is
// unreserved, and what its victims return, however many nodes are free.
func TestPreemptionNeedsQuotaOrVictims(t *testing.T) {
	const forOnePod = "no cluster has room for 1 pod of 8 " + h100 + ": best is cluster1, whose queue has quota for 0, preemption included"
	const forTwoPods = "no cluster has room for 2 pods of 8 " + h100 + ": best is cluster1, whose queue has quota for 1, preemption included"
	running := func(queue string, priority int32, devices int64) ledger.Running {
		return ledger.Running{UID: "r", Cluster: "cluster1", Queue: ledger.Queue{Cluster: queue}, Priority: priority, PodSets: job("r", devices, 1).PodSets}
	}
	lends := func(c *Candidate, _ *Rules) {
		c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(8), borrowed("friend", 8)
	}
	for _, tc := range []struct {
		name    string
		facts   shape.Facts
		quota   Number
		running ledger.Running
		change  func(*Candidate, *Rules)
		want    string // "" = Ready
	}{
		{name: "nothing to preempt", facts: job("a", 8, 1), quota: Known(0), want: forOnePod},
		{name: "an equal priority", facts: job("a", 8, 1), quota: Known(0), running: running("cq", 2, 8), want: forOnePod},
		{name: "a lower priority", facts: job("a", 8, 1), quota: Known(0), running: running("cq", 1, 8)},
		{name: "a lower priority with too few devices", facts: job("a", 8, 1), quota: Known(0), running: running("cq", 1, 4), want: forOnePod},
		{name: "too few devices beside unreserved quota", facts: job("a", 8, 1), quota: Known(4), running: running("cq", 1, 4)},
		{name: "a lower priority of a queue that has reserved more than its quota", facts: job("a", 8, 1), quota: Known(-8), running: running("cq", 1, 8), want: forOnePod},
		{name: "the queue has reserved more than its quota and its victims", facts: job("a", 8, 1), quota: Known(-16), running: running("cq", 1, 8), want: forOnePod},
		{name: "one victim for two pods", facts: job("a", 8, 2), quota: Known(0), running: running("cq", 1, 8), want: forTwoPods},
		{name: "quota for one pod and one victim", facts: job("a", 8, 2), quota: Known(8), running: running("cq", 1, 8)},
		{name: "quota for one of two pods", facts: job("a", 8, 2), quota: Known(8), want: forTwoPods},
		{name: "quota for all pods", facts: job("a", 8, 2), quota: Known(16)},
		{name: "quota for all devices but one", facts: job("a", 8, 1), quota: Known(7), want: forOnePod},
		{name: "nothing to preempt for a pod with one device", facts: job("a", 1, 1), quota: Known(0),
			want: "no cluster has room for 1 pod of 1 " + h100 + ": best is cluster1, whose queue has quota for 0, preemption included"},
		{name: "a lower priority for a pod with one device", facts: job("a", 1, 1), quota: Known(0), running: running("cq", 1, 1)},
		{name: "quota for all pods, and nodes for a part", facts: job("a", 8, 9), quota: Known(72),
			want: "no cluster has room for 9 pods of 8 " + h100 + ": best is cluster1 with room for 7"},
		{name: "quota for as many pods as nodes", facts: job("a", 8, 9), quota: Known(56), want: "no cluster has room for 9 pods of 8 " + h100 + ": best is cluster1 with room for 7"},
		{name: "quota for one pod more than nodes", facts: job("a", 8, 9), quota: Known(64), want: "no cluster has room for 9 pods of 8 " + h100 + ": best is cluster1 with room for 7"},
		{name: "one borrower for two pods", facts: job("a", 8, 2), quota: Known(0), running: running("friend", 5, 8), want: forTwoPods,
			change: func(c *Candidate, _ *Rules) {
				c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(16), borrowed("friend", 8)
			}},
		{name: "unknown quota", facts: job("a", 8, 1)},
		{name: "a borrower", facts: job("a", 8, 1), quota: Known(0), running: running("friend", 5, 8), change: lends},
		{name: "a borrower of a queue without nominal quota", facts: job("a", 8, 1), quota: Known(0), running: running("friend", 5, 8), want: forOnePod},
		{name: "workloads that the gate does not count may be preempted", facts: job("a", 8, 1), quota: Known(0),
			change: func(_ *Candidate, r *Rules) { r.PreemptsUncounted = true }},
		{name: "quota for enough pods of a partial admission", facts: partial4(), quota: Known(8), running: running("cq", 1, 8)},
		{name: "quota for too few pods of a partial admission", facts: partial4(), quota: Known(8),
			want: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster1, whose queue has quota for 1, preemption included"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, 0)
			if tc.running.UID != "" {
				l.PutRunning(tc.running)
			}
			r, c := rules(), cluster("cluster1", 7, 56, 8, 64)
			r.Rank.Priority, r.PreemptsLowerPriority, r.Reclaim = 2, true, Reclaim{Queues: []string{"friend"}, AnyPriority: true}
			c.Shapes[0].Quota = tc.quota
			if tc.change != nil {
				tc.change(&c, &r)
			}
			d := Decide(preempting(tc.facts), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
			switch {
			case tc.want == "" && d.State != Ready:
				t.Errorf("%s %q, want Ready", d.State, d.Message)
			case tc.want != "" && (d.State != Pending || d.Reason != ReasonNoRoom || d.Message != tc.want || !d.NoRoomAnywhere):
				t.Errorf("%s %s %q, no room anywhere: %t, want %q", d.State, d.Reason, d.Message, d.NoRoomAnywhere, tc.want)
			case tc.want != "" && (d.Verdicts[0].Preempts || d.Verdicts[0].Reclaims):
				t.Errorf("%+v preempts without making room", d.Verdicts[0])
			}
		})
	}
}

// Of what was sent to the cluster and is not measured yet, only the workloads of the same queue and of
// the other queues of its cohort use the quota that the worker reports for the queue.
func TestReservationsUseTheQuotaOfTheirQueue(t *testing.T) {
	for queue, want := range map[string]State{"cq": Pending, "friend": Pending, "outsider": Ready} {
		for kind, of := range map[string]func(shape.Facts) shape.Facts{"remote": remote, "preempting": preempting} {
			t.Run(queue+", "+kind, func(t *testing.T) {
				l := ledger.New(0, time.Hour)
				l.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", Queue: ledger.Queue{Cluster: queue}, PodSets: job("other", 8, 1).PodSets, DebitedAt: t0})
				r := rules()
				r.CohortQueues = []string{"friend"}
				d := Decide(of(job("a", 8, 1)), []Candidate{withQuota(cluster("cluster1", 4, 32, 8, 64), 8)}, Fleet{}, l.View(), r, 1, t0)
				if d.State != want {
					t.Errorf("%s %q, want %s", d.State, d.Message, want)
				}
			})
		}
	}
}

// A queue reclaims within its own nominal quota, which workloads of other queues do not use.
func TestReclaimIgnoresReservationsOfOtherQueues(t *testing.T) {
	l := ledger.New(0, time.Hour)
	l.PutRunning(ledger.Running{UID: "p", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "friend"}, PodSets: job("p", 8, 2).PodSets})
	l.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "outsider"}, PodSets: job("other", 8, 1).PodSets, DebitedAt: t0})
	r := rules()
	r.Reclaim = Reclaim{Queues: []string{"friend"}, AnyPriority: true}
	c := withQuota(cluster("cluster1", 1, 8, 8, 64), 0)
	c.Shapes[0].NominalQuota, c.Shapes[0].Borrowed = Known(8), borrowed("friend", 16)
	if d := Decide(preempting(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.State != Ready {
		t.Errorf("%s %q, want Ready", d.State, d.Message)
	}
}
