package workload

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// copiedSlice is a slice of an elastic job with MultiKueue. It holds quota, and replaces another slice;
// empty = none.
func copiedSlice(name, replaces string, since time.Time) *kueue.Workload {
	return fixture.WithMultiKueue(localSlice(name, replaces, 1, since))
}

// evict begins an eviction as Kueue does: it clears the cluster and resets the checks, and the quota
// remains until the job has stopped.
func (b *bench) evict() {
	b.t.Helper()
	b.update(func(wl *kueue.Workload) {
		fixture.SetCondition(wl, kueue.WorkloadEvicted, b.now())
		wl.Status.ClusterName, wl.Status.NominatedClusterNames = nil, nil
		for i := range wl.Status.AdmissionChecks {
			wl.Status.AdmissionChecks[i].State = kueue.CheckStatePending
		}
		wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}}
	})
}

// runOn lets a cluster admit the selected slice, which was nominated to it.
func (b *bench) runOn(cluster string) {
	b.t.Helper()
	b.update(func(wl *kueue.Workload) {
		fixture.AdmitBy(wl, cluster)
		fixture.SetCondition(wl, kueue.WorkloadAdmitted, b.now())
	})
	b.reconcile()
}

// A running slice may be evicted while the slice that replaces it waits for quota. Kueue finishes it as
// replaced before its quota is released, and MultiKueue leaves the copy of a replaced slice: the job runs
// on. Sent to another cluster only, it would run twice.
func TestSliceFollowsAnEvictedRunningSlice(t *testing.T) {
	for _, tc := range []struct {
		name string
		// hasReleased: Kueue released the quota of the evicted slice before it was replaced, and
		// MultiKueue has removed the copy.
		hasReleased bool
		// isLate: the old slice is not finished yet when the new one has quota.
		isLate    bool
		isRestart bool
		want      []string
	}{
		{name: "finished with its quota", want: []string{"cluster2", "cluster1"}},
		{name: "the operator has restarted", isRestart: true, want: []string{"cluster2", "cluster1"}},
		{name: "not finished yet", isLate: true, want: []string{"cluster2", "cluster1"}},
		{name: "the quota was released before", hasReleased: true, want: []string{"cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(onlyCluster1)
			b.create(copiedSlice("slice-1", "", fixture.Noon))
			b.reconcile()
			b.runOn("cluster1")
			b.clock.add(time.Minute)
			b.evict()
			b.reconcile()
			if tc.hasReleased {
				b.update(func(wl *kueue.Workload) { releaseQuota(wl, b.now()) })
				b.reconcile()
			}
			if !tc.isLate {
				b.update(func(wl *kueue.Workload) { replaced(wl, b.now()) })
				b.reconcile()
			}
			b.expectFollower("slice-2", "slice-1", tc.isRestart, tc.want)
		})
	}
}

// releaseQuota ends an eviction.
func releaseQuota(wl *kueue.Workload, at time.Time) {
	ran := int32(60)
	wl.Status.Admission, wl.Status.AccumulatedPastExecutionTimeSeconds = nil, &ran
	for i := range wl.Status.Conditions {
		if kind := wl.Status.Conditions[i].Type; kind == kueue.WorkloadQuotaReserved || kind == kueue.WorkloadAdmitted {
			wl.Status.Conditions[i].Status, wl.Status.Conditions[i].LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(at)
		}
	}
}

// expectFollower reserves quota for a slice while only cluster2 has room, and compares where it is
// nominated.
func (b *bench) expectFollower(name, replaces string, isRestart bool, want []string) {
	b.t.Helper()
	if isRestart {
		b.startEngine(b.engine.Registry, b.engine.Ledger)
	}
	b.clock.add(time.Minute)
	b.room(map[string]float64{"cluster1": 0, "cluster2": 9})
	b.create(copiedSlice(name, replaces, b.now()))
	if s := b.look(); !isRestart && len(want) > 1 && !slices.Equal(s.Job.SliceSeenOn, want[1:]) {
		b.t.Errorf("seen on %v, want %v", s.Job.SliceSeenOn, want[1:])
	}
	b.reconcile()
	if diff := cmp.Diff(want, b.workload().Status.NominatedClusterNames, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("nominated (-want +got):\n%s\ncheck: %s", diff, checkTexts(b.workload())["plimsoll"])
	}
}

// A slice to which Kueue gave the cluster of the one before has no record of its own: that of an earlier
// slice names the cluster.
func TestSliceFollowsAnEvictedPinnedSlice(t *testing.T) {
	for _, isRestart := range []bool{false, true} {
		b := newBench(t, v1alpha1.PlacementGateSpec{})
		b.room(onlyCluster1)
		b.create(copiedSlice("slice-1", "", fixture.Noon))
		b.reconcile()
		b.runOn("cluster1")
		b.update(func(wl *kueue.Workload) { replaced(wl, b.now()) })
		b.reconcile()
		b.create(copiedSlice("slice-2", "slice-1", b.now()))
		b.runOn("cluster1")
		b.reconcile()
		b.evict()
		b.reconcile()
		b.update(func(wl *kueue.Workload) { replaced(wl, b.now()) })
		b.reconcile()
		b.expectFollower("slice-3", "slice-2", isRestart, []string{"cluster2", "cluster1"})
	}
}

// A slice that ran replaced the copies of the slices before it. Its own copy has ended when Kueue releases
// its quota.
func TestSliceDoesNotFollowAReleasedSliceThatRan(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(onlyCluster1)
	b.create(copiedSlice("slice-1", "", fixture.Noon))
	b.reconcile()
	b.update(func(wl *kueue.Workload) { replaced(wl, b.now()) })
	b.create(copiedSlice("slice-2", "slice-1", b.now()))
	b.reconcile()
	b.runOn("cluster1")
	b.evict()
	b.update(func(wl *kueue.Workload) { replaced(wl, b.now()); releaseQuota(wl, b.now()) })
	b.reconcile()
	b.expectFollower("slice-3", "slice-2", true, []string{"cluster2"})
}
