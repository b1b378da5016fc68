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

func TestYieldingJobLetsSmallerJobRun(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	patchGate(ctx, t, `{"whenUnplaceable":{"mode":"Yield","yieldAfterSeconds":5}}`, `{"whenUnplaceable":{"mode":"Wait"}}`)
	queue{name: "narrow", hub: 16, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "big", Model: fleet.H100, GPUs: 16, Queue: "narrow"})
	awaitWaiting(ctx, t, "big", messageNever(16, fleet.H100))
	submit(ctx, t, fleet.Job{Name: "small", Model: fleet.H100, GPUs: 2, Queue: "narrow", Duration: 5 * time.Second})
	awaitRunning(ctx, t, "small")
	awaitFinished(ctx, t, "small")
	awaitWaiting(ctx, t, "big", messageNever(16, fleet.H100))
}

// A job that no node could hold gives its quota to others, and runs when there is such a node.
func TestParkedJobReturns(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	patchGate(ctx, t, `{"whenUnplaceable":{"never":{"afterSeconds":5}}}`, `{"whenUnplaceable":{"never":{"afterSeconds":600}}}`)
	queue{name: "parked", hub: 16, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "giant", Model: fleet.H100, GPUs: 16, Queue: "parked"})
	awaitWorkload(ctx, t, "giant", "to return its quota", func(wl *kueue.Workload) bool {
		return wl.Spec.Active != nil && !*wl.Spec.Active && !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	})
	submit(ctx, t, fleet.Job{Name: "beside", Model: fleet.H100, GPUs: 2, Queue: "parked", Duration: 5 * time.Second})
	awaitRunning(ctx, t, "beside")
	awaitFinished(ctx, t, "beside")
	awaitWorkload(ctx, t, "giant", "to stay away", func(wl *kueue.Workload) bool { return !*wl.Spec.Active })
	addNode(ctx, t, "cluster3", fleet.Node{Name: "cluster3-giant", Model: fleet.H100, GPUs: 16})
	if got := awaitRunning(ctx, t, "giant"); got != "cluster3" {
		t.Fatalf("giant runs on %s", got)
	}
}

