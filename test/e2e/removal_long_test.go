//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/config"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Jobs of TestUpgradeAndRemovalUnderLoad. No node has the devices for a waiting one. The first
// waiting ones hold the rest of the hub's quota and wait at the gate, the others wait for quota.
const (
	runningJobs   = 24
	waitingJobs   = 20
	waitingAtGate = 8
)

const builtinDispatcher = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"

// While jobs run and others wait, the operator is replaced by another version and again by the
// first, and then Plimsoll is removed in the order of `kubectl plimsoll uninstall --check`. No
// job restarts, moves or runs twice. Then nothing of Plimsoll is left, and a new job runs.
func TestUpgradeAndRemovalUnderLoad(t *testing.T) {
	ctx := testContext(t, 15*time.Minute)
	bin := t.TempDir()
	runCommand(ctx, t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", bin+"/", "-ldflags=-X github.com/prometheus/common/version.Version=v9.9.9",
		"./operator/cmd/plimsoll-operator", "./operator/cmd/kubectl-plimsoll")
	watcher, err := lab.WatchJobs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, reinstall) })
	before := startLoad(ctx, t)

	manifests := configFolder(t)
	kubectl(ctx, t, "apply", "--server-side", "-k", filepath.Join(manifests, "crd"))
	kubectl(ctx, t, "apply", "--server-side", "-k", filepath.Join(manifests, "guard"))
	if err := lab.ReplaceOperator(ctx, filepath.Join(bin, "plimsoll-operator")); err != nil {
		t.Fatal(err)
	}
	awaitValue(ctx, t, `plimsoll_build_info{version="v9.9.9"}`, 1)
	submit(ctx, t, fleet.Job{Name: "upgraded", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "upgraded")
	if err := errors.Join(lab.StopOperator(), lab.StartOperator(ctx)); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "rolled-back", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "rolled-back")
	checkLoad(ctx, t, before)

	remove(ctx, t, filepath.Join(bin, "kubectl-plimsoll"))
	if left := leftovers(ctx, t); len(left) > 0 {
		t.Errorf("after the removal these objects are left:\n%s", strings.Join(left, "\n"))
	}
	for i := range waitingJobs { // without a gate, Kueue sends them to clusters where they can't start
		deleteJob(t, waitingName(i))
	}
	submit(ctx, t, fleet.Job{Name: "without", Model: fleet.H100, GPUs: 1})
	awaitView(ctx, t, "without", "to run", func(v fleet.JobView) bool { return slices.Contains(v.Running, v.Cluster) && v.CheckState == "" })
	checkLoad(ctx, t, before)
	for _, line := range watcher.DoubleRuns() {
		t.Errorf("ran on two clusters: %s", line)
	}
}

func runningName(i int) string { return fmt.Sprintf("load-%d", i) }
func waitingName(i int) string { return fmt.Sprintf("load-waits-%d", i) }

// podOf identifies the pod of a running job.
type podOf struct {
	cluster string
	uid     types.UID
}

// startLoad returns the pods of the running jobs.
func startLoad(ctx context.Context, t *testing.T) map[string]podOf {
	t.Helper()
	for i := range runningJobs {
		submit(ctx, t, fleet.Job{Name: runningName(i), Model: fleet.H100, GPUs: 1})
	}
	for i := range waitingJobs {
		submit(ctx, t, fleet.Job{Name: waitingName(i), Model: fleet.H100, GPUs: 16})
	}
	pods := map[string]podOf{}
	for i := range runningJobs {
		name := runningName(i)
		cluster := awaitRunning(ctx, t, name)
		pods[name] = podOf{cluster, podUID(ctx, t, cluster, name)}
	}
	for i := range waitingJobs {
		message := messageNever(16, fleet.H100)
		if i >= waitingAtGate {
			message = ""
		}
		awaitWaiting(ctx, t, waitingName(i), message)
	}
	return pods
}

// checkLoad fails the test if a running job does not have the same pod on the same cluster.
func checkLoad(ctx context.Context, t *testing.T, before map[string]podOf) {
	t.Helper()
	for name, pod := range before {
		checkStillRuns(ctx, t, name, pod.cluster)
		if uid := podUID(ctx, t, pod.cluster, name); uid != pod.uid {
			t.Errorf("%s restarted on %s: its pod was %s and is %s", name, pod.cluster, pod.uid, uid)
		}
	}
}

