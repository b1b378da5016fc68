package world

import (
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// group returns a world with a group of two pods that runs on cluster1.
func group(t *testing.T, spec Spec) *fixture {
	t.Helper()
	spec.Jobs = []Job{{Name: "g", Kind: KindGroup, Pods: 2, Devices: 1, Duration: time.Hour, Grace: 30 * time.Second}}
	f := newFixture(t, spec)
	f.run(20 * time.Second)
	f.expectPods("cluster1", "job-g-1", "job-g-2")
	return f
}

// The pods of a group own its Workload, and each of them is its own owner in metrics.
func TestGroupIsOwnedByItsPods(t *testing.T) {
	f := group(t, Spec{Clusters: fleet(1)})
	if wl := workload(f.kueue, "job-g"); kueuestate.JobOf(wl) != nil || len(wl.OwnerReferences) != 2 {
		t.Errorf("owners are %v", wl.OwnerReferences)
	}
	for _, p := range f.on("cluster1").snapshot().Pods {
		if p.OwnerKind != "" {
			t.Errorf("pod %s is owned by a %s", p.Name, p.OwnerKind)
		}
	}
}

// A group that is evicted keeps its quota on the hub until its last pod has ended.
func TestGroupIsActiveUntilItsLastPodEnds(t *testing.T) {
	f := group(t, Spec{Clusters: fleet(1)})
	f.nominate = nil
	f.applyToJob(&Fault{Kind: Preempted}, f.runOf("g"))
	f.run(25 * time.Second)
	f.expectPods("cluster1")
	if wl := workload(f.kueue, "job-g"); wl.Status.Admission == nil {
		t.Errorf("the quota is gone\n%s", f.Log())
	}
	f.run(15 * time.Second)
	if n := evictions(workload(f.kueue, "job-g")); n != 1 || !f.on("cluster1").bound.isEmpty() {
		t.Errorf("%d evictions, pods %v", n, f.podsOn("cluster1"))
	}
	if wl := workload(f.kueue, "job-g"); kueuestate.IsEvicted(wl) && wl.Status.Admission != nil {
		t.Errorf("the eviction is not complete\n%s", f.Log())
	}
}

// Nothing replaces a pod that was lost with its node, and the user deletes the group.
func TestGroupLosesAPod(t *testing.T) {
	c := Cluster{Name: "cluster1", Pools: []Pool{{Nodes: 2, Devices: 1}}}
	f := group(t, Spec{Clusters: []Cluster{c}})
	f.on("cluster1").loseNodes(1)
	f.run(time.Minute)
	if got := f.podsOn("cluster1"); len(got) != 1 || slices.Contains(got, "job-g-3") {
		t.Errorf("pods are %v", got)
	}
	f.run(groupPatience)
	f.expectPods("cluster1")
	if workload(f.kueue, "job-g") != nil || !f.runOf("g").Deleted {
		t.Error("the group exists")
	}
}
