package reclaimpolicy

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func shadow(s *v1alpha1.ReclaimPolicySpec) { s.Mode = v1alpha1.ModeShadow }

func unlabeled(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels = nil }

// An idle workload that agreed to it returns to its queue: it is deactivated together with the time
// of its activation. A busy one, and one that did not agree, are untouched.
func TestIdleWorkloadIsReclaimed(t *testing.T) {
	h := newHub(t, nil, running("idle"), running("busy"), running("other", unlabeled))
	h.idle["idle"], h.idle["busy"], h.idle["other"] = []float64{3600, 2820}, []float64{3600}, []float64{3600, 3600}
	policy := h.round()
	active, record := h.isActive("idle")
	want := dispatch.Record{Reason: dispatch.ReasonReclaimed, SleepsUntil: h.now.Add(timing.DefaultPodGrace),
		Reclaimed: &dispatch.Reclaim{Policy: "idle-gpus", At: h.now, PauseUntil: h.now.Add(timing.DefaultPodGrace), Cause: "its 2 devices on c1 have been idle for 47m0s"}}
	if diff := cmp.Diff(want, record); active || diff != "" {
		t.Errorf("active %t, record (-want +got):\n%s", active, diff)
	}
	h.requireUntouched("busy", "other")
	wantHistory := []v1alpha1.ReclaimRecord{{Time: metav1.NewTime(h.now), Mode: v1alpha1.ModeEnforce, Namespace: "team-a", Name: "job-idle", UID: "uid-idle",
		RunningSince: metav1.NewTime(noon.Add(-3 * time.Hour)), Cluster: "c1", Devices: 2, IdleSeconds: 2820}}
	if diff := cmp.Diff(wantHistory, policy.Status.History); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if s := policy.Status; s.Reclaimable != 2 || s.Idle != 1 || s.IdleDevices != 2 || len(s.IdleWorkloads) != 1 || s.IdleWorkloads[0].State != v1alpha1.IdleSelected {
		t.Errorf("status %+v", s)
	}
	wantEvent := "Warning Reclaimed ReclaimPolicy idle-gpus returns it to its queue: its 2 devices on c1 have been idle for 47m0s, and other workloads wait"
	if got := h.events(); !slices.Contains(got, wantEvent) {
		t.Errorf("events %q", got)
	}
	if got := conditionOf(policy, v1alpha1.ConditionReady); !strings.HasPrefix(got, "True Enforcing") {
		t.Errorf("Ready is %s", got)
	}
}

func TestShadowChangesNothing(t *testing.T) {
	h := newHub(t, shadow, running("idle"))
	h.idle["idle"] = []float64{3600, 2820}
	h.round()
	policy := h.round()
	h.requireUntouched("idle")
	if s := policy.Status; len(s.History) != 1 || s.History[0].Mode != v1alpha1.ModeShadow || s.IdleWorkloads[0].State != v1alpha1.IdleRecorded {
		t.Errorf("status %+v", s)
	}
	wantEvent := "Normal WouldReclaim team-a/job-idle would return to its queue: its 2 devices on c1 have been idle for 47m0s, and other workloads wait"
	if got := h.events(); len(got) != 1 || got[0] != wantEvent {
		t.Errorf("events %q", got)
	}
	if got := conditionOf(policy, v1alpha1.ConditionReady); !strings.HasPrefix(got, "True Shadow") {
		t.Errorf("Ready is %s", got)
	}
}

// withoutLabel removes a label from the sample of one of the devices.
func withoutLabel(name string) func(*hub) {
	return func(h *hub) {
		h.change = func(samples []query.Sample) []query.Sample {
			delete(samples[0].Labels, name)
			return samples
		}
	}
}

