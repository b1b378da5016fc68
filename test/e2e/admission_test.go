//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func TestCopiesFollowNominations(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	occupy(ctx, t, "cluster1", "cluster1-gpu0", 1)
	occupy(ctx, t, "cluster1", "cluster1-gpu1", 1)
	occupy(ctx, t, "cluster3", "cluster3-gpu0", 1)
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 14)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 7)
	release := holdQueue(ctx, t, "gpu", "cluster1", "cluster3")

	submit(ctx, t, fleet.Job{Name: "wide", Model: fleet.H100, GPUs: 8})
	awaitWaiting(ctx, t, "wide", messageNoRoom(8, fleet.H100))
	if v, err := lab.View(ctx, "wide"); err != nil || len(v.Nominated)+len(v.Copies) > 0 {
		t.Fatalf("want no nomination and no copy: %+v, %v", v, err)
	}
	for _, node := range []string{"cluster1-gpu0", "cluster3-gpu0"} {
		cluster, _, _ := strings.Cut(node, "-")
		if err := lab.Vacate(ctx, cluster, node); err != nil {
			t.Fatal(err)
		}
	}
	one := awaitView(ctx, t, "wide", "to have one copy", func(v fleet.JobView) bool { return len(v.Copies) > 0 })
	if len(one.Nominated) != 1 || !slices.Equal(one.Copies, one.Nominated) {
		t.Fatalf("want one nomination, and a copy on that cluster: %+v", one)
	}
	both := awaitView(ctx, t, "wide", "to be widened", func(v fleet.JobView) bool { return len(v.Copies) > 1 })
	if len(both.Nominated) != 2 || both.Nominated[0] != one.Nominated[0] || both.Cluster != "" {
		t.Fatalf("want the second cluster after the first: %+v", both)
	}
	release(both.Nominated[1])
	if got := awaitRunning(ctx, t, "wide"); got != both.Nominated[1] {
		t.Fatalf("wide runs on %s, want %s, whose queue was released", got, both.Nominated[1])
	}
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

// A user deletes the copy of a running job on its worker. Kueue evicts the workload,
// but completes the eviction only after a nomination. The gate must nominate.
func TestLostCopyIsReplaced(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "lost", Model: fleet.H100, GPUs: 1})
	first := awaitRunning(ctx, t, "lost")
	loseCopy(ctx, t, "lost", first)
	awaitRunning(ctx, t, "lost")
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

func TestGateReportsConflictingDispatcher(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error { return lab.SetDispatcher(ctx, fleet.OperatorDispatcher) })
	})
	if err := lab.SetDispatcher(ctx, "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "conflict", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "conflict")
	awaitCondition(ctx, t, "placementgate/gpu", conditionDispatcherMatches, "False", "conflict", messageDispatcherName, fleet.OperatorDispatcher)
}

func TestQueueWithoutGateRunsJobs(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	createPlainQueue(ctx, t)
	submit(ctx, t, fleet.Job{Name: "plain", Model: fleet.H100, GPUs: 1, Queue: "plain"})
	awaitRunning(ctx, t, "plain")
}

func TestCheckRemovedFromQueueReleasesWaitingJob(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "stays", Model: fleet.H100, GPUs: 1})
	at := awaitRunning(ctx, t, "stays")
	submit(ctx, t, fleet.Job{Name: "freed", Model: fleet.L4, GPUs: 16})
	awaitWaiting(ctx, t, "freed", messageNoRoom(16, fleet.L4))
	const checks = `{"spec":{"admissionChecksStrategy":{"admissionChecks":[%s{"name":"multikueue"}]}}}`
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "patch", "clusterqueue/gpu", "--type=merge", "-p", fmt.Sprintf(checks, `{"name":"plimsoll"},`))
			return err
		})
	})
	patch(ctx, t, "clusterqueue/gpu", "merge", fmt.Sprintf(checks, ""))
	v := awaitView(ctx, t, "freed", "to be dispatched without the check", func(v fleet.JobView) bool { return v.CheckState == "" && len(v.Copies) > 0 })
	t.Logf("freed: %+v", v)
	checkStillRuns(ctx, t, "stays", at)
}

func TestRecreatedCheckAdmitsWaitingJob(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "runs-on", Model: fleet.H100, GPUs: 1})
	at := awaitRunning(ctx, t, "runs-on")
	check, err := lab.Hub.Kubectl(ctx, "", "get", "admissioncheck", "plimsoll", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "admissioncheck/plimsoll", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Hub.Kubectl(ctx, "", "delete", "admissioncheck", "plimsoll", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "waits-for-check", Model: fleet.H100, GPUs: 1})
	awaitCondition(ctx, t, "clusterqueue/gpu", conditionActive, "False")
	checkStillRuns(ctx, t, "runs-on", at)
	if err := lab.Hub.Apply(ctx, stripServerFields(t, check)); err != nil {
		t.Fatal(err)
	}
	awaitRunning(ctx, t, "waits-for-check")
	checkStillRuns(ctx, t, "runs-on", at)
}

func TestGateChangeAppliesToWaitingJob(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "settled", Model: fleet.H100, GPUs: 1})
	at := awaitRunning(ctx, t, "settled")
	patchGate(ctx, t, `{"conditions":[{"name":"thaw","scope":"Fleet","query":"vector(0)"}]}`, `{"conditions":null}`)
	submit(ctx, t, fleet.Job{Name: "frozen", Model: fleet.H100, GPUs: 1})
	awaitWaiting(ctx, t, "frozen", messageConditionThaw)
	checkStillRuns(ctx, t, "settled", at)
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"conditions":[{"name":"thaw","scope":"Fleet","query":"vector(1)"}]}}`)
	awaitRunning(ctx, t, "frozen")
	checkStillRuns(ctx, t, "settled", at)
}

func TestFinishedJobHasNoCopy(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "short", Model: fleet.H100, GPUs: 1, Duration: time.Second})
	awaitFinished(ctx, t, "short")
}
