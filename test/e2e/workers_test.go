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

// members of the gate's MultiKueueConfig.
func members(ctx context.Context) ([]string, error) {
	out, err := lab.Hub.Kubectl(ctx, "", "get", "multikueueconfig/plimsoll-gpu", "-o", "jsonpath={.spec.clusters[*]}")
	return strings.Fields(out), err
}

func awaitMembers(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("the configuration to hold %d clusters", want), func(ctx context.Context) error {
		got, err := members(ctx)
		if err == nil && len(got) != want {
			err = fmt.Errorf("it holds %v", got)
		}
		return err
	})
}

// taint a ManagedCluster; empty = untaint.
func taint(ctx context.Context, cluster, taints string) error {
	_, err := lab.Hub.Kubectl(ctx, "", "patch", "managedcluster/"+cluster, "--type=merge", "-p", `{"spec":{"taints":[`+taints+`]}}`)
	return err
}

// A cluster is drained: what runs there runs to its end, nothing new comes. Then Kueue
// may be disconnected from it, and connects again when the cluster comes back.
func TestDrainedClusterKeepsItsJobsAndLeaves(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	command(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	release := func() string {
		return command(ctx, t, []string{"KUBECONFIG=" + lab.Hub.Kubeconfig}, plugin, "release", "gpu", "--unused")
	}
	submit(ctx, t, fleet.Job{Name: "stays", Model: fleet.H100, GPUs: 1})
	drained := runs(ctx, t, "stays")
	t.Cleanup(func() { after(t, func(ctx context.Context) error { return taint(ctx, drained, "") }) })
	if err := taint(ctx, drained, `{"key":"example.com/maintenance","effect":"NoSelect"}`); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "placementgate/gpu", "PlacementFound", "True", "2 clusters are decided")
	for i := range 4 {
		name := fmt.Sprintf("drain-%d", i)
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1})
		if got := runs(ctx, t, name); got == drained {
			t.Fatalf("%s runs on %s, which is drained", name, drained)
		}
	}
	stillRuns(ctx, t, "stays", drained)
	awaitMembers(ctx, t, 3)
	contains(t, release(), "Nothing to release.")
	stillRuns(ctx, t, "stays", drained)

	gone(t, "stays")
	awaitMembers(ctx, t, 2)
	awaitCondition(ctx, t, "placementgate/gpu", "Configured", "True", "Kueue stays connected to "+drained)
	contains(t, release(), "multikueuecluster.kueue.x-k8s.io/"+drained+" deleted")
	if err := taint(ctx, drained, ""); err != nil {
		t.Fatal(err)
	}
	awaitMembers(ctx, t, 3)
	awaitCondition(ctx, t, "multikueuecluster/"+drained, "Active", "True")
}

// A worker's credentials are no longer good. Kueue can't reach what runs there, and it
// runs on; others get what comes; with good ones it is as before.
func TestClusterThatLosesItsCredentialsKeepsItsJobs(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	submit(ctx, t, fleet.Job{Name: "cut-off", Model: fleet.H100, GPUs: 1})
	lost := runs(ctx, t, "cut-off")
	credentials := func(ctx context.Context, kubeconfig string) error {
		_, err := lab.Hub.Kubectl(ctx, "", "patch", "secret/"+lost+"-kubeconfig", "-n", "kueue-system", "--type=merge", "-p", `{"data":{"kubeconfig":"`+kubeconfig+`"}}`)
		return err
	}
	good, err := lab.Hub.Kubectl(ctx, "", "get", "secret/"+lost+"-kubeconfig", "-n", "kueue-system", "-o", "jsonpath={.data.kubeconfig}")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error { return credentials(ctx, good) })
		awaitCondition(context.WithoutCancel(ctx), t, "multikueuecluster/"+lost, "Active", "True")
	})
	if err := credentials(ctx, "bm9uZQ=="); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "multikueuecluster/"+lost, "Active", "False")
	for i := range 4 {
		name := fmt.Sprintf("reached-%d", i)
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1})
		if got := runs(ctx, t, name); got == lost {
			t.Fatalf("%s runs on %s, which nobody can reach", name, lost)
		}
	}
	submit(ctx, t, fleet.Job{Name: "unreachable", Model: fleet.H100, GPUs: 16})
	waits(ctx, t, "unreachable", lost+" is not connected by Kueue")
	awaitMembers(ctx, t, 3)
	stillRuns(ctx, t, "cut-off", lost)
	if err := credentials(ctx, good); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "multikueuecluster/"+lost, "Active", "True")
	stillRuns(ctx, t, "cut-off", lost)
}