func podUID(ctx context.Context, t *testing.T, cluster, job string) types.UID {
	t.Helper()
	out, err := lab.Worker(cluster).Kubectl(ctx, "", "get", "pods", "-n", fleet.Namespace, "-l", "batch.kubernetes.io/job-name="+job, "-o", "jsonpath={.items[*].metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	return types.UID(strings.TrimSpace(out))
}

// remove follows the steps of `kubectl plimsoll uninstall --check`. Each step must be done
// after its action.
func remove(ctx context.Context, t *testing.T, plugin string) {
	t.Helper()
	patchTo := func(object, namespace, body string) func() error {
		return func() error {
			_, err := lab.Hub.Kubectl(ctx, "", "patch", object, "-n", namespace, "--type=merge", "-p", body)
			return err
		}
	}
	run := func(args ...string) func() error {
		return func() error { _, err := lab.Hub.Kubectl(ctx, "", args...); return err }
	}
	actions := []func() error{
		func() error { return removeGateChecks(ctx) },
		func() error { return lab.SetDispatcher(ctx, builtinDispatcher) },
		func() error {
			return errors.Join(deleteGateChecks(ctx), run("delete", "placementgate", "--all")())
		},
		run("label", "multikueueconfig,multikueuecluster", "--all", "plimsoll.dev/gate-"),
		patchTo("placement/gpu", "plimsoll-fleet", `{"spec":{"prioritizerPolicy":{"configurations":[]}}}`),
		run("delete", "scoringpolicy", "fleet"),
		func() error { return nil }, // no CapacityPolicy exists
	}
	for i, action := range actions {
		if err := action(); err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
		await(ctx, t, fmt.Sprintf("step %d of the removal to be done", i+1), func(ctx context.Context) error {
			steps, err := removalSteps(ctx, plugin)
			// The lab's Kueue has no ConfigMap, so the command can't check its dispatcher.
			if err == nil && !steps[i].Done && steps[i].Skipped == "" {
				err = fmt.Errorf("%+v", steps[i])
			}
			return err
		})
	}
	manifests := configFolder(t)
	if err := errors.Join(lab.StopOperator(),
		run("delete", "-k", filepath.Join(manifests, "rbac"))(), // config/default without the operator, which is no pod here
		run("delete", "-k", filepath.Join(manifests, "guard"))(),
		run("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "plimsoll-queue-role")(),
		run("delete", "-k", filepath.Join(manifests, "crd"))()); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the API server to drop the policy of the queues' role", func(ctx context.Context) error {
		_, err := lab.Hub.Kubectl(ctx, "", "label", "clusterqueue", "--all", "plimsoll.dev/queue-role-")
		return err
	})
}

// removeGateChecks removes the checks of gates from all ClusterQueues, also from those that other
// tests leave.
func removeGateChecks(ctx context.Context) error {
	queues := &kueue.ClusterQueueList{}
	if err := lab.Hub.Client.List(ctx, queues); err != nil {
		return err
	}
	for i := range queues.Items {
		q := &queues.Items[i]
		strategy := q.Spec.AdmissionChecksStrategy
		if strategy == nil {
			continue
		}
		before := q.DeepCopy()
		strategy.AdmissionChecks = slices.DeleteFunc(strategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool { return isGateCheck(string(rule.Name)) })
		if err := lab.Hub.Client.Patch(ctx, q, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

func deleteGateChecks(ctx context.Context) error {
	checks := &kueue.AdmissionCheckList{}
	if err := lab.Hub.Client.List(ctx, checks); err != nil {
		return err
	}
	for i := range checks.Items {
		if c := &checks.Items[i]; isGateCheck(c.Name) {
			if err := lab.Hub.Client.Delete(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

type removalStep struct {
	Step    string
	Objects []string
	Done    bool
	Skipped string
}

func removalSteps(ctx context.Context, plugin string) ([]removalStep, error) {
	cmd := exec.CommandContext(ctx, plugin, "uninstall", "--check", "-o", "json")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+lab.Hub.Kubeconfig)
	out, err := cmd.Output()
	var exit *exec.ExitError
	stepsRemain := errors.As(err, &exit) && exit.ExitCode() == 1 && len(out) > 0
	if err != nil && !stepsRemain {
		return nil, fmt.Errorf("uninstall --check: %w", err)
	}
	var list struct {
		Items []removalStep `json:"items"`
	}
	err = json.Unmarshal(out, &list)
	return list.Items, err
}

// leftovers returns the objects on the hub with a name, a group or a label of Plimsoll. Some
// belong to the user: the namespace of the Placement, and the MultiKueueConfig, which running
// jobs still use.
func leftovers(ctx context.Context, t *testing.T) []string {
	t.Helper()
	const all = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings," +
		"namespaces,admissionchecks,multikueueconfigs,multikueueclusters,cohorts,clusterqueues,localqueues,resourceflavors,addonplacementscores,leases,priorityclasses"
	const format = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.labels} {.spec.group}{.spec.controllerName}{"\n"}{end}`
	users := []string{"Namespace /plimsoll-fleet", "MultiKueueConfig /plimsoll-gpu"}
	var left []string
	for line := range strings.Lines(kubectl(ctx, t, "get", all, "-A", "-o", format)) {
		isUsers := slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(line, u+" ") && !strings.Contains(line, "plimsoll.dev") })
		if strings.Contains(line, "plimsoll") && !isUsers {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return left
}

// reinstall restores what the other tests expect.
func reinstall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	if err := errors.Join(lab.StopOperator(), lab.Install(ctx)); err != nil {
		return err
	}
	_, err := lab.Hub.Kubectl(ctx, "", "label", "--overwrite", "multikueueconfig,multikueuecluster", "--all", "plimsoll.dev/gate=gpu")
	return errors.Join(err, shortenPeriods(ctx), lab.SetDispatcher(ctx, fleet.OperatorDispatcher), lab.StartOperator(ctx))
}

// configFolder returns the folder config, with the files that git ignores.
func configFolder(t *testing.T) string {
	t.Helper()
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Generate(root); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "config")
}
