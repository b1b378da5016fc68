package rebalance

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// ofBig returns a change of the inputs of the waiting workload, and ofSmall one of the running.
func ofBig(change func(*gate.Inputs)) func(*world) {
	return func(w *world) {
		w.change = func(uid string, in *gate.Inputs) {
			if uid == "big" {
				change(in)
			}
		}
	}
}

func ofSmall(change func(*gate.Inputs)) func(*world) {
	return func(w *world) {
		w.change = func(uid string, in *gate.Inputs) {
			if uid != "big" {
				change(in)
			}
		}
	}
}

func candidate(change func(*reclaim.Candidate)) func(*world) {
	return func(w *world) { w.jobs[0].change = change }
}

// record is a move of a workload for big, some time ago.
func record(uid, forUID string, mode v1alpha1.Mode, ago time.Duration) v1alpha1.ReclaimRecord {
	at := metav1.NewTime(noon.Add(-ago))
	return v1alpha1.ReclaimRecord{Time: at, Mode: mode, Namespace: "team-a", Name: uid, UID: uid, Cluster: "c1", Move: &v1alpha1.MoveRecord{
		For: "team-a/" + forUID, ForUID: forUID, To: "c2", PodsEndBy: metav1.NewTime(at.Add(15 * time.Second))}}
}

