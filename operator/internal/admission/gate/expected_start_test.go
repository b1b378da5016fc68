package gate

import (
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// A cluster is not held if the worker's queue could not admit the workload even if everything
// that the hub sent there had ended.
func TestHoldRespectsTheSizeOfTheQuota(t *testing.T) {
	for _, tc := range []struct {
		name    string
		quota   Number
		queue   string
		running int64
		want    bool
	}{
		{"the quota is too small", Known(4), "cq", 0, false},
		{"too small with what runs there", Known(4), "cq", 3, false},
		{"enough once a running workload ends", Known(4), "cq", 4, true},
		{"enough once a workload of the cohort ends", Known(4), "friend", 4, true},
		{"workloads of other queues return no quota", Known(4), "outsider", 4, false},
		{"enough", Known(8), "cq", 0, true},
		{"unknown", Number{}, "cq", 0, true},
	} {
		for kind, of := range map[string]func(shape.Facts) shape.Facts{"remote": remote, "preempting": preempting} {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				c := full("cluster1", 4)
				c.Shapes[0].Quota = tc.quota
				l := ledger.New(0, 0)
				l.PutRunning(ledger.Running{UID: "r", Cluster: "cluster1", Queue: ledger.Queue{Cluster: tc.queue}, PodSets: job("r", 1, tc.running).PodSets})
				r := holdRules(v1alpha1.HoldEnforce, 1, time.Hour)
				r.CohortQueues = []string{"friend"}
				d := Decide(of(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), r, 1, t0)
				if got := d.Hold != nil; got != tc.want {
					t.Errorf("held is %t, want %t (%s)", got, tc.want, d.Message)
				}
			})
		}
	}
}

// The samples of the worker's quota lag behind the hub by up to a scrape interval. A hold outlives the moment between
// an event and the sample that shows it.
func TestHoldOutlivesTheAgeOfQuotaSamples(t *testing.T) {
	pods := job("other", 1, 4).PodSets
	sent := ledger.Entry{UID: "other", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, PodSets: pods, DebitedAt: before(3)}
	ended := func(queue string) func(*ledger.Ledger) {
		return func(l *ledger.Ledger) {
			l.Credit(ledger.Credit{Cluster: "cluster1", Queue: ledger.Queue{Cluster: queue}, PodSets: pods, FinishedAt: before(20)})
		}
	}
	for _, tc := range []struct {
		name         string
		quotaSampled time.Time
		change       func(*ledger.Ledger)
		want         bool
	}{
		{"a workload ended after the sample", before(25), ended("cq"), true},
		{"a workload ended, and the sample is within the settling time", before(10), ended("cq"), true},
		{"the sample shows its end", before(4), ended("cq"), false},
		{"the time of the quota is unknown, and the sample of the devices shows its end", time.Time{}, ended("cq"), false},
		{"a workload of another queue ended", before(25), ended("outsider"), false},
		{"a workload is on its way", before(1), func(l *ledger.Ledger) { l.Debit(sent) }, true},
		{"its own reservation", before(1), func(l *ledger.Ledger) { own := sent; own.UID = "a"; l.Debit(own) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := sampledBefore(full("cluster1", 4), 4)
			c.Shapes[0].Quota, c.QuotaSampledAt = Known(4), tc.quotaSampled
			l := ledger.New(15*time.Second, 10*time.Minute)
			tc.change(l)
			d := Decide(remote(job("a", 8, 1)), []Candidate{c}, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
			if got := d.Hold != nil; got != tc.want {
				t.Errorf("held is %t, want %t (%s)", got, tc.want, d.Message)
			}
		})
	}
}

// The held workload starts at the latest when enough whole nodes are returned, or when all that
// runs on the cluster has ended.
func TestHoldKnowsTheLatestStart(t *testing.T) {
	running := func(uid string, devices int64, endsIn time.Duration) ledger.Running {
		r := ledger.Running{UID: uid, Cluster: "cluster1", PodSets: job(uid, devices, 1).PodSets}
		if endsIn > 0 {
			r.EndsBy = t0.Add(endsIn)
		}
		return r
	}
	onL4 := func(r ledger.Running) ledger.Running {
		r.PodSets[0].Model = "NVIDIA-L4"
		return r
	}
	mixed := running("mixed", 1, time.Minute)
	mixed.PodSets = append(mixed.PodSets, onL4(running("mixed", 8, 0)).PodSets...)
	for _, tc := range []struct {
		name    string
		running []ledger.Running
		want    time.Duration // 0 = unknown
	}{
		{"a whole node", []ledger.Running{running("small", 1, time.Minute), running("whole", 8, 10*time.Minute), running("later", 8, time.Hour)}, 10 * time.Minute},
		{"only small pods", []ledger.Running{running("a", 4, time.Minute), running("b", 4, 20*time.Minute)}, 20 * time.Minute},
		{"an unknown duration", []ledger.Running{running("a", 4, time.Minute), running("b", 4, 0)}, 0},
		{"a whole node before an unknown duration", []ledger.Running{running("a", 4, 0), running("b", 8, time.Minute)}, time.Minute},
		{"an unknown duration on other devices", []ledger.Running{running("a", 4, time.Minute), running("b", 4, 20*time.Minute), onL4(running("c", 8, 0))}, 20 * time.Minute},
		{"whole nodes of other devices", []ledger.Running{mixed, running("whole", 8, 10*time.Minute), running("later", 8, time.Hour)}, 10 * time.Minute},
		{"nothing known", nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, time.Hour)
			for _, r := range tc.running {
				l.PutRunning(r)
			}
			d := Decide(job("a", 8, 1), []Candidate{full("cluster1", 4)}, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
			if d.Hold == nil {
				t.Fatal("no hold")
			}
			got := time.Duration(0)
			if !d.Hold.StartsBy.IsZero() {
				got = d.Hold.StartsBy.Sub(t0)
			}
			if got != tc.want {
				t.Errorf("starts by %s, want %s", got, tc.want)
			}
		})
	}
}

