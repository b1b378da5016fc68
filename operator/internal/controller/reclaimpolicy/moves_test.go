package reclaimpolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// gates hold c1 for big, which needs a node of 8 GPUs. small has 2 of the node there, and c2 has 4 free.
type gates struct {
	now    func() time.Time
	ledger *ledger.Ledger
	// read are the workloads whose inputs were read.
	read []string
	// problem of the gate of small.
	problem string
	// onRead happens while the inputs of a workload are read; nil = nothing.
	onRead func(job string)
}

func newGates(now func() time.Time) *gates {
	g := &gates{now: now, ledger: ledger.New(15*time.Second, 10*time.Minute)}
	d := g.inputs("big").Decide(now())
	g.ledger.Commit(g.ledger.View(), "uid-big", nil, nil, d.Hold)
	return g
}

func (g *gates) Holds() []ledger.Hold { return g.ledger.View().Holds() }

func (g *gates) Inputs(_ context.Context, key client.ObjectKey) (*gate.Inputs, string, error) {
	g.read = append(g.read, key.Name)
	if g.onRead != nil {
		g.onRead(strings.TrimPrefix(key.Name, "job-"))
	}
	if g.problem != "" && key.Name == "job-small" {
		return nil, g.problem, nil
	}
	return g.inputs(strings.TrimPrefix(key.Name, "job-")), "", nil
}

func (g *gates) inputs(job string) *gate.Inputs {
	now := g.now()
	p, priority, fits := shape.PodSet{Name: "main", Resource: "nvidia.com/gpu", Model: "H100", DevicesPerPod: 8, Pods: 1}, int32(10), []float64{0, 0}
	if job == "small" {
		p.DevicesPerPod, priority, fits = 2, 0, []float64{3, 2}
	}
	in := &gate.Inputs{Facts: shape.Facts{UID: "uid-" + job, Namespace: "team-a", Name: "job-" + job, ClusterQueue: "research", Remote: true, PodSets: []shape.PodSet{p}},
		View: g.ledger.View(), Source: "thanos", Rules: gate.RulesOf(&v1alpha1.PlacementGateSpec{})}
	in.Rules.Hold.Gate, in.Rules.Rank = "gpu", ledger.Rank{Priority: priority, Since: noon.Add(-time.Hour), Name: job}
	for i, cluster := range []string{"c1", "c2"} {
		in.Candidates = append(in.Candidates, gate.Candidate{Name: cluster, SampledAt: now.Add(-5 * time.Second), Shapes: []gate.ShapeMetrics{{
			Fit: gate.Known(fits[i]), EmptyFit: gate.Known(float64(1 - i)), Headroom: gate.Known(6 - 2*float64(i)), Capacity: gate.Known(8), Quota: gate.Known(64)}}})
	}
	return in
}

// bigWaits has quota and waits at the gate.
func bigWaits(change ...func(*kueue.Workload)) *kueue.Workload {
	return running("big", append([]func(*kueue.Workload){func(wl *kueue.Workload) {
		wl.Status.ClusterName, wl.Spec.Priority = nil, new(int32(10))
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "multikueue", State: kueue.CheckStatePending}}
		wl.Status.Conditions = wl.Status.Conditions[:1]
	}}, change...)...)
}

// newStuckHub is a hub where small may move for big, with a policy that does so in this mode.
func newStuckHub(t *testing.T, calls interceptor.Funcs, mode v1alpha1.Mode, objects ...client.Object) (*hub, *gates) {
	t.Helper()
	h := newHubWith(t, calls, func(s *v1alpha1.ReclaimPolicySpec) { s.Rebalance = &v1alpha1.Rebalance{Mode: mode} }, append(objects, running("small"), bigWaits())...)
	if err := h.Delete(t.Context(), waiting("waits")); err != nil {
		t.Fatal(err)
	}
	g := newGates(func() time.Time { return h.now })
	h.r.gates = g
	return h, g
}

func TestShadowRecordsAMove(t *testing.T) {
	h, _ := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeShadow)
	policy := h.round()
	want := v1alpha1.Move{For: "team-a/job-big", Cluster: "c1", Workload: "team-a/job-small", To: "c2", Devices: 2, State: v1alpha1.MoveSelected}
	if moves := policy.Status.Moves; len(moves) != 1 || moves[0] != want {
		t.Errorf("moves %+v", moves)
	}
	if r := policy.Status.History; len(r) != 1 || r[0].Mode != v1alpha1.ModeShadow || r[0].Move == nil || r[0].Move.ForUID != "uid-big" || r[0].Move.To != "c2" {
		t.Errorf("history %+v", r)
	}
	if events := h.events(); !slices.ContainsFunc(events, func(e string) bool {
		return strings.Contains(e, "WouldRebalance team-a/job-small would return to its queue: team-a/job-big waits for devices on c1, which has room for it then, and the workload fits on c2")
	}) {
		t.Errorf("events %q", events)
	}
	if policy = h.round(); len(policy.Status.History) != 1 || policy.Status.Moves[0].State != v1alpha1.MoveRecorded {
		t.Errorf("the second round records again: %+v", policy.Status)
	}
	h.requireUntouched("small", "big")
	if n := testutil.ToFloat64(h.r.metrics.moves.WithLabelValues("idle-gpus", "shadow")); n != 1 {
		t.Errorf("counted %g", n)
	}
}