func TestDecide(t *testing.T) {
	none, selected, limited := v1alpha1.MoveNone, v1alpha1.MoveSelected, v1alpha1.MoveLimited
	for _, tc := range []struct {
		name   string
		change func(*world)
		state  v1alpha1.MoveState
		// moved is the workload of the decision, and reason a part of its text.
		moved, reason string
	}{
		{"small makes room and fits elsewhere", func(*world) {}, selected, "small", ""},
		{"no room elsewhere", func(w *world) { w.nodes[1].size = 1 }, none, "", "team-a/small would make room, but fits on no other cluster"},
		{"two workloads in the way", func(w *world) { w.jobs = append(w.jobs, small("other", "n1", 1)) }, none, "", "without any single workload"},
		{"the lowest priority first", func(w *world) {
			w.nodes[0].size, w.big.devices = 12, 8
			w.jobs = []job{small("older", "n1", 2), small("newer", "n1", 2), small("lower", "n1", 2)}
			w.jobs[2].priority, w.jobs[2].since = 0, noon.Add(-5*time.Hour)
		}, selected, "lower", ""},
		{"the last started first", func(w *world) {
			w.nodes[0].size, w.big.devices = 12, 8
			w.jobs = []job{small("a-older", "n1", 3), small("b-newer", "n1", 3)}
			w.jobs[0].since = noon.Add(-2 * time.Hour)
		}, selected, "b-newer", ""},
		{"one device in the way", func(w *world) { w.jobs[0].devices = 1 }, selected, "small", ""},
		{"the nodes have less room than the gate sees", func(w *world) {
			w.nodes[1].size, w.big.pods = 8, 2
			ofBig(func(in *gate.Inputs) {
				in.Candidates[0].Shapes[0].Fit, in.Candidates[0].Shapes[0].EmptyFit = gate.Known(1), gate.Known(2)
			})(w)
		}, none, "", "without any"},
		{"the first that fits elsewhere", func(w *world) {
			w.nodes[0].size, w.big.devices = 14, 8
			w.jobs = []job{small("large", "n1", 5), small("small", "n1", 4)}
			w.jobs[0].priority = 0
		}, selected, "small", ""},
		{"pods on two nodes, one of which helps", func(w *world) {
			w.nodes = append(w.nodes, node{"c1", "n3", 4})
			w.jobs[0].pods, w.jobs[0].on = 2, []string{"n1", "n3"}
		}, selected, "small", ""},
		{"the same priority", func(w *world) { w.big.priority = 1 }, none, "", "lower priority"},
		{"a higher priority", func(w *world) { w.jobs[0].priority = 11 }, none, "", "lower priority"},
		{"within minRunSeconds", func(w *world) { w.jobs[0].since = noon.Add(-29 * time.Minute) }, none, "", "without any"},
		{"protected", candidate(func(c *reclaim.Candidate) { c.Protection = "it is" }), none, "", "without any"},
		{"another one waits for its quota", candidate(func(c *reclaim.Candidate) { c.QuotaWantedBy = "team-b/x" }), none, "", "without any"},
		{"returned within the hour by some policy", candidate(func(c *reclaim.Candidate) { c.ReclaimedAt = noon.Add(-time.Hour) }), none, "", "without any"},
		{"returned before", candidate(func(c *reclaim.Candidate) { c.ReclaimedAt = noon.Add(-61 * time.Minute) }), selected, "small", ""},
		{"returned within the hour by this policy", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("small", "else", v1alpha1.ModeEnforce, 59*time.Minute)}
		}, none, "", "without any"},
		{"a device is not measured", candidate(func(c *reclaim.Candidate) { c.Devices++ }), none, "", "without any"},
		{"no quota for big on the cluster", func(w *world) {
			w.quota["c1"], w.nodes = 5, append(w.nodes, node{"c1", "n3", 4})
			w.jobs = append(w.jobs, small("other", "n3", 4))
			w.jobs[1].priority = 10
		}, none, "", "without any"},
		{"the quota that small returns suffices", func(w *world) { w.quota["c1"] = 6 }, selected, "small", ""},
		{"the quota that small returns is of another queue", func(w *world) {
			w.quota["c1"] = 6
			candidate(func(c *reclaim.Candidate) { c.Queue = "other" })(w)
		}, none, "", "without any"},
		{"the quota that small returns is of another flavor", func(w *world) {
			w.quota["c1"] = 6
			ofBig(func(in *gate.Inputs) { in.Facts.PodSets[0].Flavor = "reserved" })(w)
			candidate(func(c *reclaim.Candidate) { c.Flavor = "spot" })(w)
		}, none, "", "without any"},
		{"the quota that small returns is of the same flavor", func(w *world) {
			w.quota["c1"] = 6
			ofBig(func(in *gate.Inputs) { in.Facts.PodSets[0].Flavor = "reserved" })(w)
			candidate(func(c *reclaim.Candidate) { c.Flavor = "reserved" })(w)
		}, selected, "small", ""},
		{"no quota for small elsewhere", func(w *world) { w.quota["c2"] = 1 }, none, "", "fits on no other"},
		{"quota of the cluster unknown", ofBig(func(in *gate.Inputs) { in.Candidates[0].Shapes[0].Quota = gate.Number{} }), none, "", "without any"},
		{"quota elsewhere unknown", ofSmall(func(in *gate.Inputs) { in.Candidates[1].Shapes[0].Quota = gate.Number{} }), none, "", "fits on no other"},
		{"the gate sees less room than the nodes have", ofBig(func(in *gate.Inputs) { in.Candidates[0].Shapes[0].Fit.Value = -1 }), none, "", "without any"},
		{"the gate may choose a cluster of unknown quota", func(w *world) {
			w.nodes, w.quota["c3"] = append(w.nodes, node{"c3", "n3", 4}), 100
			ofSmall(func(in *gate.Inputs) {
				in.Candidates[1].Shapes[0].Quota = gate.Number{}
				in.Candidates[2].Preference = gate.Known(1)
			})(w)
		}, none, "", "fits on no other"},
		{"the gate prefers a cluster of unknown quota", func(w *world) {
			w.nodes, w.quota["c3"] = append(w.nodes, node{"c3", "n3", 4}), 100
			ofSmall(func(in *gate.Inputs) {
				in.Candidates[1].Shapes[0].Quota, in.Candidates[1].Preference = gate.Number{}, gate.Known(1)
			})(w)
		}, none, "", "fits on no other"},
		{"stale elsewhere", ofSmall(func(in *gate.Inputs) { in.Candidates[1].SampledAt = noon.Add(-3 * time.Minute) }), none, "", "fits on no other"},
		{"stale elsewhere, onStale Open", ofSmall(func(in *gate.Inputs) {
			in.Rules.OnStale = v1alpha1.StaleOpen
			for i := range in.Candidates {
				in.Candidates[i].SampledAt = noon.Add(-time.Hour)
			}
		}), none, "", "fits on no other"},
		{"responses about small lack clusters", ofSmall(func(in *gate.Inputs) { in.Fleet.Incomplete = true }), none, "", "fits on no other"},
		{"a query about small fails", ofSmall(func(in *gate.Inputs) { in.Fleet.Problem = "timeout" }), none, "", "fits on no other"},
		{"small requests what is not measured", ofSmall(func(in *gate.Inputs) { in.Facts.Unmeasured = []string{"zone"} }), none, "", "fits on no other"},
		{"elsewhere small would preempt", ofSmall(func(in *gate.Inputs) {
			in.Facts.Preempts, in.Rules.PreemptsLowerPriority = true, true
			in.Candidates[1].Shapes[0].Quota = gate.Known(0)
			l := ledger.New(15*time.Second, 10*time.Minute)
			l.PutRunning(ledger.Running{UID: "victim", Cluster: "c2", Queue: ledger.Queue{Cluster: "research"}, PodSets: in.Facts.PodSets, Since: noon.Add(-time.Hour)})
			in.View = l.View()
		}), none, "", "fits on no other"},
		{"elsewhere is promised to others", func(w *world) {
			w.view.Debit(ledger.Entry{UID: "x", Cluster: "c2", PodSets: []shape.PodSet{{Resource: gpu, Model: h100, DevicesPerPod: 4, Pods: 1}}, DebitedAt: noon})
		}, none, "", "fits on no other"},
		{"others are on their way to the cluster", func(w *world) {
			w.view.Debit(ledger.Entry{UID: "x", Cluster: "c1", PodSets: []shape.PodSet{{Resource: gpu, Model: h100, DevicesPerPod: 1, Pods: 1}}, DebitedAt: noon})
		}, none, "", "are on their way to c1"},
		{"a workload of the cluster has just ended", func(w *world) {
			w.view.Credit(ledger.Credit{Cluster: "c1", PodSets: []shape.PodSet{{Resource: gpu, Model: h100, DevicesPerPod: 2, Pods: 1}}, FinishedAt: noon.Add(-20 * time.Second)})
		}, none, "", "are on their way to c1, or leave it"},
		{"samples show that a workload has ended", func(w *world) {
			w.view.Credit(ledger.Credit{Cluster: "c1", PodSets: []shape.PodSet{{Resource: gpu, Model: h100, DevicesPerPod: 2, Pods: 1}}, FinishedAt: noon.Add(-21 * time.Second)})
		}, selected, "small", ""},
		{"a workload with other devices has just ended", func(w *world) {
			w.view.Credit(ledger.Credit{Cluster: "c1", PodSets: []shape.PodSet{{Resource: gpu, Model: "A100", DevicesPerPod: 2, Pods: 1}}, FinishedAt: noon})
		}, selected, "small", ""},
		{"big waits for another check, too", ofBig(func(in *gate.Inputs) { in.AwaitsCheck = "provisioning" }), none, "", "its admission check provisioning is not Ready"},
		{"a cluster with room for big joins", ofBig(func(in *gate.Inputs) {
			in.Candidates[1].Outside, in.Candidates[1].Shapes[0].Fit = true, gate.Known(1)
		}), none, "", "c2 has room for it and joins"},
		{"big requests what is not measured", ofBig(func(in *gate.Inputs) { in.Facts.Unmeasured = []string{"zone"} }), none, "", "does not measure: zone"},
		{"nodes have taints", ofBig(func(in *gate.Inputs) {
			for i := range in.Candidates {
				in.Candidates[i].Shapes[0].Measured, in.Candidates[i].Shapes[0].DeviceFit = map[string]bool{"taint dedicated": true}, gate.Known(9)
			}
		}), none, "", "do not tolerate taint dedicated of nodes"},
		{"a node with a taint is of no use for any pod", ofBig(func(in *gate.Inputs) { in.Candidates[0].Shapes[0].Measured = map[string]bool{"taint dedicated": true} }), selected, "small", ""},
		{"own fit query", ofBig(func(in *gate.Inputs) { in.OwnFit = true }), none, "", "its own fit query"},
		{"another source", ofBig(func(in *gate.Inputs) { in.Source = "east" }), none, "", "another MetricsSource"},
		{"responses about big lack clusters", ofBig(func(in *gate.Inputs) { in.Fleet.Incomplete = true }), none, "", "not complete"},
		{"Shadow hold", ofBig(func(in *gate.Inputs) { in.Rules.Hold.Mode = v1alpha1.HoldShadow }), none, "", "nothing would keep the room"},
		{"maxPerHour is reached", func(w *world) { w.remaining = 0 }, limited, "small", "maxPerHour"},
		{"another one of the Cohort returns", candidate(func(c *reclaim.Candidate) { c.Returning = "team-b/x" }), limited, "small", "the return of team-b/x"},
		{"another move is not complete", func(w *world) {
			w.history, w.unplaced = []v1alpha1.ReclaimRecord{record("x", "else", v1alpha1.ModeEnforce, 9*time.Minute)}, map[string]bool{"x": true}
		}, limited, "small", "team-a/x was moved and does not run again yet"},
		{"another move waits for too long", func(w *world) {
			w.history, w.unplaced = []v1alpha1.ReclaimRecord{record("x", "else", v1alpha1.ModeEnforce, 10*time.Minute+15*time.Second)}, map[string]bool{"x": true}
		}, selected, "small", ""},
		{"a move of another policy is not complete", func(w *world) {
			w.otherHistory, w.unplaced = []v1alpha1.ReclaimRecord{record("x", "else", v1alpha1.ModeEnforce, 9*time.Minute)}, map[string]bool{"x": true}
		}, limited, "small", "team-a/x was moved and does not run again yet"},
		{"another policy would have moved one", func(w *world) {
			w.otherHistory, w.unplaced = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeShadow, time.Second)}, map[string]bool{"x": true}
		}, selected, "small", ""},
		{"a move of another policy for big is not measured", func(w *world) {
			w.otherHistory = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 25*time.Second)}
		}, v1alpha1.MoveSettling, "", "samples"},
		{"moved within the hour by another policy", func(w *world) {
			w.otherHistory = []v1alpha1.ReclaimRecord{record("small", "else", v1alpha1.ModeEnforce, 59*time.Minute)}
		}, none, "", "without any"},
		{"a move for big is not measured", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 30*time.Second)}
		}, v1alpha1.MoveSettling, "", "samples"},
		{"the workload that moved for big has just ended", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 30*time.Second)}
			w.view.Credit(ledger.Credit{Cluster: "c1", PodSets: []shape.PodSet{{Resource: gpu, Model: h100, DevicesPerPod: 2, Pods: 1}}, FinishedAt: noon.Add(-20 * time.Second)})
		}, v1alpha1.MoveSettling, "", "samples"},
		{"a move for big from a cluster that was held before is not measured", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 40*time.Second)}
			w.history[0].Cluster = "c2"
			ofBig(func(in *gate.Inputs) { in.Candidates[1].SampledAt = noon.Add(-40 * time.Second) })(w)
		}, v1alpha1.MoveSettling, "", "samples"},
		{"a move for big from a cluster that the gate has no more", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 30*time.Second)}
			w.history[0].Cluster = "c9"
		}, selected, "small", ""},
		{"a move for big is measured", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 40*time.Second)}
		}, selected, "small", ""},
		{"recorded in mode Shadow", func(w *world) {
			w.mode, w.history = v1alpha1.ModeShadow, []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeShadow, 9*time.Minute)}
		}, v1alpha1.MoveRecorded, "", "recorded"},
		{"recorded before it waited", func(w *world) {
			w.mode, w.history = v1alpha1.ModeShadow, []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeShadow, 11*time.Minute)}
		}, selected, "small", ""},
		{"moved in mode Enforce, now Shadow", func(w *world) {
			w.mode, w.history = v1alpha1.ModeShadow, []v1alpha1.ReclaimRecord{record("x", "big", v1alpha1.ModeEnforce, 9*time.Minute)}
		}, selected, "small", ""},
		{"recorded in mode Shadow, now Enforce", func(w *world) {
			w.history = []v1alpha1.ReclaimRecord{record("small", "big", v1alpha1.ModeShadow, 10*time.Second)}
		}, selected, "small", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := stuck()
			tc.change(w)
			d := w.round()
			moved := ""
			if d.Candidate != nil {
				moved = d.Candidate.Name
			}
			if d.State != tc.state || moved != tc.moved || !strings.Contains(d.Reason, tc.reason) || tc.reason == "" && d.Reason != "" {
				t.Errorf("got %s of %q: %s", d.State, moved, d.Reason)
			}
			if d.State == selected && d.To != "c2" {
				t.Errorf("to %s", d.To)
			}
		})
	}
}

