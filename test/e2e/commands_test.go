//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func TestExplainWorkload(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	runCommand(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	env := []string{"KUBECONFIG=" + lab.Hub.Kubeconfig}

	submit(ctx, t, fleet.Job{Name: "placed", Model: fleet.H100, GPUs: 1})
	cluster := awaitRunning(ctx, t, "placed")
	checkContains(t, runCommand(ctx, t, env, plugin, "explain", "workload", "job/placed", "-n", "team-a"),
		outputPlaced(cluster), outputTotalScore)

	submit(ctx, t, fleet.Job{Name: "too-big", Model: fleet.L4, GPUs: 16})
	awaitWaiting(ctx, t, "too-big", messageNever(16, fleet.L4))
	bindExplainer(ctx, t, "reader")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(createToken(ctx, t, "reader")), 0o600); err != nil {
		t.Fatal(err)
	}
	checkContains(t, runCommand(ctx, t, env, plugin, "explain", "workload", "job/too-big", "-n", "team-a",
		"--operator-url", "https://"+lab.OperatorMetrics, "--token-file", token, "--operator-insecure"),
		messageNever(16, fleet.L4), "cluster1", "cluster2", "cluster3", outputRoomColumn)
	checkContains(t, runCommand(ctx, t, env, plugin, "top"), "cluster1", outputHeadroomScore)
	checkContains(t, runCommand(ctx, t, env, plugin, "preview", "-f", "config/samples/hub/policy.yaml", "--prometheus", lab.Thanos),
		"cluster1", "cluster2", "cluster3", "headroom", "total")
	checkContains(t, runCommand(ctx, t, env, plugin, "preview", "-f", "config/samples/hub/gate.yaml", "--workload", "job/too-big", "-n", "team-a", "--prometheus", lab.Thanos),
		"never", messageNever(16, fleet.L4), "cluster1", "cluster2", "cluster3")
}

// bindExplainer creates a service account with the role plimsoll-explainer for the test.
func bindExplainer(ctx context.Context, t *testing.T, account string) {
	t.Helper()
	kubectl(ctx, t, "create", "serviceaccount", account, "-n", "team-a")
	kubectl(ctx, t, "create", "clusterrolebinding", account, "--clusterrole=plimsoll-explainer", "--serviceaccount=team-a:"+account)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		kubectl(ctx, t, "delete", "clusterrolebinding", account)
		kubectl(ctx, t, "delete", "serviceaccount", account, "-n", "team-a")
	})
}
