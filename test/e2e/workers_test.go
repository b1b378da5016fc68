//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// configuredClusters returns the clusters of the gate's MultiKueueConfig.
func configuredClusters(ctx context.Context) ([]string, error) {
	out, err := lab.Hub.Kubectl(ctx, "", "get", "multikueueconfig/plimsoll-gpu", "-o", "jsonpath={.spec.clusters[*]}")
	return strings.Fields(out), err
}

func awaitClusterCount(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("the MultiKueueConfig to have %d clusters", want), func(ctx context.Context) error {
		got, err := configuredClusters(ctx)
		if err == nil && len(got) != want {
			err = fmt.Errorf("the clusters are %v", got)
		}
		return err
	})
}

// setTaints replaces the taints of a ManagedCluster.
func setTaints(ctx context.Context, cluster, taints string) error {
	_, err := lab.Hub.Kubectl(ctx, "", "patch", "managedcluster/"+cluster, "--type=merge", "-p", `{"spec":{"taints":[`+taints+`]}}`)
	return err
}

// A cluster is tainted:
//  1. Its jobs run until they end. New jobs go to other clusters.
//  2. Once it has no jobs, the user can disconnect Kueue from it.
//  3. After the taint is removed, Kueue connects again.
func TestDrainedClusterIsReleasedAfterItsJobs(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	runCommand(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	release := func() string {
		return runCommand(ctx, t, []string{"KUBECONFIG=" + lab.Hub.Kubeconfig}, plugin, "release", "gpu", "--unused")
	}
	submit(ctx, t, fleet.Job{Name: "stays", Model: fleet.H100, GPUs: 1})
	drained := awaitRunning(ctx, t, "stays")
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return setTaints(ctx, drained, "") }) })
	if err := setTaints(ctx, drained, `{"key":"example.com/maintenance","effect":"NoSelect"}`); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "placementgate/gpu", conditionPlacementFound, "True", messageTwoCandidates)
	for i := range 4 {
		name := fmt.Sprintf("drain-%d", i)
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1})
		if got := awaitRunning(ctx, t, name); got == drained {
			t.Fatalf("%s runs on %s, which is drained", name, drained)
		}
	}
	checkStillRuns(ctx, t, "stays", drained)
	awaitClusterCount(ctx, t, 3)
	checkContains(t, release(), outputNothingToRelease)
	checkStillRuns(ctx, t, "stays", drained)

	deleteJob(t, "stays")
	awaitClusterCount(ctx, t, 2)
	awaitCondition(ctx, t, "placementgate/gpu", conditionConfigured, "True", messageStaysConnected(drained))
	checkContains(t, release(), outputReleased(drained))
	if err := setTaints(ctx, drained, ""); err != nil {
		t.Fatal(err)
	}
	awaitClusterCount(ctx, t, 3)
	awaitCondition(ctx, t, "multikueuecluster/"+drained, conditionActive, "True")
}