// The gate decides as if the workload had just begun to wait and could not stay.
func TestDestination(t *testing.T) {
	held := func(cluster string) ledger.View {
		l := ledger.New(15*time.Second, 10*time.Minute)
		h := ledger.Hold{Gate: "other", UID: "x", Workload: "team-b/x", Cluster: cluster, PodSets: []shape.PodSet{{Resource: gpu, DevicesPerPod: 1, Pods: 1}},
			Rank: ledger.Rank{Priority: 20, Since: noon.Add(-10 * time.Minute)}}
		l.Commit(l.View(), "x", nil, nil, &h)
		return l.View()
	}
	for _, tc := range []struct {
		name   string
		change func(*gate.Inputs)
		want   string
	}{
		{"not where it runs", func(in *gate.Inputs) { in.Candidates[0].Shapes[0].Headroom.Value = 1000 }, "c2"},
		{"only room where it runs", func(in *gate.Inputs) { in.Candidates[1].Shapes[0].Fit.Value = 0 }, ""},
		{"held for one that ranks behind as long as this one runs", func(in *gate.Inputs) {
			in.View, in.Rules.Rank.Since = held("c2"), noon.Add(-5*time.Hour)
		}, ""},
		{"sent there before", func(in *gate.Inputs) { in.View, in.Rules.Incumbents = held("c2"), []string{"c2"} }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := stuck()
			in := w.inputs(w.jobs[0])
			tc.change(in)
			m := Movable{Candidate: w.candidate(w.jobs[0]), Inputs: in}
			if got := m.Destination(noon); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if len(in.Candidates[0].Excluded) > 0 {
				t.Error("the inputs were changed")
			}
		})
	}
}

