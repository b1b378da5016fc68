package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// createSlices stores a slice of an elastic job that was replaced, as change leaves it, and selects
// the slice that replaces it.
func (b *bench) createSlices(change func(old *kueue.Workload)) {
	b.t.Helper()
	old := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	old.Name, old.UID = "slice-1", "uid-1"
	replaced(old, fixture.Noon)
	change(old)
	b.create(old)
	slice := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	slice.Name, slice.UID = "slice-2", "uid-2"
	slice.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-replacement-for": "team-a/slice-1"}
	b.create(slice)
}

// A slice that was replaced before a cluster admitted it keeps the quota of its copy there until the
// new slice arrives: MultiKueue does not remove the copy.
func TestSliceFollowsTheSliceThatItReplaces(t *testing.T) {
	sentTo := func(clusters ...string) func(*kueue.Workload) {
		return func(old *kueue.Workload) { old.Status.NominatedClusterNames = clusters }
	}
	for _, tc := range []struct {
		name string
		old  func(*kueue.Workload)
		room map[string]float64
		want []string
	}{
		{"both clusters have room", sentTo("cluster2"), bothClusters, []string{"cluster2"}},
		{"only another one has room", sentTo("cluster2"), onlyCluster1, []string{"cluster1", "cluster2"}},
		{"no cluster has room", sentTo("cluster2"), map[string]float64{"cluster1": 0, "cluster2": 0}, []string{"cluster2"}},
		{"sent to two clusters without room", sentTo("cluster2", "cluster1"), map[string]float64{"cluster1": 0, "cluster2": 0}, []string{"cluster1", "cluster2"}},
		{"admitted since Kueue looked", func(old *kueue.Workload) { cluster := "cluster2"; old.Status.ClusterName = &cluster },
			map[string]float64{"cluster1": 0, "cluster2": 0}, []string{"cluster2"}},
		{"its cluster is no candidate any more", sentTo("cluster9"), map[string]float64{"cluster1": 0, "cluster2": 0}, nil},
		{"the slice was sent nowhere", sentTo(), map[string]float64{"cluster1": 0, "cluster2": 0}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.room)
			b.createSlices(tc.old)
			b.expectExplained()
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("nominated (-want +got):\n%s\ncheck: %s", diff, checkTexts(b.workload())["plimsoll"])
			}
		})
	}
}

// The message states why a slice goes to a cluster without room.
func TestSliceWithoutRoomStatesWhereItGoes(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	b.createSlices(func(old *kueue.Workload) { old.Status.NominatedClusterNames = []string{"cluster2"} })
	b.reconcile()
	want := "Ready it replaces a slice that was sent to cluster2, where that may take the room: no cluster has 2 free nvidia.com/gpu on one node"
	if got := checkTexts(b.workload())["plimsoll"]; !strings.HasPrefix(got, want) {
		t.Errorf("check %q, want %q", got, want)
	}
}

// MultiKueue removes no copy of a slice that loses its quota while it replaces another one, and none of
// the replaced slice: both may still have the room, whatever evicted the slice. What cluster had
// admitted the slice has ended its copy, which had replaced the other one.
func TestEvictedSliceFollowsItsCopies(t *testing.T) {
	noRoomAtAll := map[string]float64{"cluster1": 0, "cluster2": 0}
	ran := int32(60)
	for _, tc := range []struct {
		name  string
		old   []string // clusters of the replaced slice; nil = it is deleted
		ever  []string // clusters of the slice's earlier attempts
		ran   *int32
		room  map[string]float64
		want  []string
		check string
	}{
		{"the old slice was sent to a cluster without room", []string{"cluster2"}, nil, nil, noRoomAtAll, []string{"cluster2"},
			"it replaces a slice that was sent to cluster2, where that may take the room: "},
		{"so was this slice", []string{"cluster2"}, []string{"cluster2"}, nil, noRoomAtAll, []string{"cluster2"},
			"it or the slice that it replaces was sent to cluster2 earlier, where a copy may take the room: "},
		{"another one has room", []string{"cluster2"}, []string{"cluster2"}, nil, onlyCluster1, []string{"cluster1", "cluster2"}, "cluster1 has room for 9 such pods"},
		{"this slice was sent to another cluster", []string{"cluster2"}, []string{"cluster1"}, nil, noRoomAtAll, []string{"cluster1", "cluster2"},
			"it or the slice that it replaces was sent to cluster1 earlier, where a copy may take the room: "},
		{"the old slice is deleted", nil, []string{"cluster1"}, nil, noRoomAtAll, []string{"cluster1"},
			"it or the slice that it replaces was sent to cluster1 earlier, where a copy may take the room: "},
		{"a cluster had admitted this slice", []string{"cluster2"}, []string{"cluster2"}, &ran, onlyCluster1, []string{"cluster1"}, "cluster1 has room for 9 such pods"},
		{"a cluster had admitted this slice, no room", []string{"cluster2"}, []string{"cluster2"}, &ran, noRoomAtAll, nil, "no cluster has 2 free "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.room)
			b.createSlices(func(old *kueue.Workload) {
				old.Status.NominatedClusterNames = tc.old
				if tc.old == nil {
					old.Name = "another"
				}
			})
			b.update(func(wl *kueue.Workload) {
				wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Deactivated", Count: 1}}}
				wl.Status.AccumulatedPastExecutionTimeSeconds = tc.ran
				if tc.ever != nil {
					record := dispatch.Record{}.Begin(tc.ever, fixture.Noon.Add(-time.Hour), "an earlier attempt", fixture.Noon.Add(-time.Hour))
					wl.Annotations[v1alpha1.DispatchAnnotation] = record.Encode()
				}
			})
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
			if got := checkTexts(b.workload())["plimsoll"]; !strings.Contains(got, tc.check) {
				t.Errorf("check %q, want %q", got, tc.check)
			}
		})
	}
}