// Whatever is wrong with the metrics, no workload is reclaimed, and a condition says why.
func TestUnusableMetricsReclaimNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spec  func(*v1alpha1.ReclaimPolicySpec)
		fault func(*hub)
		want  string // of the condition Measured
	}{
		{"source is down", nil, func(h *hub) {
			h.failing = &query.Error{Reason: query.ReasonUnreachable, Message: "connection refused"}
		}, "False SourceFailed: no workload is reclaimed: freshness.query: "},
		{"stores are missing", nil, func(h *hub) { h.partial = true }, "False SourceFailed: no workload is reclaimed: freshness.query: some stores"},
		{"old samples", nil, func(h *hub) { h.age = 241 }, "False Stale: no workload is reclaimed on clusters whose samples are missing or older than freshness permits: c1"},
		{"no samples", nil, func(h *hub) { h.age = math.NaN() }, "False Stale: "},
		{"samples from the future", nil, func(h *hub) { h.age = -61 }, "False Stale: "},
		{"no source", func(s *v1alpha1.ReclaimPolicySpec) { s.SourceRef.Name = "absent" }, func(*hub) {}, "False SourceFailed: "},
		{"query that does not parse", func(s *v1alpha1.ReclaimPolicySpec) { s.IdleQuery = "sum(" }, func(*hub) {}, "False ParseError: no workload is reclaimed: idleQuery: "},
		{"device without a sample", nil, func(h *hub) { h.idle["idle"] = []float64{3600} }, "True Fresh: "},
		{"two series for the one idle device", nil, func(h *hub) {
			h.idle["idle"] = []float64{3600}
			h.change = func(samples []query.Sample) []query.Sample { return slices.Concat(samples, samples) }
		}, "True Fresh: "},
		{"two series, of which one is short", nil, func(h *hub) {
			h.change = func(samples []query.Sample) []query.Sample {
				late := samples[1]
				late.Value = 60
				return append(samples, late)
			}
		}, "True Fresh: "},
		{"a sample without the UUID", nil, withoutLabel("uuid"), "True Fresh: "},
		{"a sample without the node", nil, withoutLabel("node"), "True Fresh: "},
		{"an idle device too many", nil, func(h *hub) { h.idle["idle"] = []float64{3600, 3600, 3600} }, "True Fresh: "},
		{"values that are no time", nil, func(h *hub) { h.idle["idle"] = []float64{-1, 1e300} }, "True Fresh: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, tc.spec, running("idle"))
			h.idle["idle"] = []float64{3600, 3600}
			tc.fault(h)
			policy := h.round()
			h.requireUntouched("idle")
			if len(policy.Status.History) > 0 || policy.Status.Idle > 0 {
				t.Errorf("status %+v", policy.Status)
			}
			if got := conditionOf(policy, v1alpha1.ConditionMeasured); !strings.HasPrefix(got, tc.want) {
				t.Errorf("Measured is %s", got)
			}
		})
	}
}

// A workload whose eviction might not complete, or whose cluster is not reachable, is left alone.
func TestProtectedWorkloads(t *testing.T) {
	elastic := func(wl *kueue.Workload) { wl.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"} }
	for _, tc := range []struct {
		name  string
		wl    *kueue.Workload
		setup func(*hub)
		want  string
	}{
		{"elastic job", running("idle", elastic), func(*hub) {}, "elastic job"},
		{"Kueue is not connected", running("idle"), func(h *hub) { h.replace(multiKueueCluster("c1", metav1.ConditionFalse)) }, "c1 is not connected by Kueue: connection refused"},
		{"cluster left the configuration", running("idle"), func(h *hub) {
			h.replace(&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"c2"}}})
		}, "c1 is not in MultiKueueConfig gpu"},
		{"the hub is not connected", running("idle"), func(h *hub) {
			c := managedCluster("c1")
			c.Status.Conditions[0].Status = metav1.ConditionUnknown
			h.replace(c)
		}, "c1 is not connected to the hub"},
		{"a check of another controller", running("idle", func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStateReady})
		}), func(h *hub) {
			check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"}}
			if err := h.Create(t.Context(), check); err != nil {
				t.Fatal(err)
			}
		}, "only when check budget is Ready again"},
		{"another dispatcher", running("idle"), func(h *hub) { h.r.nominates = false }, "not Kueue's dispatcher"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, nil, tc.wl)
			h.idle["idle"] = []float64{3600, 3600}
			tc.setup(h)
			policy := h.round()
			h.requireUntouched("idle")
			if s := policy.Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleProtected || !strings.Contains(s[0].Reason, tc.want) {
				t.Errorf("idle workloads %+v", s)
			}
		})
	}
}

// replace replaces an object of the hub.
func (h *hub) replace(obj client.Object) {
	h.t.Helper()
	if err := h.Delete(h.t.Context(), obj); err != nil {
		h.t.Fatal(err)
	}
	obj.SetResourceVersion("")
	if err := h.Create(h.t.Context(), obj); err != nil {
		h.t.Fatal(err)
	}
}