// At most one workload moves in a round: that for the waiting workload which ranks first.
func TestOneMoveInARound(t *testing.T) {
	w := stuck()
	first, second := w.waiting(), w.waiting()
	first.Hold.UID, first.Hold.Rank.Priority = "first", 20
	m := []Movable{{Candidate: w.candidate(w.jobs[0]), Inputs: w.inputs(w.jobs[0])}}
	got := Decide(Bounds{Mode: v1alpha1.ModeEnforce, Remaining: 4}, []*Waiting{second, first}, map[string][]Movable{"first": m, "big": m}, noon)
	if len(got) != 2 || got[0].Hold.UID != "first" || got[0].State != v1alpha1.MoveSelected || got[1].State != v1alpha1.MoveLimited || got[1].Reason != "team-a/small comes first" {
		t.Errorf("got %+v", got)
	}
	idle := Decide(Bounds{Mode: v1alpha1.ModeEnforce, Remaining: 4, Idle: "team-a/idle"}, []*Waiting{first}, map[string][]Movable{"first": m}, noon)
	if idle[0].State != v1alpha1.MoveLimited || idle[0].Reason != "team-a/idle, whose devices are idle, comes first" {
		t.Errorf("got %+v", idle)
	}
	m[0].QuotaWantedBy = "team-b/late"
	late := Decide(Bounds{Mode: v1alpha1.ModeEnforce, Remaining: 4}, []*Waiting{first}, map[string][]Movable{"first": m}, noon)
	if late[0].State != v1alpha1.MoveNone || !strings.Contains(late[0].Reason, "without any single workload") {
		t.Errorf("got %+v", late)
	}
}

