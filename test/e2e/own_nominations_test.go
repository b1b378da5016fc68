//go:build e2e && long

package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// If a hub has the MutatingAdmissionPolicy of config/nomination, the operator nominates as its own field
// manager, whose list Kueue does not clear. The policy does, when a cluster admits the
// workload and when the workload is evicted.
func TestNominationPolicyClearsOwnNominations(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	startOwnNominations(ctx, t)
	submit(ctx, t, fleet.Job{Name: "own", Model: fleet.H100, GPUs: 1})
	first := awaitRunning(ctx, t, "own")
	settled := func(name string) {
		t.Helper()
		awaitView(ctx, t, name, "to be admitted without nominations", func(v fleet.JobView) bool { return v.Cluster != "" && v.Admitted && len(v.Nominated) == 0 })
	}
	settled("own")
	fields, err := lab.Hub.Kubectl(ctx, "", "get", "workload/"+workloadName(ctx, t, "own"), "-n", fleet.Namespace, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
	if err != nil {
		t.Fatal(err)
	}
	checkContains(t, fields, "plimsoll-gate")
	loseCopy(ctx, t, "own", first)
	awaitRunning(ctx, t, "own")
	settled("own")

	submit(ctx, t, fleet.Job{Name: "own-short", Model: fleet.H100, GPUs: 1, Duration: time.Second})
	awaitFinished(ctx, t, "own-short")
	createPlainQueue(ctx, t)
	submit(ctx, t, fleet.Job{Name: "own-plain", Model: fleet.H100, GPUs: 1, Queue: "plain"})
	awaitRunning(ctx, t, "own-plain")
	settled("own-plain")
}

// startOwnNominations installs the policy, and replaces the operator by one that finds it, until the
// end of the test.
func startOwnNominations(ctx context.Context, t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			if err := lab.Programs().End("operator-own", syscall.SIGTERM); err != nil {
				return err
			}
			if _, err := lab.Hub.Kubectl(ctx, "", "delete", "-k", filepath.Join("..", "..", "config", "nomination")); err != nil {
				return err
			}
			return lab.Programs().Restart(ctx, fleet.Operator)
		})
	})
	if out, err := lab.Hub.Kubectl(ctx, "", "apply", "-k", filepath.Join("..", "..", "config", "nomination")); err != nil || !strings.Contains(out, "plimsoll-nomination") {
		t.Fatal(err, out)
	}
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := lab.StartReplica(ctx, "operator-own", "--leader-elect=false"); err != nil {
		t.Fatal(err)
	}
}
