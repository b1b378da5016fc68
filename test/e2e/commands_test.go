//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// command runs one of README's commands from the repository's root and returns
// what it printed on both streams.
func command(ctx context.Context, t *testing.T, env []string, args ...string) string {
	t.Helper()
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, &out)
	}
	return out.String()
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing from:\n%s", word, text)
		}
	}
}

func TestExplainTellsWhereAJobIsAndWhatOneWaitsFor(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	command(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	env := []string{"KUBECONFIG=" + lab.Hub.Kubeconfig}

	submit(ctx, t, fleet.Job{Name: "placed", Model: fleet.H100, GPUs: 1})
	cluster := runs(ctx, t, "placed")
	contains(t, command(ctx, t, env, plugin, "explain", "workload", "job/placed", "-n", "team-a"),
		"nothing: it is on "+cluster, "fleet/total=")

	submit(ctx, t, fleet.Job{Name: "too-big", Model: fleet.L4, GPUs: 16})
	waits(ctx, t, "too-big", "no cluster has 16 free NVIDIA-L4 on one node")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(lab.OperatorToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, command(ctx, t, env, plugin, "explain", "workload", "job/too-big", "-n", "team-a",
		"--operator-url", "https://"+lab.OperatorMetrics, "--token-file", token, "--operator-insecure"),
		"no cluster has 16 free NVIDIA-L4 on one node", "cluster1", "cluster2", "cluster3", "ROOM")
	contains(t, command(ctx, t, env, plugin, "top"), "cluster1", "fleet/headroom=")
	contains(t, command(ctx, t, env, plugin, "preview", "-f", "config/samples/hub/policy.yaml", "--prometheus", lab.Thanos),
		"cluster1", "cluster2", "cluster3", "headroom", "total")
}

func TestLabCommands(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	bin := filepath.Join(t.TempDir(), "lab")
	command(ctx, t, nil, "go", "build", "-o", bin, "./test/lab")
	env := []string{"PLIMSOLL_LAB_DIR=" + lab.Dir()}
	contains(t, command(ctx, t, env, bin, "status"), "thanos", "cluster1-kube-apiserver", "runs")
	contains(t, command(ctx, t, env, bin, "kubectl", "cluster1", "get", "nodes"), "cluster1-gpu0", "Ready")
	contains(t, command(ctx, t, env, bin, "logs"), "plimsoll-operator", "hub-kueue")
	contains(t, command(ctx, t, env, bin, "logs", "plimsoll-operator"), "level=INFO")

	up := exec.CommandContext(ctx, bin, "up", "--bare")
	up.Env = append(os.Environ(), env...)
	out, err := up.CombinedOutput()
	if err == nil {
		t.Fatal("a second lab started in the same folder")
	}
	contains(t, string(out), "runs from "+lab.Dir()+" already", "down", "--dir")
}
