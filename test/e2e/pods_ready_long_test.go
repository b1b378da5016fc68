//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const zoneLabel = "example.com/zone"

// Kueue on the worker evicts a job whose pods do not become ready. The job returns to the hub, and
// the gate sends it to a cluster again.
func TestJobWhosePodsAreNotReadyIsDecidedAgain(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error { return lab.SetWorkersConfig(ctx, "") })
	})
	if err := lab.SetWorkersConfig(ctx, "waitForPodsReady: {timeout: 10s, requeuingStrategy: {backoffBaseSeconds: 1}}\n"); err != nil {
		t.Fatal(err)
	}
	job := fleet.Job{Name: "not-ready", Model: fleet.H100, GPUs: 1}.Object()
	job.Spec.Template.Spec.NodeSelector[zoneLabel] = "b"
	if err := lab.Hub.Client.Create(ctx, job); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteJob(t, job.Name) })
	awaitView(ctx, t, job.Name, "to pass the gate, which names the label", func(v fleet.JobView) bool {
		return v.CheckState == "Ready" && strings.Contains(v.CheckMessage, "does not report node label "+zoneLabel+" of its nodes")
	})
	await(ctx, t, "the worker to evict the job", func(ctx context.Context) error {
		wl, err := lab.Workload(ctx, job.Name)
		if err == nil && (wl.Status.SchedulingStats == nil || len(wl.Status.SchedulingStats.Evictions) == 0) {
			err = fmt.Errorf("it was not evicted: %s", describeWorkloads(ctx))
		}
		return err
	})
	labelNodes(ctx, t)
	await(ctx, t, "its pod to run", func(ctx context.Context) error {
		v, err := lab.View(ctx, job.Name)
		if err != nil {
			return err
		}
		if err := checkRunsOnce(v); err != nil {
			return err
		}
		running, err := runningPods(ctx, job.Name, v.Cluster)
		if err == nil && len(running) != 1 {
			err = fmt.Errorf("%d pods run on %s", len(running), v.Cluster)
		}
		return err
	})
}

// labelNodes gives the zone to all nodes until the end of the test.
func labelNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, w := range lab.Workers {
		if _, err := w.Kubectl(ctx, "", "label", "nodes", "--all", zoneLabel+"=b"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cleanUp(t, func(ctx context.Context) error {
				_, err := w.Kubectl(ctx, "", "label", "nodes", "--all", zoneLabel+"-")
				return err
			})
		})
	}
}
