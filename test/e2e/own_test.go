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

// With --nominate-as=own the list of clusters is not Kueue's to clear: the policy
// of config/nomination does it, when a cluster admits, on an eviction and after it.
func TestNominationsOfOurOwnAreClearedByThePolicy(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	ownNominations(ctx, t)
	submit(ctx, t, fleet.Job{Name: "own", Model: fleet.H100, GPUs: 1})
	first := runs(ctx, t, "own")
	settled := func(name string) {
		t.Helper()
		sees(ctx, t, name, "to have no nomination left", func(v fleet.JobView) bool { return v.Cluster != "" && v.Admitted && len(v.Nominated) == 0 })
	}
	settled("own")
	fields, err := lab.Hub.Kubectl(ctx, "", "get", "workload/"+workload(ctx, t, "own"), "-n", fleet.Namespace, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, fields, "plimsoll-gate")
	lose(ctx, t, "own", first)
	runs(ctx, t, "own")
	settled("own")

	submit(ctx, t, fleet.Job{Name: "own-short", Model: fleet.H100, GPUs: 1, Duration: time.Second})
	finishes(ctx, t, "own-short")
	plainQueue(ctx, t)
	submit(ctx, t, fleet.Job{Name: "own-plain", Model: fleet.H100, GPUs: 1, Queue: "plain"})
	runs(ctx, t, "own-plain")
	settled("own-plain")
}

// ownNominations by an operator in the place of the fleet's, until the test ends.
func ownNominations(ctx context.Context, t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
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
	if err := lab.StartReplica(ctx, "operator-own", "--leader-elect=false", "--nominate-as=own"); err != nil {
		t.Fatal(err)
	}
}
