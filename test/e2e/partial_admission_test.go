//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// submitPartial submits a job with four pods of eight H100 each, of which Kueue may admit one.
func submitPartial(ctx context.Context, t *testing.T, name, queue string) {
	t.Helper()
	job := fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Pods: 4, Queue: queue}.Object()
	job.Annotations["kueue.x-k8s.io/job-min-parallelism"] = "1"
	if err := lab.Hub.Client.Create(ctx, job); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteJob(t, name) })
}

// The copy requests all pods, and Kueue on the worker admits as many as it has quota for. With quota
// for all, a cluster with room for the two pods that the hub has admitted is not enough.
func TestPartialAdmissionOnTheHub(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	queue{name: "partial-hub", hub: 16, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	submitPartial(ctx, t, "part-of-hub", "partial-hub")
	awaitWaiting(ctx, t, "part-of-hub", "no cluster has room for 4 pods of 8 "+fleet.H100.Label+": best is cluster1 with room for 2")
}

// With quota for two pods on each worker, only these need room. Only cluster1 has two nodes with
// eight H100.
func TestPartialAdmissionOnTheWorker(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	queue{name: "partial-worker", hub: 256, worker: 16, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	submitPartial(ctx, t, "part-of-worker", "partial-worker")
	awaitView(ctx, t, "part-of-worker", "to run on cluster1", func(v fleet.JobView) bool { return checkRunsOnce(v) == nil && v.Cluster == "cluster1" })
	await(ctx, t, "two pods to run", func(ctx context.Context) error {
		running, err := runningPods(ctx, "part-of-worker", "cluster1")
		if err == nil && len(running) != 2 {
			err = fmt.Errorf("%d run", len(running))
		}
		return err
	})
}
