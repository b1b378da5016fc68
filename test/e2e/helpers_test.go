//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// testContext ends with the test, or after the limit. The limit is for a test that
// hangs and says nothing of how fast the product is: a busy machine takes many times
// as long as an idle one.
func testContext(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// submit creates a job and deletes it, with all its copies, at the end of the test.
func submit(ctx context.Context, t *testing.T, j fleet.Job) {
	t.Helper()
	if err := lab.Submit(ctx, j); err != nil {
		t.Fatalf("submit %s: %v", j.Name, err)
	}
	t.Cleanup(func() { deleteJob(t, j.Name) })
}

// deleteJob deletes a job and waits until all its copies are deleted.
func deleteJob(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := lab.DeleteJob(ctx, name); err != nil {
		t.Errorf("delete %s: %v", name, err)
	}
	await(ctx, t, "the copies of "+name+" to be deleted", func(ctx context.Context) error {
		v, err := lab.View(ctx, name)
		if err == nil && len(v.Copies) > 0 {
			err = fmt.Errorf("copies on %v", v.Copies)
		}
		return err
	})
}

func await(ctx context.Context, t *testing.T, what string, done func(context.Context) error) {
	t.Helper()
	if err := fleet.Await(ctx, what, done); err != nil {
		t.Fatal(err)
	}
}

// awaitRunning waits until the job runs on exactly one cluster and has no other
// copy. It returns the cluster.
func awaitRunning(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	var v fleet.JobView
	await(ctx, t, name+" to run", func(ctx context.Context) error {
		var err error
		if v, err = lab.View(ctx, name); err != nil {
			return err
		}
		return checkRunsOnce(v)
	})
	t.Logf("%s runs on %s: %s", name, v.Cluster, v.CheckMessage)
	return v.Cluster
}

// runningPods returns the UIDs of a job's running pods on a cluster.
func runningPods(ctx context.Context, job, cluster string) ([]string, error) {
	out, err := lab.Worker(cluster).Kubectl(ctx, "", "get", "pods", "-n", fleet.Namespace, "-l", "job-name="+job,
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.uid}")
	return strings.Fields(out), err
}

// awaitPodShown waits until the Job on the hub shows its active pod.
func awaitPodShown(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	await(ctx, t, "the hub's job to show its pod", func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "job/"+name, "-n", fleet.Namespace, "-o", "jsonpath={.status.active}")
		if err == nil && out != "1" {
			err = fmt.Errorf("active is %q", out)
		}
		return err
	})
}

// loseCopy deletes the copy of a running job on its worker.
func loseCopy(ctx context.Context, t *testing.T, name, cluster string) {
	t.Helper()
	awaitPodShown(ctx, t, name)
	if out, err := lab.Worker(cluster).Kubectl(ctx, "", "delete", "job/"+name, "-n", fleet.Namespace); err != nil {
		t.Fatal(err, out)
	}
	awaitView(ctx, t, name, "to be evicted", func(v fleet.JobView) bool { return v.Evicted || v.Cluster == "" })
}

// checkRunsOnce returns an error unless the job runs on one cluster and has no other
// copy.
func checkRunsOnce(v fleet.JobView) error {
	if len(v.Running) != 1 || len(v.Copies) != 1 || v.Cluster != v.Running[0] {
		return fmt.Errorf("%+v", v)
	}
	return nil
}

// checkStillRuns fails the test unless the job runs on this cluster and has no other
// copy.
func checkStillRuns(ctx context.Context, t *testing.T, name, cluster string) {
	t.Helper()
	v, err := lab.View(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkRunsOnce(v); err != nil || v.Cluster != cluster || v.Evicted {
		t.Fatalf("%s ran on %s and is now: %+v", name, cluster, v)
	}
}

// awaitWaiting waits until the job has a Pending check with a message that contains
// want, and no copies.
func awaitWaiting(ctx context.Context, t *testing.T, name, want string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s to wait with %q", name, want), func(ctx context.Context) error {
		v, err := lab.View(ctx, name)
		if err == nil && (v.CheckState != "Pending" || !strings.Contains(v.CheckMessage, want) || len(v.Copies) > 0) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
}

// awaitFreeDevices waits until the metrics show this number of free GPUs.
func awaitFreeDevices(ctx context.Context, t *testing.T, cluster string, model fleet.GPUModel, want float64) {
	t.Helper()
	awaitValue(ctx, t, fmt.Sprintf(`sum(cluster_resource_model:plimsoll_free_devices:sum{cluster=%q,model=%q})`, cluster, model.Label), want)
}

// awaitValue waits until the expression has one series with this value.
func awaitValue(ctx context.Context, t *testing.T, expr string, want float64) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s to be %g", expr, want), func(ctx context.Context) error {
		samples, err := fleet.Query(ctx, lab.Thanos, expr)
		if err == nil && (len(samples) != 1 || samples[0].Value != want) {
			err = fmt.Errorf("%s is %v", expr, samples)
		}
		return err
	})
}

// cordon cordons a node until the end of the test. It waits until the metrics show
// the cordon. The cleanup waits, too, so that later tests see current samples.
func cordon(ctx context.Context, t *testing.T, cluster, node string) {
	t.Helper()
	setCordon(ctx, t, cluster, node, true)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		setCordon(ctx, t, cluster, node, false)
	})
}