func TestEnforceMovesAWorkload(t *testing.T) {
	h, _ := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce)
	policy := h.round()
	active, record := h.isActive("small")
	avoided := record.Avoided(h.now)
	if active || !record.IsReclaimed() || len(avoided) != 1 || avoided[0].Cluster != "c1" || avoided[0].Why != "was left for team-a/job-big" || record.Reclaimed.Policy != "idle-gpus" {
		t.Errorf("active %t, record %+v", active, record)
	}
	if r := policy.Status.History; len(r) != 1 || r[0].Mode != v1alpha1.ModeEnforce || r[0].IdleSeconds != 0 {
		t.Errorf("history %+v", r)
	}
	if events := h.events(); !slices.ContainsFunc(events, func(e string) bool {
		return strings.HasPrefix(e, "Warning Rebalanced ReclaimPolicy idle-gpus returns it to its queue: team-a/job-big waits")
	}) {
		t.Errorf("events %q", events)
	}
	if n := testutil.ToFloat64(h.r.metrics.moves.WithLabelValues("idle-gpus", "enforce")); n != 1 {
		t.Errorf("counted %g", n)
	}
	if n := testutil.ToFloat64(h.r.metrics.workloads.WithLabelValues("idle-gpus", "enforce")); n != 0 {
		t.Errorf("%g idle workloads counted", n)
	}
	h.requireUntouched("big")
}

// What is not certain moves nothing, and the status says why.
func TestNothingMoves(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*hub, *gates)
		// reason of the status; empty = the status has no move.
		reason string
	}{
		{"no rebalance", func(h *hub, _ *gates) {
			policy := h.policy()
			policy.Spec.Rebalance = nil
			if err := h.Update(h.t.Context(), policy); err != nil {
				h.t.Fatal(err)
			}
		}, ""},
		{"no hold", func(_ *hub, g *gates) { g.ledger.ReleaseHold("uid-big") }, ""},
		{"the source fails", func(h *hub, _ *gates) { h.failing = fmt.Errorf("timeout") }, ""},
		{"partial responses", func(h *hub, _ *gates) { h.partial = true }, ""},
		{"partial response about devices", func(h *hub, _ *gates) { h.devicesPartial = true }, "the devices of the nodes were not measured: free devices: some stores"},
		{"stale samples", func(h *hub, _ *gates) { h.age = 241 }, "the samples of c1 are missing or too old"},
		{"the gate of small is not ready", func(_ *hub, g *gates) { g.problem = "PlacementGate gpu is not ready" }, "fits on no other cluster: PlacementGate gpu is not ready"},
		{"another workload waits for quota", func(h *hub, _ *gates) {
			if err := h.Create(h.t.Context(), waiting("late")); err != nil {
				h.t.Fatal(err)
			}
		}, "without any single workload"},
		{"another workload comes to wait for quota during the queries", func(h *hub, g *gates) {
			g.onRead = func(job string) {
				if job != "small" {
					return
				}
				if err := h.Create(h.t.Context(), waiting("late")); err != nil {
					h.t.Error(err)
				}
			}
		}, "without any single workload"},
		{"the source is slow", func(h *hub, g *gates) {
			g.onRead = func(job string) {
				if job == "small" {
					h.now = h.now.Add(time.Minute + time.Second)
				}
			}
		}, "the metrics source is too slow: the round takes longer than periodSeconds, or than 240 s"},
		{"the source is slow from the beginning", func(h *hub, g *gates) {
			h.change = func(samples []query.Sample) []query.Sample {
				h.now = h.now.Add(time.Minute + time.Second)
				return samples
			}
			g.onRead = func(job string) { h.t.Errorf("read %s", job) }
		}, "the metrics source is too slow: the round takes longer than periodSeconds, or than 240 s"},
		{"another policy has moved a workload for big", func(h *hub, _ *gates) {
			other := &v1alpha1.ReclaimPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
			other.Status.History = []v1alpha1.ReclaimRecord{{Time: metav1.NewTime(h.now), Mode: v1alpha1.ModeEnforce, Namespace: "team-b", Name: "x", UID: "x", Cluster: "c1",
				Move: &v1alpha1.MoveRecord{For: "team-a/job-big", ForUID: "uid-big", PodsEndBy: metav1.NewTime(h.now.Add(time.Minute))}}}
			if err := h.Create(h.t.Context(), other); err != nil {
				h.t.Fatal(err)
			}
		}, "samples do not show yet what the last move returned"},
		{"big was reclaimed itself", func(h *hub, _ *gates) {
			h.annotate("big", dispatch.Record{}.Reclaim("other", "idle", 0, noon.Add(-time.Minute)).Woken())
		}, "it was returned to its queue itself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, g := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce)
			tc.change(h, g)
			policy := h.round()
			moves := policy.Status.Moves
			if tc.reason == "" && len(moves) > 0 || tc.reason != "" && (len(moves) != 1 || moves[0].State == v1alpha1.MoveSelected || !strings.Contains(moves[0].Reason, tc.reason)) {
				t.Errorf("moves %+v", moves)
			}
			if len(policy.Status.History) > 0 {
				t.Errorf("history %+v", policy.Status.History)
			}
			if active, _ := h.isActive("small"); !active {
				t.Error("small moved")
			}
			if tc.reason == "" && (len(g.read) > 0 || slices.ContainsFunc(h.queries, func(q string) bool { return strings.Contains(q, "plimsoll_allocation") })) {
				t.Errorf("inputs read of %q, queries %q", g.read, h.queries)
			}
		})
	}
}