// The nominated worker has no LocalQueue for the job, so the gate nominates another
// worker, too.
func TestWorkerWithoutQueueIsSkipped(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	queue{name: "partial", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	if _, err := lab.Worker("cluster2").Kubectl(ctx, "", "delete", "localqueue/partial", "-n", fleet.Namespace); err != nil {
		t.Fatal(err)
	}
	checkPassedOver(ctx, t, "partial")
}

// The LocalQueue on the workers points to a ClusterQueue with another name than the hub's. The gate knows its quota from
// kube-state-metrics and Kueue.
func TestQueueOfWorkersHasAnotherName(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for _, w := range lab.Workers {
		if err := w.Apply(ctx, `{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: teamx, namespace: team-a}, spec: {clusterQueue: gpu}}`); err != nil {
			t.Fatal(err)
		}
	}
	onHub := "  admissionChecksStrategy: {admissionChecks: [{name: plimsoll}, {name: multikueue}]}\n"
	if err := lab.Hub.Apply(ctx, fleet.GPUQueue{Name: "teamx"}.Manifest(256, onHub)); err != nil {
		t.Fatal(err)
	}
	awaitValue(ctx, t, `count(kube_localqueue_info{namespace="team-a",localqueue="teamx",cluster_queue="gpu"})`, 3)
	submit(ctx, t, fleet.Job{Name: "of-teamx", Model: fleet.H100, GPUs: 2, Queue: "teamx"})
	awaitRunning(ctx, t, "of-teamx")
}

func TestWorkerWithoutQuotaIsSkipped(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	queue{name: "poor", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	if err := lab.Worker("cluster2").Apply(ctx, fleet.GPUQueue{Name: "poor"}.Manifest(0, "")); err != nil {
		t.Fatal(err)
	}
	for cluster, quota := range map[string]float64{"cluster1": 256, "cluster2": 0, "cluster3": 256} {
		awaitValue(ctx, t, fmt.Sprintf(`max(cluster_queue:kueue_unreserved_quota:max{cluster=%q,cluster_queue="poor",resource=%q})`, cluster, fleet.GPUResource), quota)
	}
	vacate := occupyOtherClusters(ctx, t)
	submit(ctx, t, fleet.Job{Name: "poor", Model: fleet.H100, GPUs: 2, Queue: "poor"})
	awaitWaiting(ctx, t, "poor", messageNoQuota)
	vacate()
	if got := awaitRunning(ctx, t, "poor"); got == "cluster2" {
		t.Fatal("the job runs on cluster2, whose queue has no quota")
	}
}

// A job loses its quota while Kueue cannot reach the worker with its copy. The copy
// may be admitted later, so the gate nominates no other worker for some time.
func TestJobWaitsForUnreachableCopy(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	release := holdQueue(ctx, t, "gpu", "cluster2")
	vacate := occupyOtherClusters(ctx, t)
	submit(ctx, t, fleet.Job{Name: "stranded", Model: fleet.H100, GPUs: 2})
	awaitView(ctx, t, "stranded", "to have a copy on cluster2", func(v fleet.JobView) bool { return slices.Equal(v.Copies, []string{"cluster2"}) })

	const apiserver = "cluster2-kube-apiserver"
	if err := lab.Programs().End(apiserver, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	restart := sync.OnceValue(func() error { return lab.Programs().Restart(context.WithoutCancel(ctx), apiserver) })
	t.Cleanup(func() { cleanUp(t, func(context.Context) error { return restart() }) })
	awaitCondition(ctx, t, "multikueuecluster/cluster2", conditionActive, "False")
	activate(ctx, t, "stranded", false)
	awaitWorkload(ctx, t, "stranded", "to lose its quota", func(wl *kueue.Workload) bool {
		return !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	})
	vacate()
	activate(ctx, t, "stranded", true)
	awaitWorkload(ctx, t, "stranded", "to wait for cluster2", func(wl *kueue.Workload) bool {
		if slices.ContainsFunc(wl.Status.NominatedClusterNames, func(c string) bool { return c != "cluster2" }) {
			t.Fatalf("the nominated clusters are %v, although cluster2 has a copy", wl.Status.NominatedClusterNames)
		}
		return slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
			return strings.Contains(c.Message, messageUnreachable)
		})
	})
	if err := restart(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "multikueuecluster/cluster2", conditionActive, "True")
	release("cluster2")
	awaitRunning(ctx, t, "stranded")
}

// awaitWorkload waits until want returns true for the job's Workload on the hub.
// Unlike awaitView it does not need the workers' API servers.
func awaitWorkload(ctx context.Context, t *testing.T, job, what string, want func(*kueue.Workload) bool) {
	t.Helper()
	await(ctx, t, "the workload of "+job+" "+what, func(ctx context.Context) error {
		wl, err := lab.Workload(ctx, job)
		switch {
		case err != nil:
			return err
		case wl == nil:
			return fmt.Errorf("%s has no workload", job)
		case !want(wl):
			return fmt.Errorf("its status is %+v", wl.Status)
		}
		return nil
	})
}

// checkPassedOver submits a job while only cluster2 has free GPUs, but cannot admit
// the job. It checks that the gate reports this and another cluster runs the job.
func checkPassedOver(ctx context.Context, t *testing.T, queue string) {
	t.Helper()
	vacate := occupyOtherClusters(ctx, t)
	submit(ctx, t, fleet.Job{Name: queue, Model: fleet.H100, GPUs: 2, Queue: queue})
	awaitView(ctx, t, queue, "to be nominated to cluster2", func(v fleet.JobView) bool { return slices.Equal(v.Nominated, []string{"cluster2"}) })
	vacate()
	if got := awaitRunning(ctx, t, queue); got == "cluster2" {
		t.Fatal("the job runs on cluster2, which has no queue for it")
	}
	events, err := lab.Hub.Kubectl(ctx, "", "get", "events", "-n", fleet.Namespace, "-o", "jsonpath={range .items[?(@.regarding.name==\""+workloadName(ctx, t, queue)+"\")]}{.note}{\"\\n\"}{end}{range .items[*]}{.message}{\"\\n\"}{end}")
	if err != nil {
		t.Fatal(err)
	}
	checkContains(t, events, eventNotYetAdmitted)
}

// occupyOtherClusters occupies all H100 GPUs of cluster1 and cluster3. vacate frees
// them.
func occupyOtherClusters(ctx context.Context, t *testing.T) (vacate func()) {
	t.Helper()
	nodes := []string{"cluster1-gpu0", "cluster1-gpu1", "cluster3-gpu0"}
	for _, node := range nodes {
		occupy(ctx, t, node[:8], node, 8)
	}
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 0)
	return func() {
		t.Helper()
		for _, node := range nodes {
			if err := lab.Vacate(ctx, node[:8], node); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Of two operators, the leader is killed during a burst. The other one takes over.
func TestLeaderIsKilledDuringBurst(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
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
	led := awaitRunning(ctx, t, "led")
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
		at[name] = awaitRunning(ctx, t, name)
	}
	at["led"] = led
	for name, cluster := range at {
		checkStillRuns(ctx, t, name, cluster)
	}
}

// With --multikueue-dispatch=off:
//  1. If Kueue has no dispatcher either, the gate reports it.
//  2. Kueue's incremental dispatcher follows the order of the gate's MultiKueueConfig.
//  3. The gate still decides when a job may start, also in a burst.
func TestIncrementalDispatcherFollowsGateOrder(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			if err := lab.Programs().End("operator-off", syscall.SIGTERM); err != nil {
				return err
			}
			if err := lab.SetDispatcher(ctx, fleet.OperatorDispatcher); err != nil {
				return err
			}
			return lab.Programs().Restart(ctx, fleet.Operator)
		})
	})
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := lab.StartReplica(ctx, "operator-off", "--leader-elect=false", "--multikueue-dispatch=off", "--log-level=DEBUG", "--log-format=json"); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "orphan", Model: fleet.H100, GPUs: 1})
	awaitCondition(ctx, t, "placementgate/gpu", conditionDispatcherMatches, "False", "orphan", messageDispatchingFlag, messageDispatcherName)
	if err := lab.SetDispatcher(ctx, "kueue.x-k8s.io/multikueue-dispatcher-incremental", "  incrementalDispatcherConfig: {stepSize: 1}"); err != nil {
		t.Fatal(err)
	}
	awaitRunning(ctx, t, "orphan")
	deleteJob(t, "orphan")
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
	await(ctx, t, "cluster3 to be first in the MultiKueueConfig", func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "multikueueconfig", "plimsoll-gpu", "-o", "jsonpath={.spec.clusters[*]}")
		if order = strings.Fields(out); err == nil && (len(order) != 3 || order[0] != "cluster3") {
			err = fmt.Errorf("the order is %v", order)
		}
		return err
	})
	submit(ctx, t, fleet.Job{Name: "incremental", Model: fleet.H100, GPUs: 1})
	if got := awaitRunning(ctx, t, "incremental"); got != "cluster3" {
		t.Fatalf("incremental runs on %s, want cluster3, the first of %v", got, order)
	}
	submit(ctx, t, fleet.Job{Name: "incremental-big", Model: fleet.H100, GPUs: 16})
	awaitWaiting(ctx, t, "incremental-big", messageNever(16, fleet.H100))

	for node, gpus := range map[string]int{"cluster1-gpu0": 8, "cluster1-gpu1": 8, "cluster2-gpu0": 4, "cluster2-gpu1": 4, "cluster2-gpu2": 6, "cluster2-gpu3": 6} {
		cluster, _, _ := strings.Cut(node, "-")
		occupy(ctx, t, cluster, node, gpus)
	}
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster2", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 7)
	const jobs = 6
	for i := range jobs {
		submit(ctx, t, fleet.Job{Name: fmt.Sprintf("incremental-%d", i), Model: fleet.H100, GPUs: 2})
	}
	await(ctx, t, "three jobs of the burst to run and three to wait", func(ctx context.Context) error {
		running, waiting := 0, 0
		for i := range jobs {
			v, err := lab.View(ctx, fmt.Sprintf("incremental-%d", i))
			switch {
			case err != nil:
				return err
			case checkRunsOnce(v) == nil:
				running++
			case v.CheckState == "Pending" && len(v.Copies) == 0:
				waiting++
			}
		}
		if running != 3 || waiting != 3 {
			return fmt.Errorf("%d run and %d wait", running, waiting)
		}
		return nil
	})
}

