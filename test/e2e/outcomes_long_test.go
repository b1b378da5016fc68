//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func TestSmallJobBehindAnUnplaceableBigOneRuns(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	gateSpec(ctx, t, `{"whenUnplaceable":{"mode":"Yield","yieldAfterSeconds":5}}`, `{"whenUnplaceable":{"mode":"Wait"}}`)
	queue{name: "narrow", hub: 16, worker: 256, checks: []string{"plimsoll", "multikueue"}}.make(ctx, t)
	submit(ctx, t, fleet.Job{Name: "big", Model: fleet.H100, GPUs: 16, Queue: "narrow"})
	waits(ctx, t, "big", "no cluster has 16 free NVIDIA-H100-80GB-HBM3 on one node")
	submit(ctx, t, fleet.Job{Name: "small", Model: fleet.H100, GPUs: 2, Queue: "narrow", Duration: 5 * time.Second})
	runs(ctx, t, "small")
	finishes(ctx, t, "small")
	waits(ctx, t, "big", "no cluster has 16 free NVIDIA-H100-80GB-HBM3 on one node")
}

// The worker that the job is nominated to lacks its queue: another one gets it.
func TestWorkerWithoutTheQueueIsNamedAndPassedOver(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	queue{name: "partial", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.make(ctx, t)
	if _, err := lab.Worker("cluster2").Kubectl(ctx, "", "delete", "localqueue/partial", "-n", fleet.Namespace); err != nil {
		t.Fatal(err)
	}
	passedOver(ctx, t, "partial")
}

func TestWorkerWithoutQuotaIsNamedAndPassedOver(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	queue{name: "poor", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.make(ctx, t)
	if err := lab.Worker("cluster2").Apply(ctx, fmt.Sprintf(queueYAML, "poor", 0, "Never", "")); err != nil {
		t.Fatal(err)
	}
	for cluster, quota := range map[string]float64{"cluster1": 256, "cluster2": 0, "cluster3": 256} {
		measures(ctx, t, fmt.Sprintf(`max(cluster_queue:kueue_unreserved_quota:max{cluster=%q,cluster_queue="poor",resource=%q})`, cluster, fleet.GPUResource), quota)
	}
	vacate := onlyCluster2(ctx, t)
	submit(ctx, t, fleet.Job{Name: "poor", Model: fleet.H100, GPUs: 2, Queue: "poor"})
	waits(ctx, t, "poor", "best is cluster2, whose queue has quota for 0")
	vacate()
	if got := runs(ctx, t, "poor"); got == "cluster2" {
		t.Fatal("it runs where its queue can't admit it")
	}
}

// A job loses its quota while Kueue can't reach the worker that holds its copy. That
// copy would win over any later one, so the job goes elsewhere only after a while.
func TestCopyOutOfReachIsWaitedFor(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	release := hold(ctx, t, "gpu", "cluster2")
	vacate := onlyCluster2(ctx, t)
	submit(ctx, t, fleet.Job{Name: "left", Model: fleet.H100, GPUs: 2})
	sees(ctx, t, "left", "to have a copy on cluster2", func(v fleet.JobView) bool { return slices.Equal(v.Copies, []string{"cluster2"}) })

	const apiserver = "cluster2-kube-apiserver"
	if err := lab.Programs().End(apiserver, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	restart := sync.OnceValue(func() error { return lab.Programs().Restart(context.WithoutCancel(ctx), apiserver) })
	t.Cleanup(func() { after(t, func(context.Context) error { return restart() }) })
	awaitCondition(ctx, t, "multikueuecluster/cluster2", "Active", "False")
	activate(ctx, t, "left", false)
	leftIs(ctx, t, "without quota", func(wl *kueue.Workload) bool {
		return !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	})
	vacate()
	activate(ctx, t, "left", true)
	leftIs(ctx, t, "kept waiting for cluster2", func(wl *kueue.Workload) bool {
		if slices.ContainsFunc(wl.Status.NominatedClusterNames, func(c string) bool { return c != "cluster2" }) {
			t.Fatalf("it is nominated to %v, and cluster2 holds a copy", wl.Status.NominatedClusterNames)
		}
		return slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
			return strings.Contains(c.Message, "for its last attempt on cluster2, which Kueue cannot reach")
		})
	})
	if err := restart(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "multikueuecluster/cluster2", "Active", "True")
	release("cluster2")
	runs(ctx, t, "left")
}

// leftIs waits for the workload of the job "left", of which the hub alone can tell.
func leftIs(ctx context.Context, t *testing.T, what string, want func(*kueue.Workload) bool) {
	t.Helper()
	await(ctx, t, "its workload to be "+what, func(ctx context.Context) error {
		wl, err := lab.Workload(ctx, "left")
		if err == nil && !want(wl) {
			err = fmt.Errorf("it is %+v", wl.Status)
		}
		return err
	})
}

// passedOver submits a job that only cluster2 has devices for at first, and that
// cluster2's queue can't admit.
func passedOver(ctx context.Context, t *testing.T, queue string) {
	t.Helper()
	vacate := onlyCluster2(ctx, t)
	submit(ctx, t, fleet.Job{Name: queue, Model: fleet.H100, GPUs: 2, Queue: queue})
	sees(ctx, t, queue, "to be nominated to cluster2", func(v fleet.JobView) bool { return slices.Equal(v.Nominated, []string{"cluster2"}) })
	vacate()
	if got := runs(ctx, t, queue); got == "cluster2" {
		t.Fatal("it runs where its queue can't admit it")
	}
	events, err := lab.Hub.Kubectl(ctx, "", "get", "events", "-n", fleet.Namespace, "-o", "jsonpath={range .items[?(@.regarding.name==\""+workload(ctx, t, queue)+"\")]}{.note}{\"\\n\"}{end}{range .items[*]}{.message}{\"\\n\"}{end}")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, events, "cluster2 has not admitted it")
}

