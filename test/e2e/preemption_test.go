//go:build e2e

package e2e

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func TestPreemptionOnHub(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	createPriorities(ctx, t)
	queue{name: "hub-prio", hub: 8, worker: 256, checks: []string{"plimsoll", "multikueue"}, preempt: true}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "low", Model: fleet.H100, GPUs: 8, Queue: "hub-prio", Priority: "low"})
	awaitRunning(ctx, t, "low")
	submit(ctx, t, fleet.Job{Name: "high", Model: fleet.H100, GPUs: 8, Queue: "hub-prio", Priority: "high", Duration: 3 * time.Second})
	awaitView(ctx, t, "low", "to be preempted", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
	awaitFinished(ctx, t, "high")
	awaitRunning(ctx, t, "low")
}