// Pods that share devices start when enough of a device is returned, not when as many pods end.
func TestHoldKnowsTheLatestStartOfShares(t *testing.T) {
	sharing := func(uid string, percent int64) []shape.PodSet {
		sets := job(uid, 1, 1).PodSets
		sets[0].Share = &shape.Share{MemoryPercent: percent}
		return sets
	}
	l := ledger.New(0, time.Hour)
	for uid, percent := range map[string]int64{"small": 10, "large": 60, "later": 90} {
		endsIn := map[string]time.Duration{"small": time.Minute, "large": 10 * time.Minute, "later": time.Hour}[uid]
		l.PutRunning(ledger.Running{UID: uid, Cluster: "cluster1", PodSets: sharing(uid, percent), EndsBy: t0.Add(endsIn)})
	}
	f := job("a", 1, 1)
	f.PodSets = sharing("a", 50)
	d := Decide(f, []Candidate{withEmptyFit(cluster("cluster1", 0, 0, 0, 4), 4)}, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
	if d.Hold == nil || !d.Hold.StartsBy.Equal(t0.Add(10*time.Minute)) {
		t.Errorf("hold %+v, want a start in 10 min (%s)", d.Hold, d.Message)
	}
}

// A workload of several pod sets starts when all of them have room. Pods that have room now wait for
// no running workload.
func TestHoldKnowsTheLatestStartOfAllPodSets(t *testing.T) {
	const unknown = -1
	type devices struct {
		free   float64
		endsIn time.Duration // of what runs on them; 0 = nothing runs
	}
	for _, tc := range []struct {
		name      string
		h100s, l4 devices
		want      time.Duration // 0 = unknown
	}{
		{"the first starts last", devices{0, time.Hour}, devices{0, time.Minute}, time.Hour},
		{"the second starts last", devices{0, time.Minute}, devices{0, time.Hour}, time.Hour},
		{"the first starts at an unknown time", devices{0, unknown}, devices{0, time.Minute}, 0},
		{"the second starts at an unknown time", devices{0, time.Minute}, devices{0, unknown}, 0},
		{"the first has room, and nothing runs there", devices{1, 0}, devices{0, time.Minute}, time.Minute},
		{"the second has room, and nothing runs there", devices{0, time.Minute}, devices{1, 0}, time.Minute},
		{"the second has room beside a workload without end", devices{0, time.Minute}, devices{1, unknown}, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := job("a", 8, 1)
			f.PodSets = append(f.PodSets, f.PodSets[0])
			f.PodSets[1].Name, f.PodSets[1].Model = "second", "NVIDIA-L4"
			l, c := ledger.New(0, time.Hour), Candidate{Name: "cluster1", SampledAt: before(5)}
			for i, d := range []devices{tc.h100s, tc.l4} {
				c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(d.free), EmptyFit: Known(4)})
				if d.endsIn != 0 {
					r := ledger.Running{UID: f.PodSets[i].Name, Cluster: "cluster1", PodSets: f.PodSets[i : i+1]}
					if d.endsIn != unknown {
						r.EndsBy = t0.Add(d.endsIn)
					}
					l.PutRunning(r)
				}
			}
			d := Decide(f, []Candidate{c}, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
			want := time.Time{}
			if tc.want > 0 {
				want = t0.Add(tc.want)
			}
			if d.Hold == nil {
				t.Fatalf("no hold (%s)", d.Message)
			}
			if !d.Hold.StartsBy.Equal(want) {
				t.Errorf("starts by %s, want %s", d.Hold.StartsBy, want)
			}
		})
	}
}

