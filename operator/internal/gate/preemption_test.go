package gate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
)

func dispatchRecord() dispatch.Record { return dispatch.Record{} }

// A workload that may preempt finds room where lower priorities of its ClusterQueue run, once.
func TestPreemptionCountsLowerPriorities(t *testing.T) {
	victims := func(queue string, priority int32, devices, n int64) *ledger.Ledger {
		l := ledger.New(0, 0)
		for i := range n {
			uid := string(rune('p' + i))
			l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", ClusterQueue: queue, Priority: priority, PodSets: job(uid, devices, 1).PodSets})
		}
		return l
	}
	claimed := victims("cq", 1, 8, 1)
	claimed.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", PodSets: job("other", 8, 1).PodSets, DebitedAt: t0})
	for _, tc := range []struct {
		name     string
		ledger   *ledger.Ledger
		priority int32
		preempts bool
		free     float64
		want     State
		message  string
	}{
		{"a lower priority", victims("cq", 1, 8, 1), 2, true, 0, Ready, "cluster1 has room for 1 such pod after preemption of lower priorities"},
		{"several small ones", victims("cq", 1, 1, 8), 2, true, 0, Ready, "cluster1 has room for 1 such pod after preemption of lower priorities"},
		{"too few", victims("cq", 1, 1, 7), 2, true, 0, Pending, ""},
		{"the same priority", victims("cq", 2, 8, 1), 2, true, 0, Pending, ""},
		{"another ClusterQueue", victims("other", 1, 8, 1), 2, true, 0, Pending, ""},
		{"a queue that does not preempt", victims("cq", 1, 8, 1), 2, false, 0, Pending, ""},
		{"already claimed by another workload", claimed, 2, true, 0, Pending, ""},
		{"free devices beside them", victims("cq", 1, 8, 1), 2, true, 1, Ready, "cluster1 has room for 2 such pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rules()
			r.Rank.Priority, r.PreemptsLowerPriority = tc.priority, tc.preempts
			d := Decide(preempting(job("a", 8, 1)), []Candidate{cluster("cluster1", tc.free, 8*tc.free, 8*tc.free, 64)}, Fleet{}, tc.ledger.View(), r, 1, t0)
			if d.State != tc.want || tc.message != "" && d.Message != tc.message {
				t.Errorf("%s %q, want %s %q", d.State, d.Message, tc.want, tc.message)
			}
		})
	}
}

// Clusters with free devices come before those where others would be preempted.
func TestFreeDevicesComeBeforePreemption(t *testing.T) {
	l := ledger.New(0, 0)
	l.PutRunning(ledger.Running{UID: "victim", Cluster: "cluster1", ClusterQueue: "cq", Priority: 1, PodSets: job("victim", 8, 4).PodSets})
	r := rules()
	r.Rank.Priority, r.PreemptsLowerPriority = 2, true
	for attempt := range 20 {
		d := Decide(preempting(job("a", 8, 1)), []Candidate{cluster("cluster1", 0, 60, 4, 640), cluster("cluster2", 1, 8, 8, 16)}, Fleet{}, l.View(), r, attempt, t0)
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