// onlyCluster2 has H100s that are free, until the others are vacated.
func onlyCluster2(ctx context.Context, t *testing.T) (vacate func()) {
	t.Helper()
	others := []string{"cluster1-gpu0", "cluster1-gpu1", "cluster3-gpu0"}
	for _, node := range others {
		occupy(ctx, t, node[:8], node, 8)
	}
	free(ctx, t, "cluster1", fleet.H100, 0)
	free(ctx, t, "cluster3", fleet.H100, 0)
	return func() {
		t.Helper()
		for _, node := range others {
			if err := lab.Vacate(ctx, node[:8], node); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Two operators; the leader dies in a burst, the other takes over.
func TestLeaderDiesInABurst(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			for _, name := range []string{"operator-a", "operator-b"} {
				if err := lab.Programs().End(name, syscall.SIGTERM); err != nil {
					return err
				}
			}
			return lab.Programs().Restart(ctx, fleet.Operator)
		})
	})
	if err := lab.StartReplica(ctx, "operator-a"); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "led", Model: fleet.H100, GPUs: 1})
	led := runs(ctx, t, "led")
	if err := lab.StartReplica(ctx, "operator-b"); err != nil {
		t.Fatal(err)
	}
	const jobs = 8
	for i := range jobs {
		submit(ctx, t, fleet.Job{Name: fmt.Sprintf("leader-%d", i), Model: fleet.H100, GPUs: 2})
		if i == jobs/2 {
			if err := lab.Programs().End("operator-a", syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := map[string]string{}
	for i := range jobs {
		name := fmt.Sprintf("leader-%d", i)
		at[name] = runs(ctx, t, name)
	}
	at["led"] = led
	for name, cluster := range at {
		stillRuns(ctx, t, name, cluster)
	}
}

// With --multikueue-dispatch=off Kueue's incremental dispatcher follows the order
// of our configuration, and the gate still decides when, also of a burst. While Kueue
// has no dispatcher either, the gate says so.
func TestStockDispatcherFollowsOurOrder(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			if err := lab.Programs().End("operator-off", syscall.SIGTERM); err != nil {
				return err
			}
			if err := lab.SetDispatcher(ctx, "plimsoll.dev/dispatcher"); err != nil {
				return err
			}
			return lab.Programs().Restart(ctx, fleet.Operator)
		})
	})
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := lab.StartReplica(ctx, "operator-off", "--leader-elect=false", "--multikueue-dispatch=off"); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "orphan", Model: fleet.H100, GPUs: 1})
	awaitCondition(ctx, t, "placementgate/gpu", "DispatcherMatches", "False", "orphan", "--multikueue-dispatch=nominate", "multiKueue.dispatcherName")
	if err := lab.SetDispatcher(ctx, "kueue.x-k8s.io/multikueue-dispatcher-incremental", "  incrementalDispatcherConfig: {stepSize: 1}"); err != nil {
		t.Fatal(err)
	}
	runs(ctx, t, "orphan")
	gone(t, "orphan")
	for cluster, load := range map[string]float64{"cluster1": 0.99, "cluster2": 0.99, "cluster3": 0} {
		if err := lab.SetLoad(cluster, load); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := lab.SetLoad(cluster, 0); err != nil {
				t.Error(err)
			}
		})
	}
	var order []string
	await(ctx, t, "the configuration's order to begin with cluster3", func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "multikueueconfig", "plimsoll-gpu", "-o", "jsonpath={.spec.clusters[*]}")
		if order = strings.Fields(out); err == nil && (len(order) != 3 || order[0] != "cluster3") {
			err = fmt.Errorf("it is %v", order)
		}
		return err
	})
	submit(ctx, t, fleet.Job{Name: "stock", Model: fleet.H100, GPUs: 1})
	if got := runs(ctx, t, "stock"); got != "cluster3" {
		t.Fatalf("stock runs on %s, want cluster3, the first of %v", got, order)
	}
	submit(ctx, t, fleet.Job{Name: "stock-big", Model: fleet.H100, GPUs: 16})
	waits(ctx, t, "stock-big", "no cluster has 16 free NVIDIA-H100-80GB-HBM3 on one node")

	for node, gpus := range map[string]int{"cluster1-gpu0": 8, "cluster1-gpu1": 8, "cluster2-gpu0": 4, "cluster2-gpu1": 4, "cluster2-gpu2": 6, "cluster2-gpu3": 6} {
		cluster, _, _ := strings.Cut(node, "-")
		occupy(ctx, t, cluster, node, gpus)
	}
	free(ctx, t, "cluster1", fleet.H100, 0)
	free(ctx, t, "cluster2", fleet.H100, 0)
	free(ctx, t, "cluster3", fleet.H100, 7)
	const jobs = 6
	for i := range jobs {
		submit(ctx, t, fleet.Job{Name: fmt.Sprintf("stock-%d", i), Model: fleet.H100, GPUs: 2})
	}
	await(ctx, t, "three of the burst to run and the others to wait at the gate", func(ctx context.Context) error {
		run, wait := 0, 0
		for i := range jobs {
			v, err := lab.View(ctx, fmt.Sprintf("stock-%d", i))
			switch {
			case err != nil:
				return err
			case runsOnce(v) == nil:
				run++
			case v.Gate == "Pending" && len(v.Copies) == 0:
				wait++
			}
		}
		if run != 3 || wait != 3 {
			return fmt.Errorf("%d run and %d wait", run, wait)
		}
		return nil
	})
}

