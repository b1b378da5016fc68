//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const measuredQuotaYAML = `
apiVersion: plimsoll.dev/v1alpha1
kind: CapacityPolicy
metadata: {name: measured}
spec:
  sourceRef: {name: thanos}
  cohortName: measured
  mode: Apply
  periodSeconds: 10
  raiseAfterRounds: 1
  lowerAfterSeconds: 0
  quotas:
  - flavor: h100
    resource: nvidia.com/gpu
    query: sum by (cluster) (cluster_resource_model:plimsoll_usable_devices:sum{resource="nvidia.com/gpu", model="NVIDIA-H100-80GB-HBM3"})
`

// The queue has no GPUs of its own and borrows from the Cohort. A job is admitted once a
// policy measures the fleet, and a cordoned node lowers the quota by its GPUs.
func TestMeasuredQuota(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() { deleteObjects(t, "capacitypolicy/measured", "cohort/measured") })
	queue{name: "measured", hub: 0, worker: 256, checks: []string{"plimsoll", "multikueue"}, cohort: "measured"}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "borrows", Model: fleet.H100, GPUs: 8, Queue: "measured"})
	if err := lab.Hub.Apply(ctx, measuredQuotaYAML); err != nil {
		t.Fatal(err)
	}
	awaitRunning(ctx, t, "borrows")
	quota, err := cohortQuota(ctx, "measured")
	if err != nil || quota < 14 {
		t.Fatalf("quota %d, %v", quota, err)
	}
	cordon(ctx, t, "cluster2", "cluster2-gpu2")
	awaitCohortQuota(ctx, t, "measured", quota-6)
	setCordon(ctx, t, "cluster2", "cluster2-gpu2", false)
	awaitCohortQuota(ctx, t, "measured", quota)
}

// cohortQuota returns the nominal quota of the first flavor and resource of a Cohort.
func cohortQuota(ctx context.Context, name string) (int, error) {
	text, err := lab.Hub.Kubectl(ctx, "", "get", "cohort", name, "-o", "jsonpath={.spec.resourceGroups[0].flavors[0].resources[0].nominalQuota}")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func awaitCohortQuota(ctx context.Context, t *testing.T, name string, want int) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("quota %d of Cohort %s", want, name), func(ctx context.Context) error {
		got, err := cohortQuota(ctx, name)
		if err == nil && got != want {
			err = fmt.Errorf("quota %d", got)
		}
		return err
	})
}