// A slice may be sent elsewhere after a cluster has admitted and ended it, and be evicted again. MultiKueue
// leaves the copies of the last attempt, also if the slice waits for quota for long.
func TestEvictedSliceFollowsItsLastAttempt(t *testing.T) {
	for _, isAdmitted := range []bool{false, true} {
		b := newBench(t, v1alpha1.PlacementGateSpec{})
		b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
		b.createSlices(func(old *kueue.Workload) { old.Status.NominatedClusterNames = []string{"cluster2"} })
		ran := int32(60)
		b.update(func(wl *kueue.Workload) { wl.Status.AccumulatedPastExecutionTimeSeconds = &ran })
		h := lifecycle.History{}.WithNominations([]string{"cluster1"})
		if isAdmitted {
			h.Running = &ledger.Entry{Cluster: "cluster1"}
		}
		b.engine.Remember("uid-2", h.WithoutQuota(false, fixture.Noon.Add(-time.Hour)))
		b.reconcile()
		var want []string
		if !isAdmitted {
			want = []string{"cluster1"}
		}
		if diff := cmp.Diff(want, b.workload().Status.NominatedClusterNames, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the last attempt was admitted %t: nominated (-want +got):\n%s", isAdmitted, diff)
		}
	}
}

// A slice that was resized again follows what it replaces, which may have followed another slice before
// it was evicted: eviction clears its nominated clusters.
func TestSliceFollowsAnEvictedSlice(t *testing.T) {
	for _, isSlice := range []bool{true, false} {
		b := newBench(t, v1alpha1.PlacementGateSpec{})
		b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
		b.createSlices(func(old *kueue.Workload) {
			record := dispatch.Record{}.Begin([]string{"cluster2"}, fixture.Noon.Add(-time.Hour), "an earlier attempt", fixture.Noon.Add(-time.Hour))
			old.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Encode()}
			if isSlice {
				old.Annotations["kueue.x-k8s.io/elastic-job"], old.Annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = "true", "team-a/slice-0"
			}
		})
		b.reconcile()
		var want []string
		if isSlice { // otherwise MultiKueue removed its copies
			want = []string{"cluster2"}
		}
		if diff := cmp.Diff(want, b.workload().Status.NominatedClusterNames, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the old slice replaced another one %t: nominated (-want +got):\n%s", isSlice, diff)
		}
	}
}

// The clusters of a record are not those that Kueue's status shows.
func TestForgedSliceIsNotSeen(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithRecord(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), dispatch.Record{Preferences: []dispatch.Preference{{Cluster: "cluster1"}}})
	wl.Annotations["kueue.x-k8s.io/elastic-job"], wl.Annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = "true", wl.Namespace+"/none"
	b.create(wl)
	s, err := b.observe(t.Context(), b.engine.Begin(b.key))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Job.SliceOn) != 1 || len(s.Job.SliceSeenOn) > 0 {
		t.Errorf("on %v, seen on %v", s.Job.SliceOn, s.Job.SliceSeenOn)
	}
}
