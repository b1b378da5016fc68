package gate

import (
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// holdRules are the rules for a workload that has waited, in a gate that holds clusters after
// five minutes.
func holdRules(mode v1alpha1.HoldMode, priority int32, waited time.Duration) Rules {
	r := rules()
	r.Hold = HoldRules{Gate: "gpu", Mode: mode, After: 5 * time.Minute, Aging: 4 * time.Hour}
	r.Rank = ledger.Rank{Priority: priority, Since: t0.Add(-waited), Name: "own"}
	return r
}

// withEmptyFit sets how many pods an empty cluster could start.
func withEmptyFit(c Candidate, pods float64) Candidate {
	c.Shapes[0].EmptyFit = Known(pods)
	return c
}

// full is a cluster with free devices but no node for a pod of eight, and room for empty such
// pods if nothing ran there.
func full(name string, empty float64) Candidate {
	return withEmptyFit(cluster(name, 0, 4, 4, 8*empty), empty)
}

// holdOf returns a ledger with a hold on cluster1 for a workload of eight devices.
func holdOf(uid string, priority int32, waited time.Duration, change func(*ledger.Hold)) *ledger.Ledger {
	l := ledger.New(0, time.Hour)
	h := &ledger.Hold{Gate: "gpu", UID: uid, Workload: "team-a/" + uid, Cluster: "cluster1", PodSets: job(uid, 8, 1).PodSets,
		Rank: ledger.Rank{Priority: priority, Since: t0.Add(-waited), Name: uid}, Since: t0}
	if change != nil {
		change(h)
	}
	l.Commit(l.View(), uid, nil, nil, h)
	return l
}

func TestHoldBegins(t *testing.T) {
	two := []Candidate{full("cluster1", 4), full("cluster2", 2)}
	joining := cluster("cluster3", 8, 64, 8, 64)
	joining.Outside = true
	for _, tc := range []struct {
		name       string
		rules      Rules
		candidates []Candidate
		fleet      Fleet
		ledger     *ledger.Ledger
		want       string
	}{
		{"after the time, where it costs least", holdRules(v1alpha1.HoldEnforce, 1, 5*time.Minute), two, Fleet{}, nil, "cluster2"},
		{"in shadow mode", holdRules(v1alpha1.HoldShadow, 1, 5*time.Minute), two, Fleet{}, nil, "cluster2"},
		{"not before the time", holdRules(v1alpha1.HoldEnforce, 1, 299*time.Second), two, Fleet{}, nil, ""},
		{"not if switched off", holdRules(v1alpha1.HoldOff, 1, time.Hour), two, Fleet{}, nil, ""},
		{"not where the node size is unknown", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), []Candidate{cluster("cluster1", 0, 4, 4, 64)}, Fleet{}, nil, ""},
		{"not where no node is large enough", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), []Candidate{full("cluster1", 0)}, Fleet{}, nil, ""},
		{"not on a cluster with stale samples", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), []Candidate{sampledBefore(full("cluster1", 4), 121), full("cluster2", 8)}, Fleet{}, nil, "cluster2"},
		{"not while a query fails", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), two, Fleet{Problem: "fit: too heavy", FailingSince: t0}, nil, ""},
		{"not while a requirement of the fleet is not met", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), two, fleetWith(evaluated("power", 0)), nil, ""},
		{"while a cluster with room joins", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), append(slices.Clone(two), joining), Fleet{}, nil, "cluster2"},
		{"not if there is room", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), []Candidate{withEmptyFit(cluster("cluster1", 1, 8, 8, 64), 8), full("cluster2", 2)}, Fleet{}, nil, ""},
		{"not beside a hold for a workload that ranks before", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), two, Fleet{}, holdOf("other", 2, time.Minute, nil), ""},
		{"instead of a hold for a workload that ranks behind", holdRules(v1alpha1.HoldEnforce, 3, time.Hour), two, Fleet{}, holdOf("other", 2, time.Hour, nil), "cluster2"},
		{"beside a hold of another gate", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), two, Fleet{}, holdOf("other", 2, time.Hour, func(h *ledger.Hold) { h.Gate = "batch" }), "cluster2"},
		{"beside a hold for other devices", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), two, Fleet{}, holdOf("other", 2, time.Hour, func(h *ledger.Hold) { h.PodSets[0].Model = "NVIDIA-L4" }), "cluster2"},
		{"on the same cluster as before", holdRules(v1alpha1.HoldEnforce, 1, time.Hour), two, Fleet{}, holdOf("a", 1, time.Hour, nil), "cluster1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			view := ledger.View{}
			if tc.ledger != nil {
				view = tc.ledger.View()
			}
			d := Decide(job("a", 8, 1), tc.candidates, tc.fleet, view, tc.rules, 1, t0)
			got := ""
			if d.Hold != nil {
				got = d.Hold.Cluster
				if d.Hold.Workload != "team-a/a" || !d.Hold.Since.Equal(t0) {
					t.Errorf("the hold is for %s since %s", d.Hold.Workload, d.Hold.Since)
				}
				if d.Hold.Shadow != (tc.rules.Hold.Mode == v1alpha1.HoldShadow) {
					t.Errorf("shadow is %t", d.Hold.Shadow)
				}
			}
			if got != tc.want {
				t.Errorf("holds %q, want %q (%s)", got, tc.want, d.Message)
			}
		})
	}
}

