//go:build e2e && long

package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// createSecret creates a Secret on a worker until the end of the test.
func createSecret(ctx context.Context, t *testing.T, cluster, name string) {
	t.Helper()
	if err := lab.CreateSecret(ctx, cluster, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return lab.DeleteSecret(ctx, cluster, name) }) })
}

// A worker that lacks a Secret of the job is no candidate. The gate knows it from
// kube-state-metrics alone.
func TestJobGoesWhereItsSecretIs(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for cluster, name := range map[string]string{"cluster1": "other", "cluster2": "other", "cluster3": "here"} {
		createSecret(ctx, t, cluster, name)
	}
	awaitValue(ctx, t, `count(kube_secret_info{secret=~"other|here"})`, 3)
	patchGate(ctx, t, `{"prerequisites":[{"kind":"Namespace"},{"kind":"LocalQueue"},{"kind":"ServiceAccount"},{"kind":"ConfigMap"},{"kind":"Secret"},{"kind":"PersistentVolumeClaim"}]}`,
		`{"prerequisites":null}`)

	submit(ctx, t, fleet.Job{Name: "with-secret", Model: fleet.H100, GPUs: 1, Secret: "here"})
	if cluster := awaitRunning(ctx, t, "with-secret"); cluster != "cluster3" {
		t.Errorf("the job runs on %s, which lacks its Secret", cluster)
	}

	submit(ctx, t, fleet.Job{Name: "without-secret", Model: fleet.H100, GPUs: 1, Secret: "absent"})
	for _, cluster := range []string{"cluster1", "cluster2", "cluster3"} {
		awaitWaiting(ctx, t, "without-secret", messageLacks(cluster, "Secret absent"))
	}
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	runCommand(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	checkContains(t, runCommand(ctx, t, []string{"KUBECONFIG=" + lab.Hub.Kubeconfig}, plugin, "explain", "workload", "job/without-secret", "-n", fleet.Namespace),
		messageLacks("cluster1", "Secret absent"))
	createSecret(ctx, t, "cluster2", "absent")
	if cluster := awaitRunning(ctx, t, "without-secret"); cluster != "cluster2" {
		t.Errorf("the job runs on %s, which lacks its Secret", cluster)
	}
}