// The gate creates MultiKueueClusters that reference ClusterProfiles, and Kueue
// connects to the workers with their credentials.
func TestClusterProfileCredentials(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			if err := recreateMultiKueueClusters(ctx, `{"type":"Secret","nameTemplate":"{cluster}-kubeconfig"}`); err != nil {
				return err
			}
			return lab.SetDispatcher(ctx, fleet.OperatorDispatcher)
		})
	})
	if err := lab.UseClusterProfiles(ctx); err != nil {
		t.Fatal(err)
	}
	if err := recreateMultiKueueClusters(ctx, `{"type":"ClusterProfile","nameTemplate":null}`); err != nil {
		t.Fatal(err)
	}
	for _, w := range lab.Workers {
		awaitCondition(ctx, t, "multikueuecluster/"+w.Name, conditionActive, "True")
		ref, err := lab.Hub.Kubectl(ctx, "", "get", "multikueuecluster", w.Name, "-o", "jsonpath={.spec.clusterSource.clusterProfileRef.name}")
		if err != nil || ref != w.Name {
			t.Fatalf("%s references the ClusterProfile %q, %v", w.Name, ref, err)
		}
	}
	submit(ctx, t, fleet.Job{Name: "by-profile", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "by-profile")
}

// recreateMultiKueueClusters sets the gate's credentials and deletes all
// MultiKueueClusters. The gate creates them again.
func recreateMultiKueueClusters(ctx context.Context, credentials string) error {
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "placementgate/gpu", "--type=merge", "-p", `{"spec":{"multiKueue":{"credentials":`+credentials+`}}}`); err != nil {
		return err
	}
	_, err := lab.Hub.Kubectl(ctx, "", "delete", "multikueuecluster", "--all")
	return err
}