func TestRecordNamesTheMove(t *testing.T) {
	w := stuck()
	w.jobs[0].change = func(c *reclaim.Candidate) { c.GracePeriod = time.Minute }
	d := w.round()
	if want := "team-a/big waits for devices on c1, which has room for it then, and the workload fits on c2"; d.Cause() != want {
		t.Errorf("cause %q", d.Cause())
	}
	history := Record(nil, []Decision{d, {State: v1alpha1.MoveNone}}, v1alpha1.ModeEnforce, noon)
	want := v1alpha1.MoveRecord{For: "team-a/big", ForUID: "big", To: "c2", PodsEndBy: metav1.NewTime(noon.Add(time.Minute))}
	if len(history) != 1 || history[0].Name != "small" || history[0].Cluster != "c1" || history[0].Devices != 2 || *history[0].Move != want {
		t.Errorf("got %+v", history)
	}
}

// In random fleets, whatever moves makes room for the waiting workload on the node level, fits on the
// other cluster, has a lower priority, and is within the bound. Some move, and some do not.
func TestMovesOnlyIfBothFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	moves := 0
	for range 20000 {
		w := randomWorld(rng)
		d := w.round()
		if d.State != v1alpha1.MoveSelected {
			continue
		}
		moves++
		i := 0
		for w.jobs[i].name != d.Candidate.Name {
			i++
		}
		v := w.jobs[i]
		switch {
		case w.remaining <= 0:
			t.Fatalf("moves beyond the bound: %+v", w)
		case v.priority >= w.big.priority:
			t.Fatalf("%s has no lower priority: %+v", v.name, w)
		case w.fits(w.big, d.Hold.Cluster, "") && w.quota[d.Hold.Cluster] >= float64(w.big.pods*w.big.devices):
			t.Fatalf("big fits without a move: %+v", w)
		case !w.fits(w.big, d.Hold.Cluster, v.name):
			t.Fatalf("big does not fit on %s without %s: %+v", d.Hold.Cluster, v.name, w)
		case d.To == d.Hold.Cluster || !w.fits(v, d.To, ""):
			t.Fatalf("%s does not fit on %s: %+v", v.name, d.To, w)
		case w.quota[d.Hold.Cluster]+float64(v.pods*v.devices) < float64(w.big.pods*w.big.devices), w.quota[d.To] < float64(v.pods*v.devices):
			t.Fatalf("no quota for the move of %s to %s: %+v", v.name, d.To, w)
		}
	}
	if moves < 100 || moves > 15000 {
		t.Errorf("%d moves", moves)
	}
}