// Without rebalance the policy sends the queries that it always sent.
func TestNoQueriesOfMovesWithoutRebalance(t *testing.T) {
	h := newHub(t, nil, running("small"))
	h.r.gates = newGates(func() time.Time { return h.now })
	h.round()
	if len(h.queries) != 2 || !strings.Contains(h.queries[0], "sample_timestamp") || !strings.Contains(h.queries[1], "idle_since") {
		t.Errorf("queries %q", h.queries)
	}
}

// A move that the API server refuses does not count for maxPerHour.
func TestRefusedMoveDoesNotCount(t *testing.T) {
	h, _ := newStuckHub(t, refuseWritesTo("small"), v1alpha1.ModeEnforce)
	policy := h.round()
	if m := policy.Status.Moves; len(m) != 1 || m[0].State != v1alpha1.MoveLimited || !strings.Contains(m[0].Reason, "refused the write") || len(policy.Status.History) > 0 {
		t.Errorf("status %+v", policy.Status)
	}
}

// An idle workload comes first, and both count for maxPerHour.
func TestIdleWorkloadComesBeforeAMove(t *testing.T) {
	h, _ := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce, running("idle"))
	h.idle["idle"] = []float64{3000, 3000}
	policy := h.round()
	if m := policy.Status.Moves; len(m) != 1 || m[0].State != v1alpha1.MoveLimited || m[0].Reason != "team-a/job-idle, whose devices are idle, comes first" {
		t.Errorf("moves %+v", m)
	}
	if r := policy.Status.History; len(r) != 1 || r[0].Name != "job-idle" || r[0].Move != nil {
		t.Errorf("history %+v", r)
	}
}

// An idle workload of another ClusterQueue comes first, too: its cluster may be the same.
func TestIdleWorkloadOfAnotherQueueComesBeforeAMove(t *testing.T) {
	inOther := func(wl *kueue.Workload) {
		wl.Spec.QueueName = "other"
		if wl.Status.Admission != nil {
			wl.Status.Admission.ClusterQueue = "other"
		}
	}
	h, _ := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce, clusterQueue("other", ""), localQueue("other"), running("idle", inOther), waiting("waits-too", inOther))
	policy := h.policy()
	policy.Spec.ClusterQueues = append(policy.Spec.ClusterQueues, "other")
	if err := h.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	h.idle["idle"] = []float64{3000, 3000}
	policy = h.round()
	if m := policy.Status.Moves; len(m) != 1 || m[0].State != v1alpha1.MoveLimited || m[0].Reason != "team-a/job-idle, whose devices are idle, comes first" {
		t.Errorf("moves %+v", m)
	}
}

// annotate sets the record of a job's workload.
func (h *hub) annotate(job string, record dispatch.Record) {
	h.t.Helper()
	wl := &kueue.Workload{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Namespace: "team-a", Name: "job-" + job}, wl); err != nil {
		h.t.Fatal(err)
	}
	wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Encode()}
	if err := h.Update(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
}

// The liveness probe restarts the operator if a round lasts 5 minutes. The queries of a round share one
// limit, also those of moves.
func TestRoundEndsBeforeTheLivenessProbeFails(t *testing.T) {
	for name, blocked := range map[string]string{"idle devices": "sample_timestamp", "moves": "plimsoll_free_devices"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newStuckHub(t, interceptor.Funcs{}, v1alpha1.ModeEnforce)
				policy := h.policy()
				policy.Spec.PeriodSeconds = 3600
				if err := h.Update(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
				start, isBlocked := time.Now(), false
				h.r.now = func() time.Time { return h.now.Add(time.Since(start)) }
				h.r.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "site", Match: "Name"}, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
					if strings.Contains(expr, blocked) {
						isBlocked = true
						<-ctx.Done()
						return query.Result{}, ctx.Err()
					}
					time.Sleep(time.Second)
					return h.query(ctx, expr, at)
				}))
				h.round()
				if took := time.Since(start); took != timing.MaxRound || !isBlocked {
					t.Errorf("the round took %v, want %v; blocked %t", took, timing.MaxRound, isBlocked)
				}
				h.requireUntouched("small", "big")
			})
		})
	}
}
