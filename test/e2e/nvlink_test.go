//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// On cluster3, NVLink connects only 4 of the 8 free H100 GPUs. A job of 8 GPUs with the sample gate
// nvlink waits for the group, as does a job for L4 GPUs, which have no NVLink at all. With the gate
// of the samples, which counts free GPUs, the same jobs run there.
func TestJobGoesWhereItsNVLinkGroupIs(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for _, node := range []string{"cluster1-gpu0", "cluster1-gpu1"} {
		occupy(ctx, t, "cluster1", node, 1)
	}
	connectDevices(ctx, t, "cluster3", "cluster3-gpu0", 4)
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 14)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 8)
	createGatedQueue(ctx, t, fleet.NVLinkQueue)

	submit(ctx, t, fleet.Job{Name: "linked-four", Model: fleet.H100, GPUs: 4, Queue: "nvlink"})
	awaitRunning(ctx, t, "linked-four")
	deleteJob(t, "linked-four")
	submit(ctx, t, fleet.Job{Name: "linked-eight", Model: fleet.H100, GPUs: 8, Queue: "nvlink"})
	awaitWaiting(ctx, t, "linked-eight", messageNoFit(8, fleet.H100, "cluster3", 8))
	submit(ctx, t, fleet.Job{Name: "linked-l4", Model: fleet.L4, GPUs: 2, Queue: "nvlink"})
	awaitWaiting(ctx, t, "linked-l4", messageNoFit(2, fleet.L4, "cluster3", 8))

	submit(ctx, t, fleet.Job{Name: "any-eight", Model: fleet.H100, GPUs: 8})
	if cluster := awaitRunning(ctx, t, "any-eight"); cluster != "cluster3" {
		t.Errorf("the job that needs no NVLink runs on %s, want cluster3", cluster)
	}
	deleteJob(t, "any-eight")
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 8)
	awaitWaiting(ctx, t, "linked-eight", messageNoFit(8, fleet.H100, "cluster3", 8))

	connectDevices(ctx, t, "cluster3", "cluster3-gpu0", 8)
	if cluster := awaitRunning(ctx, t, "linked-eight"); cluster != "cluster3" {
		t.Errorf("the job runs on %s, want cluster3, where NVLink connects 8 free GPUs", cluster)
	}
}

// connectDevices makes NVLink connect only the first n devices of a node, until the end of the test.
// It waits until the metrics show it.
func connectDevices(ctx context.Context, t *testing.T, cluster, node string, n int) {
	t.Helper()
	t.Cleanup(func() { cleanUp(t, func(context.Context) error { return lab.ConnectDevices(node, 8) }) })
	if err := lab.ConnectDevices(node, n); err != nil {
		t.Fatal(err)
	}
	awaitValue(ctx, t, fmt.Sprintf(`node_resource_model:plimsoll_free_group_devices:placeable{cluster=%q,node=%q}`, cluster, node), float64(n))
}
