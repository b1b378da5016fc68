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

func TestNoCopyWithoutNominationAndNoneLeftAfterAdmission(t *testing.T) {
	ctx := testContext(t, 90*time.Second)
	occupy(ctx, t, "cluster1", "cluster1-gpu0", 1)
	occupy(ctx, t, "cluster1", "cluster1-gpu1", 1)
	occupy(ctx, t, "cluster3", "cluster3-gpu0", 1)
	free(ctx, t, "cluster1", fleet.H100, 14)
	free(ctx, t, "cluster3", fleet.H100, 7)
	release := hold(ctx, t, "gpu", "cluster1", "cluster3")

	submit(ctx, t, fleet.Job{Name: "wide", Model: fleet.H100, GPUs: 8})
	waits(ctx, t, "wide", "no cluster has 8 free NVIDIA-H100-80GB-HBM3 on one node")
	if v, err := lab.View(ctx, "wide"); err != nil || len(v.Nominated)+len(v.Copies) > 0 {
		t.Fatalf("nothing is nominated, and there are copies: %+v, %v", v, err)
	}
	for _, node := range []string{"cluster1-gpu0", "cluster3-gpu0"} {
		cluster, _, _ := strings.Cut(node, "-")
		if err := lab.Vacate(ctx, cluster, node); err != nil {
			t.Fatal(err)
		}
	}
	one := sees(ctx, t, "wide", "to have one copy", func(v fleet.JobView) bool { return len(v.Copies) > 0 })
	if len(one.Nominated) != 1 || !slices.Equal(one.Copies, one.Nominated) {
		t.Fatalf("want one nomination and one copy there: %+v", one)
	}
	both := sees(ctx, t, "wide", "to be widened", func(v fleet.JobView) bool { return len(v.Copies) > 1 })
	if len(both.Nominated) != 2 || both.Nominated[0] != one.Nominated[0] || both.Cluster != "" {
		t.Fatalf("want the second cluster beside the first: %+v", both)
	}
	release(both.Nominated[1])
	if got := runs(ctx, t, "wide"); got != both.Nominated[1] {
		t.Fatalf("wide runs on %s, want %s, whose queue was let go", got, both.Nominated[1])
	}
}

func TestScoreSourceDownHoldsThenAsksOnStale(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	submit(ctx, t, fleet.Job{Name: "before", Model: fleet.H100, GPUs: 1})
	before := runs(ctx, t, "before")
	if err := lab.Programs().End("thanos-query", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			err := lab.Programs().Restart(ctx, "thanos-query")
			awaitCondition(ctx, t, "scoringpolicy/fleet", "Ready", "True")
			return err
		})
	})
	submit(ctx, t, fleet.Job{Name: "held", Model: fleet.H100, GPUs: 1})
	held := runs(ctx, t, "held")

	untilStale(ctx, t)
	submit(ctx, t, fleet.Job{Name: "late", Model: fleet.H100, GPUs: 1})
	waits(ctx, t, "late", "samples")
	gateSpec(ctx, t, `{"freshness":{"onStale":"Open"}}`, `{"freshness":{"onStale":"Closed"}}`)
	runs(ctx, t, "late")
	stillRuns(ctx, t, "before", before)
	stillRuns(ctx, t, "held", held)
}

// untilStale submits one job after the other until one is kept back.
func untilStale(ctx context.Context, t *testing.T) {
	t.Helper()
	n := 0
	await(ctx, t, "the samples to be too old", func(ctx context.Context) error {
		n++
		name := fmt.Sprintf("probe-%d", n)
		if err := lab.Submit(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1}); err != nil {
			return err
		}
		v := sees(ctx, t, name, "to be decided", func(v fleet.JobView) bool { return v.Cluster != "" || v.Message != "" })
		gone(t, name)
		if v.Gate != "Pending" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
}

// somebody deletes the copy of a running job on its worker: Kueue evicts the
// workload, waits for a nomination to complete that, and nobody would make one.
func TestLostCopyIsReplacedWithinSeconds(t *testing.T) {
	ctx := testContext(t, time.Minute)
	submit(ctx, t, fleet.Job{Name: "lost", Model: fleet.H100, GPUs: 1})
	first := runs(ctx, t, "lost")
	began := time.Now()
	lose(ctx, t, "lost", first)
	runs(ctx, t, "lost")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s until the job ran again", took)
	}
}

