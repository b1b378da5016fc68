//go:build e2e && long

package e2e

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Kueue may fail for minutes to restore the pod template of a job that it stops
// right after its start ("restore info: field is immutable"), and the workload
// keeps its quota until it tries again: hence a test that takes its time.
func TestDeactivatedAndActivatedAgain(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "paused", Model: fleet.H100, GPUs: 1})
	runs(ctx, t, "paused")
	active := func(value string) {
		t.Helper()
		if _, err := lab.Hub.Kubectl(ctx, "", "patch", "workload/"+workload(ctx, t, "paused"), "-n", fleet.Namespace, "--type=merge", "-p", `{"spec":{"active":`+value+`}}`); err != nil {
			t.Fatal(err)
		}
	}
	active("false")
	sees(ctx, t, "paused", "to be nowhere", func(v fleet.JobView) bool { return len(v.Copies) == 0 && v.Cluster == "" && !v.Admitted })
	active("true")
	runs(ctx, t, "paused")
}
