package jobprofile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestFinishedRunIsAddedToItsProfile(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.add(finished("a"))
	status, ok := h.profiles("team-a")["llama"]
	if !ok || status.Runs != 1 || status.KeySource != v1alpha1.ProfileFromLabel || len(status.Models) != 1 {
		t.Fatalf("profiles %+v", h.profiles("team-a"))
	}
	m := status.Models[0]
	for name, got := range map[string]struct {
		value       *int64
		exact, most float64
	}{
		"duration":    {m.DurationP50Seconds, 600, 660},
		"memory":      {m.MemoryPeakP90Bytes, 40e9, 42e9},
		"utilization": {m.UtilizationP50Percent, 90, 99},
		"energy":      {m.EnergyP50Joules, 600e3, 750e3},
	} {
		if got.value == nil || float64(*got.value) < got.exact || float64(*got.value) > got.most {
			t.Errorf("%s: %v, want %g to %g", name, got.value, got.exact, got.most)
		}
	}
	if m.Model != "h100" || m.Class != v1alpha1.ClassTraining || m.Bottleneck != v1alpha1.BottleneckCompute {
		t.Errorf("model %+v", m)
	}
	if len(h.queries) != 7 || slices.ContainsFunc(h.times, func(at time.Time) bool { return !at.Equal(noon) }) {
		t.Errorf("%d queries at %v", len(h.queries), h.times)
	}
	if want := `max by (site, model) (max_over_time(owner_model:plimsoll_memory_used_bytes:max{namespace="team-a",owner_kind="Job",owner_name="train",site="site-c1"}[10m]))`; h.queries[0] != want {
		t.Errorf("query %s\nwant  %s", h.queries[0], want)
	}
	// The same run again, as after a restart.
	h.reconcile(finished("a"))
	if got := h.profiles("team-a")["llama"].Runs; got != 1 {
		t.Errorf("%d runs after the second reconciliation", got)
	}
	h.add(finished("b"))
	if got := h.profiles("team-a")["llama"].Runs; got != 2 {
		t.Errorf("%d runs of two workloads", got)
	}
	if got := testutil.ToFloat64(h.r.metrics.runs.WithLabelValues(resultAdded)); got != 2 {
		t.Errorf("%g added runs", got)
	}
}

// Kueue moves the condition Admitted at the second admission, so the time of the whole run is not known.
// A device model that keeps what it wrote at checkpoints would look as fast as its last run is short.
func TestRunAfterAnEvictionHasNoDuration(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.add(finished("a", func(wl *kueue.Workload) { wl.Status.AccumulatedPastExecutionTimeSeconds = new(int32(3300)) }))
	status := h.profiles("team-a")["llama"]
	if status.Runs != 1 || len(status.Models) != 1 {
		t.Fatalf("profile %+v", status)
	}
	m := status.Models[0]
	if m.DurationP50Seconds != nil || m.EnergyP50Joules != nil {
		t.Errorf("duration %v and energy %v of a job that ran for 3300 s before its eviction", m.DurationP50Seconds, m.EnergyP50Joules)
	}
	if m.MemoryPeakP90Bytes == nil || m.UtilizationP50Percent == nil || m.Runs != 1 {
		t.Errorf("the other measurements: %+v", m)
	}
	h.add(finished("b"))
	if m = h.profiles("team-a")["llama"].Models[0]; m.DurationP50Seconds == nil || *m.DurationP50Seconds < 600 || m.EnergyP50Joules == nil || m.Runs != 2 {
		t.Errorf("after a run without an eviction: %+v", m)
	}
}

