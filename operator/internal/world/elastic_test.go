package world

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// elastic returns a world with an elastic job of one pod that runs on cluster1.
func elastic(t *testing.T, devices int64, more ...Job) *fixture {
	t.Helper()
	jobs := append([]Job{{Name: "e", Elastic: true, Devices: devices, Duration: time.Hour}}, more...)
	f := newFixture(t, Spec{Clusters: fleet(2), Jobs: jobs})
	f.run(30 * time.Second)
	f.expectPods("cluster1", "job-e-1")
	return f
}

func (f *fixture) resizeJob(pods int64) {
	f.Helper()
	f.resize(f.runOf("e"), pods)
	f.run(30 * time.Second)
}

func finishedReason(wl *kueue.Workload) string {
	if wl == nil {
		return "no Workload"
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); c != nil {
		return c.Reason
	}
	return ""
}

// The facts that a lab measured: an elastic job of 1, then 3, then 2 pods stays on its cluster, and its first
// pod runs on.
func TestElasticJobIsResizedWhereItRuns(t *testing.T) {
	f := elastic(t, 1)
	f.resizeJob(3)
	f.expectPods("cluster1", "job-e-1", "job-e-2", "job-e-3")
	if got := finishedReason(workload(f.kueue, "job-e")); got != kueue.WorkloadSliceReplaced {
		t.Errorf("the old slice is finished with %q on the hub", got)
	}
	if got := finishedReason(workload(f.on("cluster1").kueue, "job-e")); got != kueue.WorkloadSliceReplaced {
		t.Errorf("the old slice is finished with %q on the worker", got)
	}
	if wl := workload(f.kueue, "job-e-2"); *wl.Status.ClusterName != "cluster1" || requestOf(wl)[FlavorOf(defaultModel)] != 3 {
		t.Errorf("the new slice is on %v with %v", *wl.Status.ClusterName, requestOf(wl))
	}
	f.resizeJob(2)
	f.expectPods("cluster1", "job-e-1", "job-e-2")
	if workload(f.kueue, "job-e-3") != nil {
		t.Error("a smaller job has a new slice")
	}
	for _, k := range []*kueueControl{f.kueue, f.on("cluster1").kueue} {
		if used := k.workloads.usage()[gateName][FlavorOf(defaultModel)]; used != 2 {
			t.Errorf("%s: %d devices have quota, want 2", k.name, used)
		}
	}
	f.run(time.Hour + 10*time.Minute)
	if r := f.runOf("e"); r.Done.IsZero() || workload(f.kueue, "job-e-2") != nil || workload(f.on("cluster1").kueue, "job-e") != nil {
		t.Errorf("done at %v, slices exist\n%s", r.Done, f.Log())
	}
	if len(f.Problems) > 0 {
		t.Error(f.Problems)
	}
}

// A slice needs quota only for the pods that it has more than the one that it replaces. Without it, the job runs
// on as it is.
func TestSliceWaitsForTheQuotaOfItsNewPods(t *testing.T) {
	f := elastic(t, 4, Job{Name: "other", Devices: 8, At: 20 * time.Second, Duration: 5 * time.Minute})
	f.resizeJob(3) // 12 of 16 devices, 8 of which the other job has
	f.expectPods("cluster1", "job-e-1")
	if wl := workload(f.kueue, "job-e-2"); wl == nil || wl.Status.Admission != nil {
		t.Fatalf("the new slice has quota\n%s", f.Log())
	}
	f.resizeJob(2)
	f.expectPods("cluster1", "job-e-1", "job-e-2")
	if workload(f.kueue, "job-e-3") != nil {
		t.Error("a slice without quota was not changed in place")
	}
}

// A worker without room for the new pods leaves the running ones alone. When the job ends there, so does the
// slice that waited.
func TestSliceWaitsOnItsWorker(t *testing.T) {
	f := elastic(t, 4)
	f.resizeJob(3)
	f.expectPods("cluster1", "job-e-1")
	if wl := workload(f.on("cluster1").kueue, "job-e-2"); wl == nil || wl.Status.Admission != nil {
		t.Fatalf("the copy of the new slice has quota\n%s", f.Log())
	}
}

// MultiKueue leaves the copies of a slice that was replaced before a cluster admitted it.
func TestCopiesOfAReplacedSliceStay(t *testing.T) {
	f := newFixture(t, Spec{Clusters: fleet(2), Jobs: []Job{{Name: "full", Devices: 8, Duration: time.Hour}, {Name: "e", Elastic: true, Devices: 2, At: 20 * time.Second, Duration: time.Hour}}})
	f.run(30 * time.Second)
	f.nominate = []string{"cluster2"}
	f.resizeJob(2)
	f.expectPods("cluster2", "job-e-1", "job-e-2")
	if workload(f.on("cluster1").kueue, "job-e") == nil {
		t.Error("the copy of the replaced slice is gone")
	}
}

// If the running slice is evicted while the next one waits, the next one takes its place.
func TestEvictedSliceEndsOutOfSync(t *testing.T) {
	f := elastic(t, 4, Job{Name: "other", Devices: 8, At: 20 * time.Second, Duration: 5 * time.Minute})
	f.resizeJob(3)
	f.applyToJob(&Fault{Kind: Preempted}, f.runOf("e"))
	f.run(time.Minute)
	if got := finishedReason(workload(f.kueue, "job-e")); got != kueue.WorkloadFinishedReasonOutOfSync {
		t.Errorf("the old slice is finished with %q", got)
	}
	f.expectPods("cluster1", "job-other-1")
	f.nominate = []string{"cluster2"}
	f.resizeJob(1)
	f.expectPods("cluster2", "job-e-1")
}
