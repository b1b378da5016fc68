//go:build e2e && long

package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// The accounts that connect creates suffice for Kueue: a job is sent, runs, is reported, and its
// copy is removed. A second run of connect changes nothing that a running job needs.
func TestConnect(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	runCommand(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	kubeconfigs, connect := []string{lab.Hub.Kubeconfig}, []string{plugin, "connect", "--secret-name={cluster}-connected"}
	for _, w := range lab.Workers {
		kubeconfigs, connect = append(kubeconfigs, w.Kubeconfig), append(connect, w.Name+"="+w.Name)
	}
	env := []string{"KUBECONFIG=" + strings.Join(kubeconfigs, ":")}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			if err := recreateMultiKueueClusters(ctx, `{"type":"Secret","nameTemplate":"{cluster}-kubeconfig"}`); err != nil {
				return err
			}
			_, err := lab.Hub.Kubectl(ctx, "", "delete", "secret", "-n", "kueue-system", "-l", "app.kubernetes.io/managed-by=kubectl-plimsoll")
			return err
		})
	})

	checkContains(t, runCommand(ctx, t, env, connect...), "cluster1: ServiceAccount kueue-system/plimsoll-multikueue", "Secret kueue-system/cluster3-connected on the hub")
	if err := recreateMultiKueueClusters(ctx, `{"type":"Secret","nameTemplate":"{cluster}-connected"}`); err != nil {
		t.Fatal(err)
	}
	for _, w := range lab.Workers {
		awaitCondition(ctx, t, "multikueuecluster/"+w.Name, conditionActive, "True")
	}
	submit(ctx, t, fleet.Job{Name: "connected", Model: fleet.H100, GPUs: 1, Duration: 10 * time.Second})
	cluster := awaitRunning(ctx, t, "connected")
	runCommand(ctx, t, env, connect...)
	awaitFinished(ctx, t, "connected")
	await(ctx, t, "the copy to be removed", func(ctx context.Context) error {
		_, err := lab.Worker(cluster).Kubectl(ctx, "", "wait", "--for=delete", "job/connected", "-n", fleet.Namespace, "--timeout=1s")
		return err
	})
}