func randomWorld(rng *rand.Rand) *world {
	w := stuck()
	w.nodes, w.jobs, w.remaining = nil, nil, rng.IntN(4)
	for _, cluster := range []string{"c1", "c2", "c3"} {
		w.quota[cluster] = float64(rng.IntN(24))
		for n := range 1 + rng.IntN(3) {
			w.nodes = append(w.nodes, node{cluster, cluster + "-" + string(rune('a'+n)), int64(2 << rng.IntN(3))})
		}
	}
	w.big.devices, w.big.pods, w.big.priority = int64(1<<rng.IntN(4)), int64(1+rng.IntN(3)), int32(rng.IntN(4))
	for i := range rng.IntN(8) {
		w.addRandomJob(rng, "job-"+string(rune('a'+i)))
	}
	return w
}

// addRandomJob adds a job of one or two pods on nodes of one cluster with room.
func (w *world) addRandomJob(rng *rand.Rand, name string) {
	j := small(name, "", int64(1<<rng.IntN(3)))
	j.priority, j.since, j.on = int32(rng.IntN(4)), noon.Add(-time.Duration(rng.IntN(120))*time.Minute), nil
	j.pods = int64(1 + rng.IntN(2))
	cluster := w.nodes[rng.IntN(len(w.nodes))].cluster
	w.jobs = append(w.jobs, j)
	this := &w.jobs[len(w.jobs)-1]
	for range j.pods {
		for _, n := range w.nodes {
			if n.cluster == cluster && w.free(n, "") >= j.devices {
				this.on = append(this.on, n.name)
				break
			}
		}
	}
	if int64(len(this.on)) < j.pods {
		w.jobs = w.jobs[:len(w.jobs)-1]
	}
}

func TestModeOf(t *testing.T) {
	for _, tc := range []struct {
		policy    v1alpha1.Mode
		rebalance *v1alpha1.Rebalance
		want      v1alpha1.Mode
	}{
		{v1alpha1.ModeEnforce, nil, ""},
		{"", &v1alpha1.Rebalance{}, v1alpha1.ModeEnforce},
		{v1alpha1.ModeShadow, &v1alpha1.Rebalance{}, v1alpha1.ModeShadow},
		{v1alpha1.ModeShadow, &v1alpha1.Rebalance{Mode: v1alpha1.ModeEnforce}, v1alpha1.ModeEnforce},
		{v1alpha1.ModeEnforce, &v1alpha1.Rebalance{Mode: v1alpha1.ModeShadow}, v1alpha1.ModeShadow},
	} {
		got, moves := ModeOf(&v1alpha1.ReclaimPolicySpec{Mode: tc.policy, Rebalance: tc.rebalance})
		if got != tc.want || moves != (tc.rebalance != nil) {
			t.Errorf("mode of %+v under %q is %q, %t, want %q", tc.rebalance, tc.policy, got, moves, tc.want)
		}
	}
}