// A workload that waits for quota beside free devices keeps these from no workload of another queue.
func TestHoldForQuotaBindsQueuesThatShareIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		free   float64
		queue  string
		passes bool
	}{
		{"the same queue", 7, "cq", false},
		{"another queue of the cohort", 7, "friend", false},
		{"a queue with other quota", 7, "outsider", true},
		{"a queue with other quota, and one node is free for the held workload", 1, "outsider", true},
		{"a queue with other quota, and no node is free for the held workload", 0, "outsider", false},
	} {
		for kind, of := range map[string]func(shape.Facts) shape.Facts{"remote": remote, "preempting": preempting} {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				l := ledger.New(0, time.Hour)
				l.PutRunning(ledger.Running{UID: "r", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "cq"}, Priority: 2, PodSets: job("r", 8, 1).PodSets})
				c := withEmptyFit(cluster("cluster1", tc.free, 8*tc.free, 8*tc.free, 64), 8)
				r := holdRules(v1alpha1.HoldEnforce, 2, time.Hour)
				r.CohortQueues = []string{"friend"}
				d := Decide(of(job("first", 8, 1)), []Candidate{withQuota(c, 0)}, Fleet{}, l.View(), r, 1, t0)
				if d.Hold == nil {
					t.Fatalf("no hold (%s)", d.Message)
				}
				l.Commit(l.View(), "first", nil, nil, d.Hold)
				behind := remote(job("a", 1, 1))
				behind.ClusterQueue = tc.queue
				small := withQuota(cluster("cluster1", 8, 8, 8, 64), 8)
				next := Decide(behind, []Candidate{small}, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, time.Minute), 1, t0)
				if passes := next.State == Ready; passes != tc.passes {
					t.Errorf("passes %t, want %t: %s", passes, tc.passes, next.Message)
				}
			})
		}
	}
}

func TestHoldBindsWorkloadsThatRankBehind(t *testing.T) {
	startsBy := func(in time.Duration) func(*ledger.Hold) { return func(h *ledger.Hold) { h.StartsBy = t0.Add(in) } }
	behind := holdRules(v1alpha1.HoldEnforce, 1, time.Minute)
	sent := behind
	sent.Incumbents = []string{"cluster1"}
	short := behind
	short.RunsFor = 9 * time.Minute
	l4 := func() shape.Facts {
		f := job("a", 1, 1)
		f.PodSets[0].Model = "NVIDIA-L4"
		return f
	}
	for _, tc := range []struct {
		name   string
		facts  shape.Facts
		rules  Rules
		change func(*ledger.Hold)
		passes bool
	}{
		{"ranks behind", job("a", 1, 1), behind, nil, false},
		{"higher priority", job("a", 1, 1), holdRules(v1alpha1.HoldEnforce, 3, time.Minute), nil, true},
		{"aged", job("a", 1, 1), holdRules(v1alpha1.HoldEnforce, 1, 5*time.Hour), nil, true},
		{"the held workload itself", job("big", 8, 1), behind, nil, true},
		{"sent to the cluster already", job("a", 1, 1), sent, nil, true},
		{"other devices", l4(), behind, nil, true},
		{"shadow", job("a", 1, 1), behind, func(h *ledger.Hold) { h.Shadow = true }, true},
		{"on another cluster", job("a", 1, 1), behind, func(h *ledger.Hold) { h.Cluster = "cluster2" }, true},
		{"ends before the held workload can start", job("a", 1, 1), short, startsBy(10 * time.Minute), true},
		{"may end after that", job("a", 1, 1), short, startsBy(10*time.Minute - time.Second), false},
		{"of unknown duration", job("a", 1, 1), behind, startsBy(10 * time.Hour), false},
		{"of known duration, the start is unknown", job("a", 1, 1), short, nil, false},
		{"the held workload waits for quota of another queue", remote(job("a", 1, 1)), behind, func(h *ledger.Hold) { h.Queues = []string{"other"} }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(tc.facts, []Candidate{cluster("cluster1", 8, 64, 8, 64)}, Fleet{}, holdOf("big", 2, time.Hour, tc.change).View(), tc.rules, 1, t0)
			if passes := d.State == Ready; passes != tc.passes {
				t.Fatalf("passes %t, want %t: %s", passes, tc.passes, d.Message)
			}
			if want := "no cluster is eligible; cluster1 is held for team-a/big"; !tc.passes && (d.Reason != ReasonHeld || d.Message != want || d.NoRoomAnywhere) {
				t.Errorf("%s %q, want %s %q", d.Reason, d.Message, ReasonHeld, want)
			}
		})
	}
}