func TestRunsAreNotAdded(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		result string // counted result; empty = none
	}{
		{"failed", func(wl *kueue.Workload) { wl.Status.Conditions[1].Reason = kueue.WorkloadFinishedReasonFailed }, ""},
		{"not finished", func(wl *kueue.Workload) { wl.Status.Conditions[1].Status = metav1.ConditionFalse }, ""},
		{"no gate", func(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[1:] }, ""},
		{"finished long ago", endsAt(noon.Add(-2 * time.Hour)), ""},
		{"no cluster", func(wl *kueue.Workload) { wl.Status.ClusterName = nil }, resultUnknownRun},
		{"a group of pods", func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "a"}, {Kind: "Pod", Name: "b"}}
		}, resultUnknownRun},
		{"a component", func(wl *kueue.Workload) { wl.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1"} }, resultUnknownRun},
		{"a copy for a trial", func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Labels = map[string]string{v1alpha1.TrialOfLabel: "uid"}
		}, ""},
		{"the last slice of an elastic job", func(wl *kueue.Workload) {
			wl.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-replacement-for": "team-a/old"}
		}, resultUnknownRun},
		{"never admitted", func(wl *kueue.Workload) { wl.Status.Conditions[0].Status = metav1.ConditionFalse }, resultUnknownRun},
		{"ended before it was admitted", func(wl *kueue.Workload) {
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(time.Second))
		}, resultUnknownRun},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, &v1alpha1.GateProfiles{})
			result := h.add(finished("a", tc.change))
			if len(h.profiles("team-a")) != 0 || len(h.queries) != 0 || result.RequeueAfter != 0 {
				t.Errorf("%d profiles, %d queries, %+v", len(h.profiles("team-a")), len(h.queries), result)
			}
			if tc.result != "" && testutil.ToFloat64(h.r.metrics.runs.WithLabelValues(tc.result)) != 1 {
				t.Errorf("not counted as %s", tc.result)
			}
		})
	}
}

// A gate without the section profiles behaves as before: no query, no object.
func TestNothingHappensWithoutTheSection(t *testing.T) {
	h := newHub(t, nil)
	h.add(finished("a"))
	if len(h.profiles("team-a")) != 0 || len(h.queries) != 0 {
		t.Errorf("%d profiles, %d queries", len(h.profiles("team-a")), len(h.queries))
	}
}

// Kueue sets the conditions before the last samples reach the source.
func TestQueriesWaitForTheLastSamples(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.now = noon.Add(5 * time.Second)
	if result := h.add(finished("a")); result.RequeueAfter != 10*time.Second || len(h.queries) != 0 {
		t.Errorf("%+v, %d queries", result, len(h.queries))
	}
	h.now = noon.Add(15 * time.Second)
	h.reconcile(finished("a"))
	if len(h.profiles("team-a")) != 1 {
		t.Error("no profile after the wait")
	}
}

func TestFailedQueriesAreRepeated(t *testing.T) {
	for _, tc := range []struct {
		name    string
		breaks  func(*hub)
		repairs func(*hub)
	}{
		{"the source fails", func(h *hub) { h.failing = errors.New("connection refused") }, func(h *hub) { h.failing = nil }},
		{"stores are missing", func(h *hub) { h.partial = true }, func(h *hub) { h.partial = false }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, &v1alpha1.GateProfiles{})
			tc.breaks(h)
			if result := h.add(finished("a")); result.RequeueAfter != minRetryInterval || len(h.profiles("team-a")) != 0 {
				t.Errorf("%+v, profiles %+v", result, h.profiles("team-a"))
			}
			tc.repairs(h)
			h.reconcile(finished("a"))
			if h.profiles("team-a")["llama"].Runs != 1 {
				t.Errorf("profiles %+v", h.profiles("team-a"))
			}
		})
	}
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.failing, h.now = errors.New("connection refused"), noon.Add(20*time.Minute)
	if result := h.add(finished("a")); result.RequeueAfter != 5*time.Minute {
		t.Errorf("after 20 minutes: %+v, want a quarter of that time", result)
	}
	h = newHub(t, &v1alpha1.GateProfiles{})
	h.failing, h.now = errors.New("connection refused"), noon.Add(maxDelay-time.Second)
	if result := h.add(finished("a")); result.RequeueAfter != 0 || testutil.ToFloat64(h.r.metrics.runs.WithLabelValues(resultQueryFailed)) != 1 {
		t.Errorf("after an hour: %+v", result)
	}
}

