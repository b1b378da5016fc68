//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// reclaimYAML lets a ClusterQueue of the hub take back the quota that its cohort borrows.
const reclaimYAML = `{"spec":{"preemption":{"reclaimWithinCohort":"Any"}}}`

// Two queues of a cohort have quota for 8 GPUs each, over all clusters. One queue runs a job on each
// of two clusters: the second job borrows the quota of the other queue. As soon as that queue needs
// its quota, Kueue evicts the borrower, which waits for quota and runs at the end.
func TestCohortBorrowsAndReclaimsAcrossClusters(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	checks := []string{"plimsoll", "multikueue"}
	for _, name := range []string{"borrower", "lender"} {
		queue{name: name, hub: 8, worker: 256, checks: checks, cohort: "shared"}.create(ctx, t)
		patch(ctx, t, "clusterqueue/"+name, "merge", reclaimYAML)
	}
	submit(ctx, t, fleet.Job{Name: "own", Model: fleet.H100, GPUs: 8, Queue: "borrower"})
	first := awaitRunning(ctx, t, "own")
	submit(ctx, t, fleet.Job{Name: "borrowed", Model: fleet.H100, GPUs: 8, Queue: "borrower"})
	awaitRunning(ctx, t, "borrowed")
	await(ctx, t, "the queue to borrow 8 GPUs", func(ctx context.Context) error {
		borrowed, err := lab.Hub.Kubectl(ctx, "", "get", "clusterqueue/borrower", "-o",
			`jsonpath={.status.flavorsUsage[0].resources[?(@.name=="nvidia.com/gpu")].borrowed}`)
		if err == nil && borrowed != "8" {
			err = fmt.Errorf("it borrows %q", borrowed)
		}
		return err
	})

	submit(ctx, t, fleet.Job{Name: "owner", Model: fleet.H100, GPUs: 8, Queue: "lender", Duration: 5 * time.Second})
	awaitView(ctx, t, "borrowed", "to be evicted", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
	checkStillRuns(ctx, t, "own", first)
	awaitFinished(ctx, t, "owner")
	awaitRunning(ctx, t, "borrowed")
}