// Two workloads of one job have the same owner in the metrics.
func TestSharedOwnerIsProtected(t *testing.T) {
	second := running("idle")
	second.Name, second.UID = "job-second", "uid-second"
	h := newHub(t, nil, running("idle"), second)
	h.idle["idle"] = []float64{3600, 3600} // of one of them, and the other is busy
	idle := h.round().Status.IdleWorkloads
	if len(idle) != 2 {
		t.Errorf("%d idle workloads, want 2: %+v", len(idle), idle)
	}
	for _, wl := range idle {
		if wl.State != v1alpha1.IdleProtected || wl.Reason != "another workload has the same owner" {
			t.Errorf("%+v", wl)
		}
	}
	h.requireUntouched("idle")
}

// A workload returns only if another one of the queue or its cohort waits.
func TestWhereOthersWait(t *testing.T) {
	team := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: kueue.CohortSpec{ParentName: "fleet"}}
	for _, tc := range []struct {
		name, cohort string // of the queue research
		queue        *kueue.ClusterQueue
		want         bool
	}{
		{"in the queue", "", clusterQueue("research", ""), true},
		{"in an unrelated queue", "", clusterQueue("other", ""), false},
		{"in the cohort", "fleet", clusterQueue("other", "fleet"), true},
		{"in a cohort below", "fleet", clusterQueue("other", "team"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, nil, running("idle"), team)
			h.replace(clusterQueue("research", tc.cohort))
			if tc.queue.Name != "research" {
				for _, obj := range []client.Object{tc.queue, localQueue("other")} {
					if err := h.Create(t.Context(), obj); err != nil {
						t.Fatal(err)
					}
				}
				h.replace(waiting("waits", func(wl *kueue.Workload) { wl.Spec.QueueName = "other" }))
			}
			h.idle["idle"] = []float64{3600, 3600}
			policy := h.round()
			if active, _ := h.isActive("idle"); active == tc.want {
				t.Errorf("active %t, status %+v", active, policy.Status.IdleWorkloads)
			}
		})
	}
}

// Each workload waits for a moment on its way to admission. It counts as waiting after a period.
func TestMomentaryWaitReclaimsNothing(t *testing.T) {
	h := newHub(t, nil, running("idle"))
	h.replace(waiting("waits", func(wl *kueue.Workload) { wl.CreationTimestamp = metav1.NewTime(noon.Add(time.Second)) }))
	h.idle["idle"] = []float64{3600, 3600}
	if s := h.round().Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleNotNeeded {
		t.Errorf("idle workloads %+v", s)
	}
	h.requireUntouched("idle")
	h.round()
	if active, _ := h.isActive("idle"); active {
		t.Error("not reclaimed a period later")
	}
}

// One workload that waits is a reason for one reclaim at a time, also if several policies have queues
// of a Cohort, and a reclaimed workload that waits is no reason for another one.
func TestOneReclaimAtATime(t *testing.T) {
	second := &v1alpha1.ReclaimPolicy{ObjectMeta: metav1.ObjectMeta{Name: "second", Generation: 1}, Spec: v1alpha1.ReclaimPolicySpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, ClusterQueues: []string{"other"}, Mode: v1alpha1.ModeEnforce}}
	inOther := func(wl *kueue.Workload) {
		wl.Spec.QueueName, wl.Status.Admission.ClusterQueue = "other", "other"
	}
	h := newHub(t, nil, running("a"), running("b"), running("c", inOther), clusterQueue("other", "fleet"), localQueue("other"), second)
	h.replace(clusterQueue("research", "fleet"))
	for _, job := range []string{"a", "b", "c"} {
		h.idle[job] = []float64{3600, 3600}
	}
	h.round()
	if active, record := h.isActive("a"); active || !record.IsReclaimed() {
		t.Fatalf("a: active %t, record %+v", active, record)
	}
	runSecond := func() {
		t.Helper()
		if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "second"}}); err != nil {
			t.Fatal(err)
		}
	}
	runSecond()
	if s := h.round().Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleLimited || s[0].Reason != "the return of team-a/job-a is not complete" {
		t.Errorf("while a returns: %+v", s)
	}
	h.requireUntouched("b", "c")

	// a has lost its quota and is active again. The workload that waited runs.
	_, record := h.isActive("a")
	h.replace(waiting("a", func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Woken().Encode()}
	}))
	h.replace(running("waits", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels = nil }))
	for range 5 {
		runSecond()
		if s := h.round().Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleNotNeeded {
			t.Errorf("while only a waits: %+v", s)
		}
	}
	h.requireUntouched("b", "c")
}

