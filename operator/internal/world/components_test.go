package world

import (
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// lws returns a world with a LeaderWorkerSet of two components of two pods.
func lws(t *testing.T, devices int64, more ...Job) *fixture {
	t.Helper()
	jobs := append([]Job{{Name: "s", Kind: KindSet, Components: 2, Pods: 2, Devices: devices, Duration: 10 * time.Minute}}, more...)
	f := newFixture(t, Spec{Clusters: fleet(2), Jobs: jobs})
	f.run(30 * time.Second)
	return f
}

// The second component follows the first one, and the user deletes the set when it ran for its duration.
func TestComponentsRunTogether(t *testing.T) {
	f := lws(t, 1)
	f.expectPods("cluster1", "job-s-0-1", "job-s-0-2", "job-s-1-1", "job-s-1-2")
	f.expectPods("cluster2")
	for _, name := range []string{"job-s-0", "job-s-1"} {
		if wl := workload(f.kueue, name); wl.Status.ClusterName == nil || *wl.Status.ClusterName != "cluster1" {
			t.Errorf("%s is on %v", name, wl.Status.ClusterName)
		}
	}
	f.run(11 * time.Minute)
	f.expectPods("cluster1")
	for _, r := range f.Runs() {
		if r.Done.IsZero() || r.Deleted {
			t.Errorf("%s: done %v, deleted %v", r.Name, r.Done, r.Deleted)
		}
	}
	if !f.AllOver() || len(f.Problems) > 0 {
		t.Error(f.Problems)
	}
}

// A component is nominated only where the first one is, whatever its check says.
func TestComponentAwaitsTheFirstOne(t *testing.T) {
	f := lws(t, 3, Job{Name: "full", Devices: 8, Duration: 5 * time.Minute}) // 6 devices for each component
	f.expectPods("cluster1", "job-full-1")
	for _, name := range []string{"job-s-0", "job-s-1"} {
		if got, want := workload(f.on("cluster1").kueue, name) != nil, name == "job-s-0"; got != want {
			t.Errorf("copy of %s: %v", name, got)
		}
	}
	f.run(6 * time.Minute)
	f.expectPods("cluster1", "job-s-0-1", "job-s-0-2")
	if workload(f.on("cluster1").kueue, "job-s-1") == nil {
		t.Error("the second component does not wait on the first one's cluster")
	}
}

// MultiKueue deletes the whole set on the workers for a component without quota: the others lose their copies,
// and are evicted. It does so again each time that a cluster has admitted them.
func TestComponentWithoutQuotaEndsTheSet(t *testing.T) {
	f := lws(t, 1)
	f.applyToJob(&Fault{Kind: Deactivated}, f.runOf("s-1"))
	f.run(time.Second)
	f.expectPods("cluster1")
	f.run(20 * time.Second)
	if n := evictions(workload(f.kueue, "job-s-0")); n < 2 {
		t.Errorf("the first component was evicted %d times\n%s", n, f.Log())
	}
}

func evictions(wl *kueue.Workload) (n int32) {
	if wl.Status.SchedulingStats != nil {
		for _, e := range wl.Status.SchedulingStats.Evictions {
			n += e.Count
		}
	}
	return n
}

// The invariant reports components on two clusters.
func TestTogether(t *testing.T) {
	f := lws(t, 1)
	other := f.on("cluster2")
	r := f.runOf("s-1")
	other.addJob(&remoteJob{batchJob: batchJob{spec: r.Job, key: r.Key}, on: other, run: r})
	other.jobFor(r.Key).start(1)
	f.run(2 * checkInterval)
	if !slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Invariant == Together && p.Job == "s" }) {
		t.Errorf("problems are %v", f.Problems)
	}
}

// A user gives up a set that never runs as a whole.
func TestSetIsGivenUp(t *testing.T) {
	f := lws(t, 3) // 12 devices of 8
	f.run(10*time.Minute + setPatience)
	for _, r := range f.Runs() {
		if !r.Deleted {
			t.Errorf("%s is not deleted", r.Name)
		}
	}
	f.expectPods("cluster1")
}

// No random world has a set that no empty cluster takes: its quota would stay reserved for ever.
func TestRandomSetsFit(t *testing.T) {
	for _, seed := range []uint64{1790009000507, 1, 2} {
		s := Random(seed)
		for i := range s.Jobs {
			if j := &s.Jobs[i]; j.Kind == KindSet && !s.fitsEmpty(j) {
				t.Errorf("seed %d: %s of %d components with %d pods fits nowhere", seed, j.Name, j.Components, j.Pods)
			}
		}
	}
}
