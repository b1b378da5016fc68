//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// The credentials of a worker become invalid, so Kueue cannot reach the worker:
//  1. The worker's jobs keep running. New jobs go to other clusters.
//  2. After the credentials are restored, Kueue connects again.
func TestClusterWithInvalidCredentialsKeepsItsJobs(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "cut-off", Model: fleet.H100, GPUs: 1})
	lost := awaitRunning(ctx, t, "cut-off")
	credentials := func(ctx context.Context, kubeconfig string) error {
		_, err := lab.Hub.Kubectl(ctx, "", "patch", "secret/"+lost+"-kubeconfig", "-n", "kueue-system", "--type=merge", "-p", `{"data":{"kubeconfig":"`+kubeconfig+`"}}`)
		return err
	}
	good, err := lab.Hub.Kubectl(ctx, "", "get", "secret/"+lost+"-kubeconfig", "-n", "kueue-system", "-o", "jsonpath={.data.kubeconfig}")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error { return credentials(ctx, good) })
		awaitCondition(context.WithoutCancel(ctx), t, "multikueuecluster/"+lost, conditionActive, "True")
	})
	if err := credentials(ctx, "bm9uZQ=="); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "multikueuecluster/"+lost, conditionActive, "False")
	for i := range 4 {
		name := fmt.Sprintf("reached-%d", i)
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1})
		if got := awaitRunning(ctx, t, name); got == lost {
			t.Fatalf("%s runs on %s, which Kueue cannot reach", name, lost)
		}
	}
	submit(ctx, t, fleet.Job{Name: "unreachable", Model: fleet.H100, GPUs: 16})
	awaitWaiting(ctx, t, "unreachable", messageNotConnected(lost))
	awaitClusterCount(ctx, t, 3)
	checkStillRuns(ctx, t, "cut-off", lost)
	if err := credentials(ctx, good); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "multikueuecluster/"+lost, conditionActive, "True")
	checkStillRuns(ctx, t, "cut-off", lost)
}