// somebody revokes the cluster that has admitted before Kueue saw it: the copy
// runs, and Kueue may not record it on a cluster that is not nominated.
func TestRevokedAfterAdmissionIsNominatedAgain(t *testing.T) {
	ctx := testContext(t, time.Minute)
	release := hold(ctx, t, "gpu", "cluster1", "cluster2", "cluster3")
	submit(ctx, t, fleet.Job{Name: "revoked", Model: fleet.H100, GPUs: 1})
	v := sees(ctx, t, "revoked", "to have a copy", func(v fleet.JobView) bool { return len(v.Copies) == 1 })
	cluster := v.Nominated[0]
	wl := workload(ctx, t, "revoked")

	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			webhooks(ctx, t, "Fail")
			return lab.Programs().Signal("hub-kueue", syscall.SIGCONT)
		})
	})
	webhooks(ctx, t, "Ignore")
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
	began := time.Now()
	if got := runs(ctx, t, "revoked"); got != cluster {
		t.Errorf("revoked runs on %s, and %s had admitted it", got, cluster)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s until the hub knew", took)
	}
}

// webhooks of Kueue on the hub: Fail as shipped, or Ignore to let writes pass
// while Kueue stands still.
func webhooks(ctx context.Context, t *testing.T, policy string) {
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

func TestAnotherDispatcherIsReportedOnTheGate(t *testing.T) {
	ctx := testContext(t, 90*time.Second)
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error { return lab.SetDispatcher(ctx, "plimsoll.dev/dispatcher") })
	})
	if err := lab.SetDispatcher(ctx, "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "rival", Model: fleet.H100, GPUs: 1})
	runs(ctx, t, "rival")
	awaitCondition(ctx, t, "placementgate/gpu", "DispatcherMatches", "False", "rival", "multiKueue.dispatcherName", "plimsoll.dev/dispatcher")
}

func TestQueueWithoutGateIsDispatched(t *testing.T) {
	ctx := testContext(t, time.Minute)
	plainQueue(ctx, t)
	submit(ctx, t, fleet.Job{Name: "plain", Model: fleet.H100, GPUs: 1, Queue: "plain"})
	runs(ctx, t, "plain")
}

func TestCheckRemovedFromTheQueueWhileAJobWaits(t *testing.T) {
	ctx := testContext(t, time.Minute)
	submit(ctx, t, fleet.Job{Name: "stays", Model: fleet.H100, GPUs: 1})
	at := runs(ctx, t, "stays")
	submit(ctx, t, fleet.Job{Name: "freed", Model: fleet.L4, GPUs: 16})
	waits(ctx, t, "freed", "no cluster has 16 free NVIDIA-L4 on one node")
	const checks = `{"spec":{"admissionChecksStrategy":{"admissionChecks":[%s{"name":"multikueue"}]}}}`
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "patch", "clusterqueue/gpu", "--type=merge", "-p", fmt.Sprintf(checks, `{"name":"plimsoll"},`))
			return err
		})
	})
	patch(ctx, t, "clusterqueue/gpu", "merge", fmt.Sprintf(checks, ""))
	v := sees(ctx, t, "freed", "to go on without the check", func(v fleet.JobView) bool { return v.Gate == "" && len(v.Copies) > 0 })
	t.Logf("freed: %+v", v)
	stillRuns(ctx, t, "stays", at)
}

func TestCheckDeletedAndMadeAgain(t *testing.T) {
	ctx := testContext(t, time.Minute)
	submit(ctx, t, fleet.Job{Name: "runs-on", Model: fleet.H100, GPUs: 1})
	at := runs(ctx, t, "runs-on")
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
	awaitCondition(ctx, t, "clusterqueue/gpu", "Active", "False")
	stillRuns(ctx, t, "runs-on", at)
	if err := lab.Hub.Apply(ctx, stripServerFields(t, check)); err != nil {
		t.Fatal(err)
	}
	runs(ctx, t, "waits-for-check")
	stillRuns(ctx, t, "runs-on", at)
}

func TestGateChangedWhileAJobWaits(t *testing.T) {
	ctx := testContext(t, time.Minute)
	submit(ctx, t, fleet.Job{Name: "settled", Model: fleet.H100, GPUs: 1})
	at := runs(ctx, t, "settled")
	gateSpec(ctx, t, `{"conditions":[{"name":"thaw","scope":"Fleet","query":"vector(0)"}]}`, `{"conditions":null}`)
	submit(ctx, t, fleet.Job{Name: "frozen", Model: fleet.H100, GPUs: 1})
	waits(ctx, t, "frozen", "waits for condition thaw")
	stillRuns(ctx, t, "settled", at)
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"conditions":[{"name":"thaw","scope":"Fleet","query":"vector(1)"}]}}`)
	runs(ctx, t, "frozen")
	stillRuns(ctx, t, "settled", at)
}

func TestJobFinishesAndItsCopyGoes(t *testing.T) {
	ctx := testContext(t, time.Minute)
	submit(ctx, t, fleet.Job{Name: "short", Model: fleet.H100, GPUs: 1, Duration: time.Second})
	finishes(ctx, t, "short")
}
