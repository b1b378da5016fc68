//go:build e2e && long

package e2e

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The operator serves explanations to service accounts with the role
// plimsoll-explainer. It refuses other service accounts and anonymous requests.
func TestExplanationsRequireAuthorization(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	plugin := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	runCommand(ctx, t, nil, "go", "build", "-o", plugin, "./operator/cmd/kubectl-plimsoll")
	explain := func(account string, args ...string) (string, error) {
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte(createToken(ctx, t, account)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, plugin, append(append([]string{"explain"}, args...),
			"--operator-url", "https://"+lab.OperatorMetrics, "--token-file", token, "--operator-insecure")...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+lab.Hub.Kubeconfig)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	bound, other := "may-explain", "may-not"
	bindExplainer(ctx, t, bound)
	kubectl(ctx, t, "create", "serviceaccount", other, "-n", "team-a")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		kubectl(ctx, t, "delete", "serviceaccount", other, "-n", "team-a")
	})
	await(ctx, t, "an explanation for the authorized account", func(context.Context) error {
		out, err := explain(bound, "policy", "fleet")
		if err == nil {
			checkContains(t, out, "headroom", "sum by (cluster)", "cluster1", "cluster2", "cluster3")
		}
		return err
	})
	out, err := explain(bound, "cluster", "cluster1")
	if err != nil {
		t.Fatal(out)
	}
	checkContains(t, out, "fleet", "headroom", "total")
	if out, err = explain(other, "policy", "fleet"); err == nil || !strings.Contains(out, outputBindRole) {
		t.Errorf("the unauthorized account gets: %v %s", err, out)
	}
	anyone := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, path := range []string{"/metrics", "/explain/policy/fleet", "/explain/cluster/cluster1", "/explain/workload/team-a/x"} {
		resp, err := anyone.Get("https://" + lab.OperatorMetrics + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %s, want 401", path, resp.Status)
		}
	}
}

func TestLabCommands(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	bin := filepath.Join(t.TempDir(), "lab")
	runCommand(ctx, t, nil, "go", "build", "-o", bin, "./test/lab")
	env := []string{"PLIMSOLL_LAB_DIR=" + lab.Dir()}
	checkContains(t, runCommand(ctx, t, env, bin, "status"), "thanos", "cluster1-kube-apiserver", "running")
	checkContains(t, runCommand(ctx, t, env, bin, "kubectl", "cluster1", "get", "nodes"), "cluster1-gpu0", "Ready")
	checkContains(t, runCommand(ctx, t, env, bin, "logs"), "plimsoll-operator", "hub-kueue")
	checkContains(t, runCommand(ctx, t, env, bin, "logs", "plimsoll-operator"), "level=INFO")

	up := exec.CommandContext(ctx, bin, "up", "--bare")
	up.Env = append(os.Environ(), env...)
	out, err := up.CombinedOutput()
	if err == nil {
		t.Fatal("a second lab started in the same folder")
	}
	checkContains(t, string(out), "already running in "+lab.Dir(), "down", "--dir")
}
