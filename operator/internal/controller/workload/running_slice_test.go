package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// localSlice is a slice of an elastic job without MultiKueue. It holds quota for pods, and replaces
// another slice; empty = none.
func localSlice(name, replaces string, pods int32, since time.Time) *kueue.Workload {
	wl := fixture.PendingWorkload(since)
	wl.Name, wl.UID, wl.CreationTimestamp = name, types.UID(name), metav1.NewTime(since)
	wl.Spec.PodSets[0].Count = pods
	wl.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	if replaces != "" {
		wl.Annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = "team-a/" + replaces
	}
	return wl
}

// replaced makes Kueue finish a slice because another one that replaces it has quota.
func replaced(wl *kueue.Workload, at time.Time) *kueue.Workload {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue,
		Reason: kueue.WorkloadSliceReplaced, LastTransitionTime: metav1.NewTime(at)})
	return wl
}

// ownedBy makes a job the controller of a slice.
func ownedBy(wl *kueue.Workload, uid types.UID) *kueue.Workload {
	isController := true
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: uid, Controller: &isController}}
	return wl
}

// runningSlice is a slice that was admitted on cluster1 ten minutes ago.
func runningSlice(name string) *kueue.Workload {
	wl := fixture.ReadyFor(localSlice(name, "", 4, fixture.Noon.Add(-10*time.Minute)), "cluster1", fixture.Noon.Add(-10*time.Minute))
	fixture.SetCondition(wl, kueue.WorkloadAdmitted, fixture.Noon.Add(-10*time.Minute))
	return wl
}

// Without MultiKueue, Kueue finishes a running slice as soon as the slice that replaces it has quota, and
// the job keeps running. Its pods take the room that the gate would wait for: 4 of the 6 pods run.
func TestNewSliceOfARunningJobIsLetThrough(t *testing.T) {
	evictedOnce := &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}}
	for _, tc := range []struct {
		name   string
		old    []*kueue.Workload
		change func(*kueue.Workload)
		want   string
	}{
		{"the old slice is replaced", []*kueue.Workload{replaced(runningSlice("slice-1"), fixture.Noon)}, nil, "cluster1"},
		{"Kueue has yet to finish the old slice", []*kueue.Workload{runningSlice("slice-1")}, nil, "cluster1"},
		{"resized twice before the gate saw it", []*kueue.Workload{replaced(runningSlice("slice-0"), fixture.Noon), replaced(localSlice("slice-1", "slice-0", 5, fixture.Noon), fixture.Noon)}, nil, "cluster1"},
		{"the old slice was never admitted", []*kueue.Workload{replaced(localSlice("slice-1", "", 4, fixture.Noon), fixture.Noon)}, nil, ""},
		{"the old slice does not exist", nil, nil, ""},
		{"the new slice was evicted", []*kueue.Workload{replaced(runningSlice("slice-1"), fixture.Noon)}, func(wl *kueue.Workload) { wl.Status.SchedulingStats = evictedOnce }, ""},
		{"a slice between was evicted", []*kueue.Workload{replaced(runningSlice("slice-0"), fixture.Noon), func() *kueue.Workload {
			wl := replaced(localSlice("slice-1", "slice-0", 5, fixture.Noon), fixture.Noon)
			wl.Status.SchedulingStats = evictedOnce
			return wl
		}()}, nil, ""},
		{"the old slice was evicted", []*kueue.Workload{func() *kueue.Workload {
			wl := replaced(runningSlice("slice-1"), fixture.Noon)
			fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon)
			return wl
		}()}, nil, ""},
		{"Kueue has finished the old slice for another reason", []*kueue.Workload{func() *kueue.Workload {
			wl := runningSlice("slice-1")
			fixture.SetCondition(wl, kueue.WorkloadFinished, fixture.Noon)
			return wl
		}()}, nil, ""},
		{"replaced before the new slice existed", []*kueue.Workload{replaced(runningSlice("slice-1"), fixture.Noon.Add(-2*time.Minute))}, nil, ""},
		{"of another job", []*kueue.Workload{replaced(ownedBy(runningSlice("slice-1"), "job-1"), fixture.Noon)}, func(wl *kueue.Workload) { ownedBy(wl, "job-2") }, ""},
		{"of a job, and the new slice of none", []*kueue.Workload{replaced(ownedBy(runningSlice("slice-1"), "job-1"), fixture.Noon)}, nil, ""},
		{"of one job", []*kueue.Workload{replaced(ownedBy(runningSlice("slice-1"), "job-1"), fixture.Noon)}, func(wl *kueue.Workload) { ownedBy(wl, "job-1") }, "cluster1"},
		{"the slices replace each other", []*kueue.Workload{replaced(localSlice("slice-1", "slice-2", 4, fixture.Noon), fixture.Noon)}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
			for _, old := range tc.old {
				b.create(old)
			}
			b.create(localSlice("slice-2", "slice-1", 6, fixture.Noon))
			if tc.change != nil {
				b.update(tc.change)
			}
			b.reconcile()
			check := b.check()
			if want := map[bool]kueue.CheckState{true: kueue.CheckStateReady, false: kueue.CheckStatePending}[tc.want != ""]; check.State != want {
				t.Fatalf("check %s %q, want %s", check.State, check.Message, want)
			}
			if tc.want == "" {
				return
			}
			if want := "it replaces Workload slice-"; len(check.Message) < len(want) || check.Message[:len(want)] != want {
				t.Errorf("message %q", check.Message)
			}
			want := []kueue.PodSetUpdate{{Name: "main", Annotations: map[string]string{v1alpha1.ClusterAnnotation: tc.want}}}
			if diff := cmp.Diff(want, check.PodSetUpdates); diff != "" {
				t.Errorf("podSetUpdates (-want +got):\n%s", diff)
			}
		})
	}
}

