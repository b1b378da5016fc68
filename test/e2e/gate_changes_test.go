//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

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
	awaitWaiting(ctx, t, "freed", messageNever(16, fleet.L4))
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
	patchGate(ctx, t, `{"requirements":[{"name":"thaw","scope":"Fleet","query":"vector(0)"}]}`, `{"requirements":null}`)
	submit(ctx, t, fleet.Job{Name: "frozen", Model: fleet.H100, GPUs: 1})
	awaitWaiting(ctx, t, "frozen", messageConditionThaw)
	checkStillRuns(ctx, t, "settled", at)
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"requirements":[{"name":"thaw","scope":"Fleet","query":"vector(1)"}]}}`)
	awaitRunning(ctx, t, "frozen")
	checkStillRuns(ctx, t, "settled", at)
}
