//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
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

// TestExplanationsAreForWhoMayReadThem asks the operator's listener as people of
// three kinds.
func TestExplanationsAreForWhoMayReadThem(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	command(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	explain := func(account string, args ...string) (string, error) {
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte(tokenOf(ctx, t, account)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, plugin, append(append([]string{"explain"}, args...),
			"--operator-url", "https://"+lab.OperatorMetrics, "--token-file", token, "--operator-insecure")...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+lab.Hub.Kubeconfig)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	bound, other := "may-explain", "may-not"
	kubectl(ctx, t, "create", "serviceaccount", bound, "-n", "team-a")
	kubectl(ctx, t, "create", "serviceaccount", other, "-n", "team-a")
	kubectl(ctx, t, "create", "clusterrolebinding", bound, "--clusterrole=plimsoll-explainer", "--serviceaccount=team-a:"+bound)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		kubectl(ctx, t, "delete", "clusterrolebinding", bound)
		kubectl(ctx, t, "delete", "serviceaccount", bound, other, "-n", "team-a")
	})
	await(ctx, t, "who is bound to be told", func(context.Context) error {
		out, err := explain(bound, "policy", "fleet")
		if err == nil {
			contains(t, out, "headroom", "sum by (cluster)", "cluster1", "cluster2", "cluster3")
		}
		return err
	})
	out, err := explain(bound, "cluster", "cluster1")
	if err != nil {
		t.Fatal(out)
	}
	contains(t, out, "fleet", "headroom", "total")
	if out, err = explain(other, "policy", "fleet"); err == nil || !strings.Contains(out, "bind it to the ClusterRole plimsoll-explainer") {
		t.Errorf("who is not bound is told: %v %s", err, out)
	}
	anyone := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, path := range []string{"/metrics", "/explain/policy/fleet", "/explain/cluster/cluster1", "/explain/workload/team-a/x"} {
		resp, err := anyone.Get("https://" + lab.OperatorMetrics + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token answers %s", path, resp.Status)
		}
	}
}

func kubectl(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab.Hub.Kubectl(ctx, "", args...)
	if err != nil {
		t.Fatal(args, err)
	}
	return out
}

func tokenOf(ctx context.Context, t *testing.T, account string) string {
	t.Helper()
	return strings.TrimSpace(kubectl(ctx, t, "create", "token", account, "-n", "team-a"))
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