func TestStaleSamplesApplyOnStale(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "before", Model: fleet.H100, GPUs: 1})
	before := awaitRunning(ctx, t, "before")
	if err := lab.Programs().End("thanos-query", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			err := lab.Programs().Restart(ctx, "thanos-query")
			awaitCondition(ctx, t, "scoringpolicy/fleet", conditionReady, "True")
			return err
		})
	})
	submit(ctx, t, fleet.Job{Name: "in-time", Model: fleet.H100, GPUs: 1})
	inTime := awaitRunning(ctx, t, "in-time")

	awaitStaleSamples(ctx, t)
	submit(ctx, t, fleet.Job{Name: "late", Model: fleet.H100, GPUs: 1})
	awaitWaiting(ctx, t, "late", messageStaleSamples)
	patchGate(ctx, t, `{"freshness":{"onStale":"Open"}}`, `{"freshness":{"onStale":"Closed"}}`)
	awaitRunning(ctx, t, "late")
	checkStillRuns(ctx, t, "before", before)
	checkStillRuns(ctx, t, "in-time", inTime)
}

// awaitStaleSamples submits jobs, one at a time, until the check of a job stays
// Pending.
func awaitStaleSamples(ctx context.Context, t *testing.T) {
	t.Helper()
	n := 0
	await(ctx, t, "the samples to become stale", func(ctx context.Context) error {
		n++
		name := fmt.Sprintf("probe-%d", n)
		if err := lab.Submit(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1}); err != nil {
			return err
		}
		v := awaitView(ctx, t, name, "to be decided", func(v fleet.JobView) bool { return v.Cluster != "" || v.CheckMessage != "" })
		deleteJob(t, name)
		if v.CheckState != "Pending" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
}

// A worker admits the copy while Kueue on the hub is stopped, and a user replaces
// the nomination. Kueue cannot record an admission without a nomination, so the gate
// must nominate the worker again.
func TestRevokedNominationOfAdmittedCopyIsRestored(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	release := holdQueue(ctx, t, "gpu", "cluster1", "cluster2", "cluster3")
	submit(ctx, t, fleet.Job{Name: "revoked", Model: fleet.H100, GPUs: 1})
	v := awaitView(ctx, t, "revoked", "to have a copy", func(v fleet.JobView) bool { return len(v.Copies) == 1 })
	cluster := v.Nominated[0]
	wl := workloadName(ctx, t, "revoked")

	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			setWebhookPolicy(ctx, t, "Fail")
			return lab.Programs().Signal("hub-kueue", syscall.SIGCONT)
		})
	})
	setWebhookPolicy(ctx, t, "Ignore")
	if err := lab.Programs().Signal("hub-kueue", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	release(cluster)
	await(ctx, t, cluster+" to admit", func(ctx context.Context) error {
		out, err := lab.Worker(cluster).Kubectl(ctx, "", "get", "workload/"+wl, "-n", fleet.Namespace, "-o", `jsonpath={.status.conditions[?(@.type=="Admitted")].status}`)
		if err == nil && out != "True" {
			err = fmt.Errorf("Admitted is %q", out)
		}
		return err
	})
	other := "cluster1"
	if cluster == other {
		other = "cluster3"
	}
	_, err := lab.Hub.Kubectl(ctx, "", "patch", "workload/"+wl, "-n", fleet.Namespace, "--subresource=status", "--type=merge",
		"--field-manager=kueue-admission", "-p", `{"status":{"nominatedClusterNames":["`+other+`"]}}`)
	if err := lab.Programs().Signal("hub-kueue", syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := awaitRunning(ctx, t, "revoked"); got != cluster {
		t.Errorf("revoked runs on %s, want %s, which had admitted it", got, cluster)
	}
}

// setWebhookPolicy sets the failurePolicy of Kueue's webhooks on the hub. Fail is
// Kueue's own policy. Ignore allows writes while Kueue is stopped.
func setWebhookPolicy(ctx context.Context, t *testing.T, policy string) {
	t.Helper()
	for _, kind := range []string{"validatingwebhookconfiguration/kueue-validating-webhook-configuration", "mutatingwebhookconfiguration/kueue-mutating-webhook-configuration"} {
		names, err := lab.Hub.Kubectl(ctx, "", "get", kind, "-o", "jsonpath={.webhooks[*].name}")
		if err != nil {
			t.Fatal(err)
		}
		timeout := 10
		if policy == "Ignore" {
			timeout = 1
		}
		var patches []string
		for i := range strings.Fields(names) {
			patches = append(patches, fmt.Sprintf(`{"op":"replace","path":"/webhooks/%d/failurePolicy","value":%q},{"op":"add","path":"/webhooks/%d/timeoutSeconds","value":%d}`, i, policy, i, timeout))
		}
		patch(ctx, t, kind, "json", "["+strings.Join(patches, ",")+"]")
	}
}

// Kubernetes 1.36 does not restore the template of a suspended Job with an active
// pod, and MultiKueue does not update the Job on the hub after it deletes the copy.
// The quota stays reserved until the gate nominates a cluster.
func TestDeactivatedJobRunsAfterActivation(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "paused", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "paused")
	awaitPodShown(ctx, t, "paused")
	activate(ctx, t, "paused", false)
	awaitView(ctx, t, "paused", "to have no cluster and no copy", func(v fleet.JobView) bool { return len(v.Copies) == 0 && v.Cluster == "" && !v.Admitted })
	activate(ctx, t, "paused", true)
	awaitRunning(ctx, t, "paused")
}
