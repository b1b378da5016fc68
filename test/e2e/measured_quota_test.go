//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// The queue has no GPUs of its own and borrows from the Cohort. A job is admitted once a
// policy measures the fleet, and a cordoned node lowers the quota by its GPUs.
func TestMeasuredQuota(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() { deleteObjects(t, "capacitypolicy/measured", "cohort/measured") })
	queue{name: "measured", hub: 0, worker: 256, checks: []string{"plimsoll", "multikueue"}, cohort: "measured"}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "borrows", Model: fleet.H100, GPUs: 8, Queue: "measured"})
	if err := lab.Hub.Apply(ctx, fleet.MeasuredQuota); err != nil {
		t.Fatal(err)
	}
	awaitRunning(ctx, t, "borrows")
	quota, err := lab.CohortQuota(ctx, "measured")
	if err != nil || quota < 14 {
		t.Fatalf("quota %d, %v", quota, err)
	}
	cordon(ctx, t, "cluster2", "cluster2-gpu2")
	awaitCohortQuota(ctx, t, "measured", quota-6)
	setCordon(ctx, t, "cluster2", "cluster2-gpu2", false)
	awaitCohortQuota(ctx, t, "measured", quota)
}

func awaitCohortQuota(ctx context.Context, t *testing.T, name string, want int) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("quota %d of Cohort %s", want, name), func(ctx context.Context) error {
		got, err := lab.CohortQuota(ctx, name)
		if err == nil && got != want {
			err = fmt.Errorf("quota %d", got)
		}
		return err
	})
}