// maxPerHour holds over restarts of the operator: the status is the only state.
func TestRestartKeepsTheLimit(t *testing.T) {
	h := newHub(t, func(s *v1alpha1.ReclaimPolicySpec) { s.MaxPerHour = 1 }, running("a"), running("b"))
	h.idle["a"], h.idle["b"] = []float64{3600, 3600}, []float64{3600, 3600}
	h.round()
	if err := h.Delete(t.Context(), running("a")); err != nil { // its return is complete
		t.Fatal(err)
	}
	h.r = &Reconciler{client: h.Client, recorder: h.recorder, sources: h.r.sources, nominates: true, metrics: newMetrics(nil), now: h.r.now}
	policy := h.round()
	h.requireUntouched("b")
	if s := policy.Status.IdleWorkloads; len(s) != 1 || s[0].State != v1alpha1.IdleLimited || !strings.Contains(s[0].Reason, "maxPerHour") {
		t.Errorf("idle workloads %+v", s)
	}
	h.now = h.now.Add(time.Hour)
	h.round()
	if active, _ := h.isActive("b"); active {
		t.Error("b is not reclaimed an hour later")
	}
}

// Without a workload that agreed, nothing is queried.
func TestNothingToMeasureQueriesNothing(t *testing.T) {
	h := newHub(t, nil, running("other", unlabeled))
	policy := h.round()
	if len(h.queries) > 0 {
		t.Errorf("queries %q", h.queries)
	}
	if got := conditionOf(policy, v1alpha1.ConditionMeasured); !strings.HasPrefix(got, "True NothingToMeasure") {
		t.Errorf("Measured is %s", got)
	}
}

func TestClusterLabelIsExpanded(t *testing.T) {
	h := newHub(t, nil, running("idle"))
	h.round()
	want := []string{
		"time() - min by (site) (cluster:plimsoll_device_sample_timestamp_seconds:min)",
		"min by (site, namespace, owner_kind, owner_name, node, uuid) ((time() - device:plimsoll_idle_since_timestamp_seconds:min)" +
			" and on (site, node, uuid) (max by (site, node, uuid) (device:plimsoll_utilization:ratio) < 0.01)" +
			" and on (site, node) node:plimsoll_sample_timestamp_seconds:trusted)",
	}
	if diff := cmp.Diff(want, h.queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
}

func TestMissingQueueIsReported(t *testing.T) {
	h := newHub(t, func(s *v1alpha1.ReclaimPolicySpec) { s.ClusterQueues = []string{"absent", "research"} }, running("idle"))
	h.idle["idle"] = []float64{3600, 3600}
	policy := h.round()
	if got := conditionOf(policy, v1alpha1.ConditionReady); got != "False QueueNotFound: ClusterQueues that do not exist: absent; the others are considered" {
		t.Errorf("Ready is %s", got)
	}
	if active, _ := h.isActive("idle"); active {
		t.Error("the workload of the other queue is not reclaimed")
	}
}

// A workload that changed since the round read it is not reclaimed, and does not count.
func TestConflictIsNotCounted(t *testing.T) {
	fails := true
	calls := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if _, ok := obj.(*kueue.Workload); ok && fails {
			changed := running("idle")
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), changed); err != nil {
				return err
			}
			changed.Labels = map[string]string{"changed": "true"}
			if err := c.Update(ctx, changed); err != nil {
				return err
			}
		}
		return c.Patch(ctx, obj, patch, opts...)
	}}
	h := newHubWith(t, calls, func(s *v1alpha1.ReclaimPolicySpec) { s.MaxPerHour = 1 }, running("idle"))
	h.idle["idle"] = []float64{3600, 3600}
	policy := h.round()
	if s := policy.Status.IdleWorkloads; len(policy.Status.History) > 0 || len(s) != 1 || s[0].State != v1alpha1.IdleLimited || s[0].Reason != "it changed during the round" {
		t.Errorf("history %+v, idle workloads %+v", policy.Status.History, s)
	}
	h.requireUntouched("idle")
	fails = false
	h.round()
	if active, _ := h.isActive("idle"); active {
		t.Error("not reclaimed in the next round")
	}
}

