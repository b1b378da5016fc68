package gate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestDecideQuota(t *testing.T) {
	const quotaUnknown = "cluster1 has room for 4 such pods; the quota of its queue is unknown (QuotaUnknown)"
	const quotaFailing = "no cluster is eligible; cluster1 has no result for the quota of its queue; quota: too heavy"
	failing := func(seconds int) Fleet { return Fleet{Problem: "quota: too heavy", FailingSince: before(seconds)} }
	room := func() Candidate { return cluster("cluster1", 4, 32, 8, 64) }
	uncounted := rules()
	uncounted.PreemptsUncounted = true
	anyModel := func() shape.Facts {
		f := job("a", 8, 1)
		f.PodSets[0].Model = ""
		return f
	}
	runDecideCases(t, []decideCase{
		{name: "unknown", facts: remote(job("a", 8, 1)), candidates: []Candidate{room()},
			state: Ready, reason: ReasonPlaceable, message: quotaUnknown, order: []string{"cluster1"}},
		{name: "query fails", facts: remote(job("a", 8, 1)), candidates: []Candidate{withFailingQuota(room())}, fleet: failing(0),
			state: Pending, reason: ReasonNoMetrics, message: quotaFailing},
		{name: "query fails, and no room", facts: remote(job("a", 8, 1)), candidates: []Candidate{withFailingQuota(cluster("cluster1", 0, 20, 4, 64))},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster1 with 4"},
		{name: "query fails for less than unknownAfter, open", facts: remote(job("a", 8, 1)), candidates: []Candidate{withFailingQuota(room())},
			rules: openRules(), fleet: failing(300), state: Pending, reason: ReasonNoMetrics, message: quotaFailing},
		{name: "query fails for longer than unknownAfter, open", facts: remote(job("a", 8, 1)), candidates: []Candidate{withFailingQuota(room())},
			rules: openRules(), fleet: failing(301), state: Ready, reason: ReasonPlaceable, message: quotaUnknown, order: []string{"cluster1"}},
		{name: "query fails for a queue that preempts", facts: preempting(job("a", 8, 1)), candidates: []Candidate{withFailingQuota(room())}, fleet: failing(0),
			state: Pending, reason: ReasonNoMetrics, message: quotaFailing},
		{name: "unknown, and workloads that the gate does not count may be preempted", facts: preempting(job("a", 8, 1)), candidates: []Candidate{room()}, rules: uncounted,
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "query fails, and workloads that the gate does not count may be preempted", facts: preempting(job("a", 8, 1)),
			candidates: []Candidate{withFailingQuota(room())}, fleet: failing(0), rules: uncounted,
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "quota exceeded", facts: remote(job("a", 8, 1)), candidates: []Candidate{withQuota(room(), -8)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 1 pod of 8 " + h100 + ": best is cluster1, whose queue has quota for 0"},
		{name: "less quota than room", facts: remote(job("a", 8, 2)), candidates: []Candidate{withQuota(room(), 15), cluster("cluster2", 0, 0, 0, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 2 pods of 8 " + h100 + ": best is cluster1, whose queue has quota for 1"},
		{name: "no quota for a queue that preempts, and no workload to preempt", facts: preempting(job("a", 8, 2)), candidates: []Candidate{withQuota(room(), 0)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 2 pods of 8 " + h100 + ": best is cluster1, whose queue has quota for 0, preemption included"},
		{name: "less room than quota", facts: remote(job("a", 8, 1)), candidates: []Candidate{withQuota(room(), 400)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 4 such pods", order: []string{"cluster1"}},
		{name: "as much quota as room", facts: remote(job("a", 8, 5)), candidates: []Candidate{withQuota(room(), 32)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 5 pods of 8 " + h100 + ": best is cluster1 with room for 4"},
		{name: "any device model", facts: anyModel(), candidates: []Candidate{cluster("cluster1", 0, 12, 6, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free nvidia.com/gpu on one node: best is cluster1 with 6"},
		{name: "quota for a part of the pods", facts: remote(partial4()), candidates: []Candidate{withQuota(room(), 23)},
			state: Ready, reason: ReasonPlaceable, message: "cluster1 has room for 2 such pods; its queue has quota for 2 of 4 pods", order: []string{"cluster1"}},
		{name: "quota for a part of the pods, less room", facts: remote(partial4()), candidates: []Candidate{withQuota(cluster("cluster1", 1, 8, 8, 64), 23)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster1 with room for 1"},
		{name: "quota for too few pods", facts: remote(partial4()), candidates: []Candidate{withQuota(room(), 8)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster1, whose queue has quota for 1"},
		{name: "quota for all pods, room for a part", facts: remote(partial4()), candidates: []Candidate{withQuota(cluster("cluster1", 2, 16, 8, 64), 400)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster1 with room for 2"},
		{name: "unknown quota, room for a part", facts: remote(partial4()), candidates: []Candidate{cluster("cluster1", 2, 16, 8, 64)},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has room for 4 pods of 8 " + h100 + ": best is cluster1 with room for 2"},
		{name: "quota limits headroom in the ranking", facts: remote(job("a", 8, 1)),
			candidates: []Candidate{withQuota(room(), 8), withQuota(cluster("cluster2", 2, 16, 8, 64), 64)},
			state:      Ready, reason: ReasonPlaceable, message: "cluster2 has room for 2 such pods", order: []string{"cluster2", "cluster1"}},
		{name: "the message names a worker without the queue", facts: remote(job("a", 8, 1)),
			candidates: []Candidate{withoutQueue(room()), cluster("cluster2", 0, 12, 6, 64)}, state: Pending, reason: ReasonNoRoom,
			message: "no cluster has 8 free " + h100 + " on one node: best is cluster2 with 6; cluster1 has no quota for nvidia.com/gpu in ClusterQueue cq, the name on the hub, and does not report where its LocalQueue team-a/gpu points"},
	})
}

// partial4 is a workload of four pods with eight devices, of which Kueue may admit two or three.
func partial4() shape.Facts {
	f := job("a", 8, 4)
	f.PodSets[0].MinPods = 2
	return f
}

func TestPodSetsReduceEachOthersRoom(t *testing.T) {
	f := job("a", 8, 2)
	f.PodSets = append(f.PodSets, shape.PodSet{Name: "small", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: 4, Pods: 2})
	const missing = "no cluster has room for 2 pods of 4 " + h100 + ": best is cluster1 with room for "
	for _, tc := range []struct {
		name      string
		smallPods float64
		state     State
		message   string
	}{
		{"three nodes of eight hold 2×8 and 2×4", 6, Ready, "cluster1 has room for 3 such pods"},
		{"one small pod fits beside the large ones", 5, Pending, missing + "1"},
		{"no small pod fits beside the large ones", 4, Pending, missing + "0"},
		{"less room than the large ones take", 3, Pending, missing + "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster("cluster1", 3, 24, 8, 64)
			c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(tc.smallPods)})
			if d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0); d.State != tc.state || d.Message != tc.message {
				t.Errorf("got %s %q\nwant %s %q", d.State, d.Message, tc.state, tc.message)
			} else if d.Verdicts[0].Fit.Value < 0 {
				t.Errorf("%v pods fit", d.Verdicts[0].Fit.Value)
			}
		})
	}
	t.Run("neither has room: the message is about the large ones", func(t *testing.T) {
		c := cluster("cluster1", 1, 24, 8, 64)
		c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(0)})
		d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0)
		if want := "no cluster has room for 2 pods of 8 " + h100 + ": best is cluster1 with room for 1"; d.Message != want {
			t.Errorf("got %q, want %q", d.Message, want)
		}
	})
}

// The quota of the worker's queue has to suffice for all pod sets together.
func TestPodSetsReduceEachOthersQuota(t *testing.T) {
	f := remote(job("a", 8, 1))
	f.PodSets = append(f.PodSets, f.PodSets[0])
	f.PodSets[1].Name, f.PodSets[1].DevicesPerPod = "small", 4
	for quota, want := range map[float64]string{
		12: "cluster1 has room for 1 such pod",
		11: "no cluster has room for 1 pod of 4 " + h100 + ": best is cluster1, whose queue has quota for 0",
	} {
		c := withQuota(cluster("cluster1", 3, 24, 8, 64), quota)
		c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(6), Quota: Known(quota)})
		if d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0); d.Message != want {
			t.Errorf("quota for %.0f devices: got %s %q\nwant %q", quota, d.State, d.Message, want)
		}
	}
}

// Kueue may admit a part of the pods of one pod set, whichever it is.
func TestPartialAdmissionOfTheSecondPodSet(t *testing.T) {
	f := remote(job("a", 8, 1))
	f.PodSets = append(f.PodSets, shape.PodSet{Name: "small", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: 4, Pods: 4, MinPods: 1})
	c := withQuota(cluster("cluster1", 3, 24, 8, 64), 12)
	c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(6), Quota: Known(12)})
	d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0)
	if want := "cluster1 has room for 1 such pod; its queue has quota for 1 of 4 pods"; d.Message != want {
		t.Errorf("got %s %q\nwant %q", d.State, d.Message, want)
	}
}

// Kueue admits as many pods as its quota permits by then: samples may show promised quota already, and returned quota not yet.
// Both have to have room.
func TestPartialAdmissionHasRoomForWhatQuotaMayPermit(t *testing.T) {
	facts := remote(partial4())
	other := []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: 8, Pods: 1}}
	queue := ledger.QueueOf(&facts)
	for _, tc := range []struct {
		name   string
		quota  float64
		change func(*ledger.Ledger)
		want   State
	}{
		{"quota for three pods", 24, func(*ledger.Ledger) {}, Ready},
		{"one of them is promised, or was", 24, func(l *ledger.Ledger) {
			l.Debit(ledger.Entry{UID: "b", Cluster: "cluster1", Queue: queue, PodSets: other, DebitedAt: t0})
		}, Pending},
		{"quota for two pods", 16, func(*ledger.Ledger) {}, Ready},
		{"that of another one was returned", 16, func(l *ledger.Ledger) {
			l.Credit(ledger.Credit{Cluster: "cluster1", Queue: queue, PodSets: other, FinishedAt: t0})
		}, Pending},
		{"that of another queue was returned", 16, func(l *ledger.Ledger) {
			l.Credit(ledger.Credit{Cluster: "cluster1", Queue: ledger.Queue{Cluster: "other"}, PodSets: other, FinishedAt: t0})
		}, Ready},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(15*time.Second, 10*time.Minute)
			tc.change(l)
			c := withQuota(cluster("cluster1", 4, 32, 8, 64), tc.quota)
			if d := Decide(facts, []Candidate{c}, Fleet{}, l.View(), rules(), 1, t0); d.State != tc.want {
				t.Errorf("%s %q, want %s", d.State, d.Message, tc.want)
			}
		})
	}
}

// An explanation shows the free devices that rank a cluster: headroom, limited by quota that the
// workload can't preempt for, without those of queued and promised workloads.
func TestFreeDevicesInTheRanking(t *testing.T) {
	headroom := ShapeMetrics{Fit: Known(4), Headroom: Known(40)}
	with := func(change func(*ShapeMetrics)) ShapeMetrics {
		m := headroom
		change(&m)
		return m
	}
	for _, tc := range []struct {
		name    string
		facts   shape.Facts
		metrics ShapeMetrics
		want    float64
	}{
		{"headroom", remote(job("a", 8, 1)), headroom, 40},
		{"unknown headroom: devices of pods that fit", remote(job("a", 8, 1)), ShapeMetrics{Fit: Known(4)}, 32},
		{"less quota", remote(job("a", 8, 1)), with(func(m *ShapeMetrics) { m.Quota = Known(24) }), 24},
		{"more quota", remote(job("a", 8, 1)), with(func(m *ShapeMetrics) { m.Quota = Known(64) }), 40},
		{"exceeded quota", remote(job("a", 8, 1)), with(func(m *ShapeMetrics) { m.Quota = Known(-8) }), 0},
		{"less quota for a queue that preempts", preempting(job("a", 8, 1)), with(func(m *ShapeMetrics) { m.Quota = Known(24) }), 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Candidate{Name: "cluster1", SampledAt: before(5), Shapes: []ShapeMetrics{tc.metrics}}
			if _, clusters := Explain(tc.facts, []Candidate{c}, Fleet{}, ledger.View{}, rules(), 1, t0); clusters[0].Net != tc.want {
				t.Errorf("got %v, want %v", clusters[0].Net, tc.want)
			}
		})
	}
}

// burst decides and reserves for n equal jobs, one after the other, and counts the jobs by
// cluster or by message.
func burst(l *ledger.Ledger, n int, candidates []Candidate) map[string]int {
	count := map[string]int{}
	for i := range n {
		f, view := job(fmt.Sprintf("uid-%d", i), 8, 1), l.View()
		d := Decide(f, candidates, Fleet{}, view, rules(), 1, t0)
		if d.State != Ready {
			count[d.Message]++
			continue
		}
		count[d.Order[0]]++
		l.Commit(view, f.UID, nil, []ledger.Entry{{UID: f.UID, Workload: f.Key(), Cluster: d.Order[0], PodSets: f.PodSets, DebitedAt: t0}}, nil)
	}
	return count
}

func TestBurstFillsAllClusters(t *testing.T) {
	const waits = "no cluster has room for 1 pod of 8 " + h100 + ": best is cluster1 with room for 0 (40 devices there promised to other workloads)"
	for _, tc := range []struct {
		name string
		jobs int
		want map[string]int
	}{
		{"as many jobs as slots", 10, map[string]int{"cluster1": 5, "cluster2": 5}},
		{"one job too many", 11, map[string]int{"cluster1": 5, "cluster2": 5, waits: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			candidates := []Candidate{cluster("cluster1", 5, 40, 8, 40), cluster("cluster2", 5, 40, 8, 40)}
			if diff := cmp.Diff(tc.want, burst(ledger.New(5*time.Second, time.Hour), tc.jobs, candidates)); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
		})
	}
}

// A decision subtracts an entry exactly if its own samples do not show the entry's pods,
// however new the samples of other decisions are.
func TestDecideSubtractsEntriesThatSamplesDoNotShow(t *testing.T) {
	l := ledger.New(5*time.Second, 10*time.Minute)
	l.Debit(ledger.Entry{UID: "other", Cluster: "cluster1", PodSets: job("other", 8, 1).PodSets, DebitedAt: t0})
	l.MarkAdmitted("other", "cluster1", t0.Add(10*time.Second), false)
	for _, tc := range []struct {
		name    string
		sampled time.Duration
		fit     float64
		state   State
		entries int
	}{
		{"sample within the settling time, one slot", 14 * time.Second, 1, Pending, 1},
		{"sample after the settling time, one slot", 16 * time.Second, 1, Ready, 0},
		{"sample within the settling time, two slots", 14 * time.Second, 2, Ready, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster("cluster1", tc.fit, 8*tc.fit, 8, 64)
			c.SampledAt = t0.Add(tc.sampled)
			d := Decide(job("own", 8, 1), []Candidate{c}, Fleet{}, l.View(), rules(), 1, t0.Add(30*time.Second))
			if d.State != tc.state {
				t.Errorf("state: got %s, want %s", d.State, tc.state)
			}
			if got := len(l.View().Entries("cluster1", c.SampledAt)); got != tc.entries {
				t.Errorf("entries: got %d, want %d", got, tc.entries)
			}
		})
	}
}

func TestCreditsCountInRankingOnly(t *testing.T) {
	l := ledger.New(5*time.Second, 10*time.Minute)
	l.Credit(ledger.Credit{Cluster: "cluster1", PodSets: job("finished", 8, 1).PodSets, FinishedAt: t0})
	full := cluster("cluster1", 0, 0, 0, 64)
	if d := Decide(job("a", 8, 1), []Candidate{full}, Fleet{}, l.View(), rules(), 1, t0); d.State != Pending {
		t.Errorf("a credit must not make room: %s", d.Message)
	}
	d := Decide(job("a", 1, 1), []Candidate{cluster("cluster1", 4, 4, 4, 64), cluster("cluster2", 4, 8, 4, 64)}, Fleet{}, l.View(), rules(), 1, t0)
	if d.Order[0] != "cluster1" {
		t.Errorf("4 free devices and 8 credited ones must rank before 8 free ones, got %v", d.Order)
	}
}