// A full cluster that is held as well lacks room in the first place.
func TestFullClusterIsNotHeld(t *testing.T) {
	d := Decide(job("a", 8, 1), []Candidate{full("cluster1", 4)}, Fleet{}, holdOf("big", 2, time.Hour, nil).View(), holdRules(v1alpha1.HoldEnforce, 1, time.Minute), 1, t0)
	if d.Reason != ReasonNoRoom || !d.NoRoomAnywhere {
		t.Errorf("%s %q, want %s", d.Reason, d.Message, ReasonNoRoom)
	}
}

// A workload that a cluster is held for keeps its quota.
func TestHeldWorkloadDoesNotYield(t *testing.T) {
	for mode, want := range map[v1alpha1.HoldMode]State{v1alpha1.HoldEnforce: Pending, v1alpha1.HoldShadow: Retry} {
		d := Decide(job("a", 8, 1), []Candidate{full("cluster1", 4)}, Fleet{}, ledger.View{}, holdRules(mode, 1, time.Hour), 1, t0)
		if got := Unplaceable(d, v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}, dispatchRecord(), before(3600), t0); got.State != want {
			t.Errorf("%s: %s, want %s", mode, got.State, want)
		}
	}
}

// A cluster that is held for the workload does not keep it from being given up, and a workload that
// is given up holds nothing.
func TestHeldWorkloadIsGivenUp(t *testing.T) {
	minute := int32(60)
	d := Decide(job("a", 8, 1), []Candidate{full("cluster1", 4)}, Fleet{}, ledger.View{}, holdRules(v1alpha1.HoldEnforce, 1, time.Hour), 1, t0)
	if d.Hold == nil || !d.NoRoomAnywhere {
		t.Fatalf("hold %v, no room anywhere: %t", d.Hold, d.NoRoomAnywhere)
	}
	got := Unplaceable(d, v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &minute}, dispatch.Record{UnplacedSince: before(60)}, before(3600), t0)
	if got.State != Rejected || got.Hold != nil {
		t.Errorf("%s with hold %v, want %s without one", got.State, got.Hold, Rejected)
	}
}

// A hold stays on its cluster while the cluster qualifies, whatever other cluster could be held.
func TestHoldStays(t *testing.T) {
	for _, tc := range []struct {
		name      string
		held      string
		since     time.Duration
		want      string
		wantSince time.Duration
	}{
		{"on its cluster", "cluster2", 100 * time.Hour, "cluster2", 100 * time.Hour},
		{"not on a cluster that no longer qualifies", "cluster4", time.Minute, "cluster1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := holdOf("a", 1, 200*time.Hour, func(h *ledger.Hold) { h.Cluster, h.Since = tc.held, t0.Add(-tc.since) })
			l.PutRunning(ledger.Running{UID: "r", Cluster: tc.held, PodSets: job("r", 8, 2).PodSets})
			candidates := []Candidate{full("cluster1", 2), full("cluster2", 4), full("cluster3", 4)}
			for range 2 {
				slices.Reverse(candidates)
				d := Decide(job("a", 8, 1), candidates, Fleet{}, l.View(), holdRules(v1alpha1.HoldEnforce, 1, 200*time.Hour), 1, t0)
				if d.Hold == nil {
					t.Fatalf("no hold (%s)", d.Message)
				}
				if d.Hold.Cluster != tc.want || !d.Hold.Since.Equal(t0.Add(-tc.wantSince)) {
					t.Errorf("%s decided first: holds %s since %s, want %s since %s", candidates[0].Name, d.Hold.Cluster, t0.Sub(d.Hold.Since), tc.want, tc.wantSince)
				}
			}
		})
	}
}