func setCordon(ctx context.Context, t *testing.T, cluster, node string, cordoned bool) {
	t.Helper()
	if err := lab.SetUnschedulable(ctx, cluster, node, cordoned); err != nil {
		t.Fatal(err)
	}
	want := 1.0
	if cordoned {
		want = 0
	}
	expr := fmt.Sprintf(`node:plimsoll_placeable:bool{cluster=%q,node=%q}`, cluster, node)
	awaitValue(ctx, t, expr, want)
}

// occupy uses GPUs of a node until the end of the test, with a pod outside of
// Kueue's queues.
func occupy(ctx context.Context, t *testing.T, cluster, node string, gpus int) {
	t.Helper()
	if err := lab.Occupy(ctx, cluster, node, gpus); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return lab.Vacate(ctx, cluster, node) }) })
}

// cleanUp calls undo with its own context, because the test's context may have
// ended.
func cleanUp(t *testing.T, undo func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := undo(ctx); err != nil {
		t.Error(err)
	}
}

// patchGate patches the spec of the gate "gpu". At the end of the test it applies
// the patch undo.
func patchGate(ctx context.Context, t *testing.T, spec, undo string) {
	t.Helper()
	if err := lab.PatchGate(ctx, spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return lab.PatchGate(ctx, undo) }) })
}

// holdQueue stops the ClusterQueue of the workers, so that they do not admit copies.
// The queue of a worker continues after release, or at the end of the test.
func holdQueue(ctx context.Context, t *testing.T, queue string, clusters ...string) (release func(cluster string)) {
	t.Helper()
	policy := func(ctx context.Context, cluster, policy string) error {
		_, err := lab.Worker(cluster).Kubectl(ctx, "", "patch", "clusterqueue/"+queue, "--type=merge", "-p", `{"spec":{"stopPolicy":"`+policy+`"}}`)
		return err
	}
	for _, c := range clusters {
		if err := policy(ctx, c, "Hold"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return policy(ctx, c, "None") }) })
	}
	return func(cluster string) {
		t.Helper()
		if err := policy(ctx, cluster, "None"); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitView waits until want returns true for the job.
func awaitView(ctx context.Context, t *testing.T, name, what string, want func(fleet.JobView) bool) fleet.JobView {
	t.Helper()
	var v fleet.JobView
	await(ctx, t, name+" "+what, func(ctx context.Context) error {
		var err error
		if v, err = lab.View(ctx, name); err == nil && !want(v) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
	return v
}

// awaitFinished waits until the job is finished on the hub and has no copies.
func awaitFinished(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	awaitView(ctx, t, name, "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 })
}

// workloadName returns the name of a job's Workload.
func workloadName(ctx context.Context, t *testing.T, job string) string {
	t.Helper()
	wl, err := lab.Workload(ctx, job)
	if err != nil || wl == nil {
		t.Fatalf("workload of %s: %v, %v", job, wl, err)
	}
	return wl.Name
}

// activate activates or deactivates the Workload of a job.
func activate(ctx context.Context, t *testing.T, job string, active bool) {
	t.Helper()
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "workload/"+workloadName(ctx, t, job), "-n", fleet.Namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"active":%t}}`, active)); err != nil {
		t.Fatal(err)
	}
}

// condition returns a condition of an object as "Status: message".
func condition(ctx context.Context, object, kind string) (string, error) {
	return lab.Hub.Kubectl(ctx, "", "get", object, "-o",
		fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status}: {.status.conditions[?(@.type==%q)].message}`, kind, kind))
}

// awaitCondition waits until the condition has the status and its message contains
// all words.
func awaitCondition(ctx context.Context, t *testing.T, object, kind, status string, words ...string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s of %s to be %s with %q", kind, object, status, words), func(ctx context.Context) error {
		got, err := condition(ctx, object, kind)
		if err != nil {
			return err
		}
		for _, word := range append(words, status+": ") {
			if !strings.Contains(got, word) {
				return fmt.Errorf("it is %q", got)
			}
		}
		return nil
	})
}

// patch patches an object on the hub. kind is merge or json.
func patch(ctx context.Context, t *testing.T, object, kind, body string) {
	t.Helper()
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", object, "--type="+kind, "-p", body); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl on the hub and returns its output.
func kubectl(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab.Hub.Kubectl(ctx, "", args...)
	if err != nil {
		t.Fatal(args, err)
	}
	return out
}

// createToken returns a token of a service account in the namespace of the jobs.
func createToken(ctx context.Context, t *testing.T, account string) string {
	t.Helper()
	return strings.TrimSpace(kubectl(ctx, t, "create", "token", account, "-n", "team-a"))
}

// runCommand runs a program in the root of the repository and returns its output and
// errors.
func runCommand(ctx context.Context, t *testing.T, env []string, args ...string) string {
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

func checkContains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing from:\n%s", word, text)
		}
	}
}

// stripServerFields removes the status and all metadata but the name, so that the
// object can be applied again.
func stripServerFields(t *testing.T, object string) string {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	delete(o, "status")
	name := o["metadata"].(map[string]any)["name"]
	o["metadata"] = map[string]any{"name": name}
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// addNode adds a node to a worker until the end of the test.
func addNode(ctx context.Context, t *testing.T, cluster string, n fleet.Node) {
	t.Helper()
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return lab.RemoveNode(ctx, cluster, n.Name) }) })
	if err := lab.AddNode(ctx, cluster, n); err != nil {
		t.Fatal(err)
	}
}