// Of clusters with unknown starts, the gate holds the one where least devices stand idle and, of equal
// ones, where the least part of a pod set lacks room.
func TestHoldForSeveralPodSetsCostsLeast(t *testing.T) {
	type room struct{ empty, free float64 }
	for _, tc := range []struct {
		name    string
		workers [2][2]room // for one pod of 8 and four pods of 1
	}{
		{"devices, not pods, stand idle", [2][2]room{{{4, 0}, {16, 4}}, {{2, 0}, {20, 4}}}},
		{"a part of the pods, not a number, lacks room", [2][2]room{{{4, 0}, {32, 4}}, {{4, 1}, {32, 2}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := job("a", 8, 1)
			f.PodSets = append(f.PodSets, shape.PodSet{Name: "small", Resource: "nvidia.com/gpu", Model: "NVIDIA-L4", DevicesPerPod: 1, Pods: 4})
			var candidates []Candidate
			for i, w := range tc.workers {
				c := Candidate{Name: []string{"cluster1", "cluster2"}[i], SampledAt: before(5)}
				for _, r := range w {
					c.Shapes = append(c.Shapes, ShapeMetrics{Fit: Known(r.free), EmptyFit: Known(r.empty)})
				}
				candidates = append(candidates, c)
			}
			d := Decide(f, candidates, Fleet{}, ledger.View{}, holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
			if d.Hold == nil || d.Hold.Cluster != "cluster2" {
				t.Errorf("hold %+v, want cluster2 (%s)", d.Hold, d.Message)
			}
		})
	}
}

// A cluster is held for a workload of several pod sets only if all of them fit there together when it is
// empty, and into the quota of the worker's queue.
func TestHoldNeedsAnEmptyClusterForAllPodSets(t *testing.T) {
	for _, tc := range []struct {
		name      string
		small     int64
		quota     Number
		uncounted bool
		want      bool
	}{
		{"two nodes for one large and eight small pods", 8, Number{}, false, true},
		{"one small pod too many", 9, Number{}, false, false},
		{"quota for all pods", 8, Known(16), false, true},
		{"quota for all pods but one", 8, Known(15), false, false},
		{"workloads that the gate does not count may be preempted for quota", 8, Known(15), true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := preempting(job("a", 8, 1))
			f.PodSets = append(f.PodSets, f.PodSets[0])
			f.PodSets[1].Name, f.PodSets[1].DevicesPerPod, f.PodSets[1].Pods = "small", 1, tc.small
			c := Candidate{Name: "cluster1", SampledAt: before(5), Shapes: []ShapeMetrics{
				{Fit: Known(0), EmptyFit: Known(2), Quota: tc.quota}, {Fit: Known(0), EmptyFit: Known(16), Quota: tc.quota}}}
			r := holdRules(v1alpha1.HoldEnforce, 1, time.Hour)
			r.PreemptsUncounted = tc.uncounted
			d := Decide(f, []Candidate{c}, Fleet{}, ledger.View{}, r, 1, t0)
			if got := d.Hold != nil; got != tc.want {
				t.Errorf("held is %t, want %t (%s)", got, tc.want, d.Message)
			}
		})
	}
}

// Of several clusters, the gate holds the one where the workload starts first or, if that is unknown,
// where least devices stand idle for it, in whatever order the Placement decides them.
func TestHoldTakesTheEarliestStart(t *testing.T) {
	type worker struct {
		nodes, free float64
		endsIn      time.Duration // of what runs there; 0 = unknown
	}
	for _, tc := range []struct {
		name    string
		workers [2]worker
		want    string
	}{
		{"known before unknown", [2]worker{{4, 0, 0}, {8, 0, time.Hour}}, "cluster2"},
		{"the earlier one", [2]worker{{4, 0, time.Hour}, {8, 0, time.Minute}}, "cluster2"},
		{"equal starts: the smaller cluster", [2]worker{{8, 0, time.Hour}, {4, 0, time.Hour}}, "cluster2"},
		{"unknown starts: the smaller cluster", [2]worker{{8, 1, 0}, {4, 0, 0}}, "cluster2"},
		{"clusters of one size: where fewer pods lack room", [2]worker{{4, 0, 0}, {4, 1, 0}}, "cluster2"},
		{"no difference: the first by name", [2]worker{{4, 0, 0}, {4, 0, 0}}, "cluster1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ledger.New(0, time.Hour)
			var candidates []Candidate
			for i, w := range tc.workers {
				c := withEmptyFit(cluster([]string{"cluster1", "cluster2"}[i], w.free, 8*w.free, 8*w.free, 8*w.nodes), w.nodes)
				r := ledger.Running{UID: c.Name, Cluster: c.Name, PodSets: job(c.Name, 8, 2).PodSets}
				if w.endsIn > 0 {
					r.EndsBy = t0.Add(w.endsIn)
				}
				l.PutRunning(r)
				candidates = append(candidates, c)
			}
			for range 2 {
				slices.Reverse(candidates)
				d := Decide(job("a", 8, 2), candidates, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
				if d.Hold == nil || d.Hold.Cluster != tc.want {
					t.Errorf("%s decided first: hold %+v, want %s (%s)", candidates[0].Name, d.Hold, tc.want, d.Message)
				}
			}
		})
	}
}
