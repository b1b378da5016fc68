package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// createSlices stores a slice of an elastic job that was replaced, as change leaves it, and selects
// the slice that replaces it.
func (b *bench) createSlices(change func(old *kueue.Workload)) {
	b.t.Helper()
	old := withMultiKueue(pendingWorkload(noon))
	old.Name, old.UID = "slice-1", "uid-1"
	setCondition(old, kueue.WorkloadFinished, noon)
	change(old)
	b.create(old)
	slice := withMultiKueue(pendingWorkload(noon))
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

// After an eviction no copy of the job is left on a worker, so that the slice goes where room is.
func TestEvictedSliceGoesWhereRoomIs(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(onlyCluster1)
	b.createSlices(func(old *kueue.Workload) { old.Status.NominatedClusterNames = []string{"cluster2"} })
	b.update(func(wl *kueue.Workload) {
		wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}}
	})
	b.reconcile()
	if diff := cmp.Diff([]string{"cluster1"}, b.workload().Status.NominatedClusterNames); diff != "" {
		t.Errorf("nominated (-want +got):\n%s", diff)
	}
}

// The slice that is replaced had its turn. The new one does not wait for others that rank before it.
func TestSliceDoesNotWaitForItsTurn(t *testing.T) {
	o := observationWith(inOrder(noRoom, func(o *observation) {
		o.preceding, o.replacedSliceOn = types.NamespacedName{Namespace: "team-b", Name: "first"}, []string{"cluster2"}
	}))
	if d, clusters, _ := o.decide(); d.State != gate.Ready || len(clusters) != 1 || clusters[0] != "cluster2" {
		t.Errorf("%s %q for %v, want cluster2", d.State, d.Message, clusters)
	}
}
