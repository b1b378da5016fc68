package workload

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// newProfileBench has a gate that fits the peak memory of earlier runs. Both clusters have room,
// and only cluster2 has a device with 80 GB.
func newProfileBench(t *testing.T) *bench {
	b := newBench(t, v1alpha1.PlacementGateSpec{Requirements: []v1alpha1.GateRequirement{
		{Name: "memory", Query: `max by (cluster) (memory_bytes) > 1.15 * $profile_memory_peak`, Scope: v1alpha1.ScopeCluster}}})
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
		if !strings.Contains(expr, "memory_bytes") {
			return b.source.Query(ctx, expr, at)
		}
		var result query.Result
		if strings.Contains(expr, "> 1.15 * 60000000000") {
			result.Samples = []query.Sample{{Labels: map[string]string{"cluster": "cluster2"}, Value: 80e9}}
		}
		return result, nil
	}))
	b.lead()
	return b
}

// cached returns a workload as the operator's cache has it.
func cached(wl *kueue.Workload) *kueue.Workload {
	profile.RecordName(wl)
	kueuestate.Trim(wl)
	return wl
}

func TestWorkloadGoesWhereItsProfileFits(t *testing.T) {
	b := newProfileBench(t)
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Spec.PodSets[0].Template.Spec.Containers[0].Command = []string{"train"}
	name := profile.KeyOf(wl).Name
	known := &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Status: v1alpha1.JobProfileStatus{Models: []v1alpha1.ModelProfile{{Model: "NVIDIA-H100", MemoryPeakP90Bytes: new(int64(60e9))}}}}
	if err := b.hub.Create(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	b.create(cached(wl))
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster2"}) {
		t.Errorf("nominated %v, want cluster2 (%s)", got, b.check().Message)
	}
}

// A job that runs for the first time is not held back by a requirement about its earlier runs.
func TestWorkloadWithoutAProfilePasses(t *testing.T) {
	b := newProfileBench(t)
	b.create(cached(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))))
	b.reconcile()
	const want = "cluster1 has room for 9 such pods; the quota of its queue is unknown (QuotaUnknown); requirement memory does not apply: the job has no profile for it yet"
	if got := b.check(); got.State != kueue.CheckStateReady || got.Message != want {
		t.Errorf("check %s: %s", got.State, got.Message)
	}
	e, err := b.Explain(t.Context(), b.key)
	if err != nil || !slices.Equal(e.SkippedRequirements, []string{"memory"}) {
		t.Errorf("skipped requirements %v, %v", e.SkippedRequirements, err)
	}
}
