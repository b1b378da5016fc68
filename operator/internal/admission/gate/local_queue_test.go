package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// withLocalQueues adds the worker's LocalQueues gpu by namespace, with their ClusterQueues.
func withLocalQueues(c Candidate, queues map[string]string) Candidate {
	c.LocalQueues = map[string]string{}
	for namespace, queue := range queues {
		c.LocalQueues[namespace+"/gpu"] = queue
	}
	return c
}

// A worker without quota for the workload is never rejected without a word about the queue that was looked for.
func TestNoQuotaNamesTheQueue(t *testing.T) {
	const noQuota = "cluster1 has no quota for nvidia.com/gpu in ClusterQueue "
	full := withoutQueue(cluster("cluster1", 4, 32, 8, 64))
	pending := func(name string, c Candidate, message string) decideCase {
		reason, prefix := ReasonRuledOut, "no cluster is eligible; "
		if c.LocalQueues != nil {
			reason, prefix = ReasonNever, "can never start here: no cluster has quota for nvidia.com/gpu; "
		}
		return decideCase{name: name, facts: remote(job("a", 8, 1)), candidates: []Candidate{c}, state: Pending, reason: reason, message: prefix + noQuota + message}
	}
	runDecideCases(t, []decideCase{
		pending("the queue has another name", withLocalQueues(full, map[string]string{"team-a": "own"}), "own, to which its LocalQueue team-a/gpu points"),
		pending("not reported", full, "cq, the name on the hub, and does not report where its LocalQueue team-a/gpu points"),
		pending("no such LocalQueue", withLocalQueues(full, map[string]string{"team-b": "own"}), "cq, and no LocalQueue team-a/gpu"),
	})
}

// Workloads of several queues of the hub, without a common cohort, may draw on one queue of a worker, and those of one
// queue on several.
func TestDebitsFollowLocalQueues(t *testing.T) {
	own, other := ledger.Queue{Cluster: "cq", Local: "team-b/gpu"}, ledger.Queue{Cluster: "other", Local: "team-b/gpu"}
	one, two := map[string]string{"team-a": "own", "team-b": "own"}, map[string]string{"team-a": "own", "team-b": "theirs"}
	for _, tc := range []struct {
		name   string
		sent   ledger.Queue
		queues map[string]string
		cohort []string
		want   float64
	}{
		{"two queues of the hub, one of the worker", other, one, nil, 1},
		{"two queues of the hub, two of the worker", other, two, nil, 2},
		{"two queues of a cohort of the hub, two of the worker", other, two, []string{"other"}, 1},
		{"one queue of the hub, two of the worker", own, two, nil, 2},
		{"one queue of the hub, not reported", own, nil, nil, 1},
		{"two queues of the hub, not reported", other, nil, nil, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(time.Second, time.Hour)
			l.Debit(ledger.Entry{UID: "first", Cluster: "cluster1", Queue: tc.sent, PodSets: job("first", 8, 1).PodSets, DebitedAt: t0})
			c, r := withQuota(cluster("cluster1", 8, 64, 8, 64), 16), rules()
			if tc.queues != nil {
				c = withLocalQueues(c, tc.queues)
			}
			r.CohortQueues = tc.cohort
			if d := Decide(remote(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.Verdicts[0].Room != Known(tc.want) {
				t.Errorf("room %v, want %v", d.Verdicts[0].Room, tc.want)
			}
		})
	}
}

// What a workload may preempt on a worker is what draws on its queue there.
func TestPreemptionFollowsLocalQueues(t *testing.T) {
	for queue, want := range map[string]float64{"own": 1, "theirs": 0} {
		l := ledger.New(time.Second, time.Hour)
		l.PutRunning(ledger.Running{UID: "r", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "other", Local: "team-b/gpu"}, Priority: -1, PodSets: job("r", 8, 1).PodSets})
		r := rules()
		r.PreemptsLowerPriority = true
		c := withLocalQueues(withQuota(cluster("cluster1", 0, 0, 0, 64), 0), map[string]string{"team-a": "own", "team-b": queue})
		if d := Decide(preempting(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0); d.Verdicts[0].Room != Known(want) {
			t.Errorf("room %v beside a workload of queue %s, want %v", d.Verdicts[0].Room, queue, want)
		}
	}
}

// A hold for quota binds the workloads that draw on this quota, whatever their queue on the hub.
func TestHoldForQuotaFollowsLocalQueues(t *testing.T) {
	for queue, isBound := range map[string]bool{"own": true, "theirs": false} {
		f := remote(job("b", 1, 1))
		f.Namespace, f.ClusterQueue = "team-b", "other"
		h := ledger.Hold{UID: "a", Cluster: "cluster1", PodSets: job("a", 8, 1).PodSets, Rank: ledger.Rank{Priority: 1}, Queues: []string{"own"}}
		c := withLocalQueues(cluster("cluster1", 8, 64, 8, 64), map[string]string{"team-a": "own", "team-b": queue})
		e := newEvaluation(f, nil, Fleet{}, rules(), t0)
		if e.isBoundBy(&h, &c) != isBound {
			t.Errorf("a workload of queue %s is bound: %t", queue, !isBound)
		}
	}
}