func TestRunWithoutSamplesHasNoProfile(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.values = nil
	h.add(finished("a"))
	if len(h.profiles("team-a")) != 0 || testutil.ToFloat64(h.r.metrics.runs.WithLabelValues(resultNoSamples)) != 1 {
		t.Errorf("profiles %+v", h.profiles("team-a"))
	}
}

// Names of jobs, labels and values come from tenants.
func TestHostileInput(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.values["owner_model:plimsoll_memory_used_bytes:max"] = map[string]float64{"h100": math.Inf(1), "": 1, strings.Repeat("x", 300): 1}
	h.values["owner_model:plimsoll_utilization:avg"] = map[string]float64{"h100": math.NaN()}
	h.values["owner_model:plimsoll_tensor_active:avg"] = map[string]float64{"h100": -1}
	h.add(finished("a", func(wl *kueue.Workload) { wl.OwnerReferences[0].Name = `x"} or vector(1) #` }))
	m := h.profiles("team-a")["llama"].Models
	if len(m) != 1 || m[0].MemoryPeakP90Bytes != nil || m[0].UtilizationP50Percent != nil || m[0].TensorActiveP50Percent != nil || m[0].DurationP50Seconds == nil {
		t.Errorf("models %+v", m)
	}
	for _, q := range h.queries {
		if !strings.Contains(q, `owner_name="x\"} or vector(1) #"`) {
			t.Errorf("query %s", q)
		}
	}
	// A variable without a value would match every job.
	h.queries = nil
	h.add(finished("b", func(wl *kueue.Workload) { wl.OwnerReferences[0].Name = "" }))
	if len(h.queries) != 0 {
		t.Errorf("queries about an owner without a name: %v", h.queries)
	}
}

func TestSamplesOfOtherClustersDoNotCount(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	h.add(finished("a", func(wl *kueue.Workload) { wl.Status.ClusterName = new("c2") })) // the samples are from site-c1
	if len(h.profiles("team-a")) != 0 {
		t.Errorf("profiles %+v", h.profiles("team-a"))
	}
}

// The hash distinguishes commands, which the operator's cache does not have.
func TestUnlabeledJobsHaveAProfilePerCommand(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	for _, command := range []string{"train", "evaluate"} {
		h.add(finished(command, withLabel(""), func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Containers[0].Command = []string{command} }))
	}
	if got := h.profiles("team-a"); len(got) != 2 {
		t.Errorf("profiles %v", slices.Sorted(maps.Keys(got)))
	}
}

func TestNamespacesHaveALimitOfProfiles(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{MaxPerNamespace: 2})
	other := finished("other", withLabel("other"))
	other.Namespace = "team-b"
	h.add(other)
	for i, label := range []string{"oldest", "older", "newest"} {
		end := noon.Add(time.Duration(i-2) * time.Minute)
		h.add(finished(label, withLabel(label), endsAt(end)))
	}
	if diff := cmp.Diff([]string{"newest", "older"}, slices.Sorted(maps.Keys(h.profiles("team-a")))); diff != "" {
		t.Error(diff)
	}
	if len(h.profiles("team-b")) != 1 {
		t.Error("the profile of another namespace was deleted")
	}
}

// TestGatesShareTheLimitOfProfiles: a gate with a smaller limit does not delete the profiles of
// jobs of another gate.
func TestGatesShareTheLimitOfProfiles(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{MaxPerNamespace: 1})
	larger := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "larger"}, Spec: v1alpha1.PlacementGateSpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, Profiles: &v1alpha1.GateProfiles{MaxPerNamespace: 2}}}
	without := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "without"}}
	if err := errors.Join(h.Create(t.Context(), larger), h.Create(t.Context(), without)); err != nil {
		t.Fatal(err)
	}
	for i, label := range []string{"oldest", "older", "newest"} {
		h.add(finished(label, withLabel(label), endsAt(noon.Add(time.Duration(i-2)*time.Minute))))
	}
	if diff := cmp.Diff([]string{"newest", "older"}, slices.Sorted(maps.Keys(h.profiles("team-a")))); diff != "" {
		t.Error(diff)
	}
}