// A running job that was resized holds no cluster and is never given up: both would be for pods of its own.
func TestResizedJobNeitherHoldsNorGivesUp(t *testing.T) {
	giveUp := int32(400)
	b := newBench(t, v1alpha1.PlacementGateSpec{Hold: v1alpha1.GateHold{Mode: v1alpha1.HoldEnforce},
		WhenUnplaceable: v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &giveUp}})
	b.source.empty = map[string]float64{"cluster1": 8, "cluster2": 0}
	b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
	b.create(replaced(runningSlice("slice-1"), fixture.Noon))
	b.create(localSlice("slice-2", "slice-1", 6, fixture.Noon))
	for range 3 {
		b.reconcile()
		b.expectHolds()
		b.clock.add(301 * time.Second)
	}
	if check := b.check(); check.State != kueue.CheckStateReady {
		t.Errorf("check %s %q, want Ready", check.State, check.Message)
	}
}

// The cluster of a resized job stays known: the ledger has its pods there before and after Kueue admits
// the new slice, and the slice after it finds the cluster.
func TestResizedJobStaysInTheLedger(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
	b.create(replaced(runningSlice("slice-1"), fixture.Noon))
	b.create(localSlice("slice-2", "slice-1", 6, fixture.Noon))
	b.reconcile()
	expect := func(when string, devices map[string]int64) {
		t.Helper()
		if diff := cmp.Diff(devices, b.engine.Ledger.DevicesByCluster()); diff != "" {
			t.Errorf("%s: devices (-want +got):\n%s", when, diff)
		}
	}
	expect("before the admission", map[string]int64{"cluster1": 12})
	b.update(func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadAdmitted, b.now()) })
	b.reconcile()
	expect("after the admission", map[string]int64{"cluster1": 12})
	if running := b.engine.History("slice-2").Running; running == nil || running.Cluster != "cluster1" {
		t.Errorf("running %v, want cluster1", running)
	}
	b.update(func(wl *kueue.Workload) { replaced(wl, b.now()) })
	b.reconcile()
	b.create(localSlice("slice-3", "slice-2", 8, b.now()))
	b.reconcile()
	expect("resized again", map[string]int64{"cluster1": 16})
}