// Credentials by ClusterProfile: the gate makes MultiKueueClusters that name one,
// and Kueue reaches the workers through it.
func TestCredentialsByClusterProfile(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			if err := recreateClusters(ctx, `{"type":"Secret","nameTemplate":"{cluster}-kubeconfig"}`); err != nil {
				return err
			}
			return lab.SetDispatcher(ctx, "plimsoll.dev/dispatcher")
		})
	})
	if err := lab.UseClusterProfiles(ctx); err != nil {
		t.Fatal(err)
	}
	if err := recreateClusters(ctx, `{"type":"ClusterProfile","nameTemplate":null}`); err != nil {
		t.Fatal(err)
	}
	for _, w := range lab.Workers {
		awaitCondition(ctx, t, "multikueuecluster/"+w.Name, "Active", "True")
		ref, err := lab.Hub.Kubectl(ctx, "", "get", "multikueuecluster", w.Name, "-o", "jsonpath={.spec.clusterSource.clusterProfileRef.name}")
		if err != nil || ref != w.Name {
			t.Fatalf("%s is reached by ClusterProfile %q, %v", w.Name, ref, err)
		}
	}
	submit(ctx, t, fleet.Job{Name: "by-profile", Model: fleet.H100, GPUs: 1})
	runs(ctx, t, "by-profile")
}

// recreateClusters with other credentials: the gate makes what is missing.
func recreateClusters(ctx context.Context, credentials string) error {
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "placementgate/gpu", "--type=merge", "-p", `{"spec":{"multiKueue":{"credentials":`+credentials+`}}}`); err != nil {
		return err
	}
	_, err := lab.Hub.Kubectl(ctx, "", "delete", "multikueuecluster", "--all")
	return err
}