func TestErrorOfThePrediction(t *testing.T) {
	h := newHub(t, &v1alpha1.GateProfiles{})
	registry := prometheus.NewRegistry()
	h.r.metrics = newMetrics(registry)
	h.add(finished("a"))
	if diff := cmp.Diff(map[string]string{"duration": "0 runs, error 0.0", "memory_peak": "0 runs, error 0.0", "utilization": "0 runs, error 0.0"}, errorRatios(t, registry)); diff != "" {
		t.Errorf("the first run was not predicted:\n%s", diff)
	}
	h.values["owner_model:plimsoll_utilization:avg"]["h100"] = 0.3
	h.add(finished("b", func(wl *kueue.Workload) {
		wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-20 * time.Minute))
	}))
	if diff := cmp.Diff(map[string]string{"duration": "1 runs, error 0.5", "memory_peak": "1 runs, error 0.0", "utilization": "1 runs, error 2.2"}, errorRatios(t, registry)); diff != "" {
		t.Errorf("a run of twice the duration and a third of the utilization:\n%s", diff)
	}
}

// errorRatios returns the number and the sum of the errors by quantity.
func errorRatios(t *testing.T, registry *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ratios := map[string]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				ratios[m.GetLabel()[0].GetValue()] = fmt.Sprintf("%d runs, error %.1f", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
	return ratios
}

// Another run was added to the profile since it was read.
func TestConflictsAreRepeated(t *testing.T) {
	conflict := true
	h := newHubWith(t, &v1alpha1.GateProfiles{}, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
		if _, ok := obj.(*v1alpha1.JobProfile); ok && conflict {
			return apierrors.NewConflict(schema.GroupResource{Resource: "jobprofiles"}, obj.GetName(), fmt.Errorf("changed"))
		}
		return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
	}})
	if result := h.add(finished("a")); result.RequeueAfter != rereadDelay {
		t.Errorf("%+v", result)
	}
	conflict = false
	h.reconcile(finished("a"))
	if got := h.profiles("team-a")["llama"].Runs; got != 1 {
		t.Errorf("%d runs", got)
	}
}

func TestEventsOfFinishedWorkloads(t *testing.T) {
	running := finished("a", func(wl *kueue.Workload) { wl.Status.Conditions = wl.Status.Conditions[:1] })
	for _, tc := range []struct {
		name      string
		got, want bool
	}{
		{"exists at the start", finishes.Create(event.CreateEvent{Object: finished("a")}), true},
		{"runs at the start", finishes.Create(event.CreateEvent{Object: running}), false},
		{"finishes", finishes.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: finished("a")}), true},
		{"had finished", finishes.Update(event.UpdateEvent{ObjectOld: finished("a"), ObjectNew: finished("a")}), false},
		{"is deleted", finishes.Delete(event.DeleteEvent{Object: finished("a")}), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t", tc.name, tc.got)
		}
	}
}

// The liveness probe restarts the operator if a reconciliation lasts 5 minutes.
func TestMeasurementEndsBeforeTheLivenessProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, &v1alpha1.GateProfiles{})
		h.r.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "site", Match: "Label", Key: "site"}, query.QuerierFunc(func(ctx context.Context, _ string, _ time.Time) (query.Result, error) {
			select {
			case <-ctx.Done():
				return query.Result{}, ctx.Err()
			case <-time.After(299 * time.Second):
				return query.Result{}, nil
			}
		}))
		start := time.Now()
		result := h.add(finished("a"))
		if took := time.Since(start); took != timing.MaxRound || result.RequeueAfter == 0 {
			t.Errorf("the measurement took %v, want %v; next attempt after %v", took, timing.MaxRound, result.RequeueAfter)
		}
	})
}
