//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Kubernetes 1.36 refuses to restore the template of a suspended job that still
// shows an active pod, and nobody tells the hub's job that its copy is gone: the
// quota stays reserved until somebody nominates.
func TestDeactivatedAndActivatedAgain(t *testing.T) {
	ctx := testContext(t, time.Minute)
	submit(ctx, t, fleet.Job{Name: "paused", Model: fleet.H100, GPUs: 1})
	runs(ctx, t, "paused")
	shown(ctx, t, "paused")
	activate(ctx, t, "paused", false)
	sees(ctx, t, "paused", "to be nowhere", func(v fleet.JobView) bool { return len(v.Copies) == 0 && v.Cluster == "" && !v.Admitted })
	activate(ctx, t, "paused", true)
	runs(ctx, t, "paused")
}

// activate the workload of a job, or deactivate it.
func activate(ctx context.Context, t *testing.T, job string, active bool) {
	t.Helper()
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "workload/"+workload(ctx, t, job), "-n", fleet.Namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"active":%t}}`, active)); err != nil {
		t.Fatal(err)
	}
}