// A write that the API server refused does not count. One that may have taken place does.
func TestFailedWrites(t *testing.T) {
	workloads := schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}
	for _, tc := range []struct {
		name    string
		err     error
		records int
		state   v1alpha1.IdleState
	}{
		{"forbidden", apierrors.NewForbidden(workloads, "job-idle", errors.New("by a policy")), 0, v1alpha1.IdleLimited},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Workload"}, "job-idle", nil), 0, v1alpha1.IdleLimited},
		{"timeout", apierrors.NewTimeoutError("the server did not respond", 1), 1, v1alpha1.IdleSelected},
		{"connection lost", errors.New("EOF"), 1, v1alpha1.IdleSelected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if _, ok := obj.(*kueue.Workload); ok {
					return tc.err
				}
				return c.Patch(ctx, obj, patch, opts...)
			}}
			h := newHubWith(t, calls, nil, running("idle"))
			h.idle["idle"] = []float64{3600, 3600}
			s := h.round().Status
			if len(s.History) != tc.records || len(s.IdleWorkloads) != 1 || s.IdleWorkloads[0].State != tc.state {
				t.Errorf("history %+v, idle workloads %+v", s.History, s.IdleWorkloads)
			}
			if got := h.events(); !slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "Warning WriteFailed team-a/job-idle") }) {
				t.Errorf("events %q", got)
			}
		})
	}
}

// If the record can't be written, no workload is reclaimed: it would not count for maxPerHour.
func TestNoReclaimWithoutARecord(t *testing.T) {
	calls := interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return errors.New("the API server refuses it")
	}}
	h := newHubWith(t, calls, nil, running("idle"))
	h.idle["idle"] = []float64{3600, 3600}
	if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "idle-gpus"}}); err == nil {
		t.Error("no error, so no retry")
	}
	h.requireUntouched("idle")
}

// A policy that is set to Shadow, or deleted, while its round lasts reclaims nothing.
func TestPolicyChangedDuringARound(t *testing.T) {
	for name, change := range map[string]func(h *hub, ctx context.Context) error{
		"set to Shadow": func(h *hub, ctx context.Context) error {
			policy := h.policy()
			policy.Spec.Mode, policy.Generation = v1alpha1.ModeShadow, 2
			return h.Update(ctx, policy)
		},
		"deleted": func(h *hub, ctx context.Context) error { return client.IgnoreNotFound(h.Delete(ctx, h.policy())) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, nil, running("idle"))
			h.idle["idle"] = []float64{3600, 3600}
			sources, changed := &query.Sources{}, false
			sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "site", Match: "Name"}, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
				if !changed {
					changed = true
					if err := change(h, ctx); err != nil {
						t.Error(err)
					}
				}
				return h.query(ctx, expr, at)
			}))
			h.r.sources = sources
			if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "idle-gpus"}}); err != nil {
				t.Fatal(err)
			}
			h.requireUntouched("idle")
		})
	}
}

func TestMetrics(t *testing.T) {
	h := newHub(t, nil, running("idle"))
	registry := prometheus.NewRegistry()
	h.r.metrics = newMetrics(registry)
	h.idle["idle"] = []float64{3600, 3600}
	h.round()
	want := `
		# HELP plimsoll_reclaim_idle_devices Devices of reclaimable workloads that have been idle for the time of the ReclaimPolicy, in its last round.
		# TYPE plimsoll_reclaim_idle_devices gauge
		plimsoll_reclaim_idle_devices{policy="idle-gpus"} 2
		# HELP plimsoll_reclaim_workloads_total Workloads that a ReclaimPolicy returned to their queues (mode=enforce) or would have returned (mode=shadow), because their devices were idle.
		# TYPE plimsoll_reclaim_workloads_total counter
		plimsoll_reclaim_workloads_total{mode="enforce",policy="idle-gpus"} 1
		plimsoll_reclaim_workloads_total{mode="shadow",policy="idle-gpus"} 0
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if err := h.Delete(t.Context(), h.policy()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "idle-gpus"}}); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series of a deleted policy, %v", n, err)
	}
}
