//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Kueue on the hub preempts for a workload that fits nowhere, unless the gate decides first.
func TestGateDecidesBeforePreemption(t *testing.T) {
	ctx := testContext(t, 8*time.Minute)
	createPriorities(ctx, t)
	queue{name: "first", hub: 16, worker: 8, checks: []string{"plimsoll", "multikueue"}, preempt: true}.create(ctx, t)
	startGateFirst(ctx, t, "first")
	for _, name := range []string{"first-a", "first-b"} {
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Queue: "first", Priority: "low"})
		awaitRunning(ctx, t, name)
	}
	submit(ctx, t, fleet.Job{Name: "first-vain", Model: fleet.H100, GPUs: 16, Queue: "first", Priority: "high"})
	awaitView(ctx, t, "first-vain", "to be decided", func(v fleet.JobView) bool { return v.CheckMessage != "" })
	for _, name := range []string{"first-a", "first-b"} {
		if v, err := lab.View(ctx, name); err != nil || len(v.Running) != 1 || v.Evicted {
			t.Errorf("%s was preempted: %+v, %v", name, v, err)
		}
	}
	out, err := lab.Hub.Kubectl(ctx, "", "get", "workload/"+workloadName(ctx, t, "first-vain"), "-n", fleet.Namespace, "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	checkContains(t, out, "active: false", messageNever(16, fleet.H100))

	submit(ctx, t, fleet.Job{Name: "first-high", Model: fleet.H100, GPUs: 8, Queue: "first", Priority: "high", Duration: 3 * time.Second})
	awaitFinished(ctx, t, "first-high")
	for _, name := range []string{"first-a", "first-b"} {
		awaitRunning(ctx, t, name)
	}
	if _, err := lab.Hub.Kubectl(ctx, "", "label", "localqueue/first", "-n", fleet.Namespace, "plimsoll.dev/gate-first-"); err != nil {
		t.Fatal(err)
	}
	awaitCreated(ctx, t, "first", true)
	submit(ctx, t, fleet.Job{Name: "first-kills", Model: fleet.H100, GPUs: 16, Queue: "first", Priority: "high"})
	awaitView(ctx, t, "first-a", "to be preempted", func(v fleet.JobView) bool { return len(v.Running) == 0 })
}

// startGateFirst installs the policy of config/gate-first for a queue, until the end of the test.
func startGateFirst(ctx context.Context, t *testing.T, queue string) {
	t.Helper()
	folder := filepath.Join("..", "..", "config", "gate-first")
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "delete", "-k", folder)
			return err
		})
	})
	if _, err := lab.Hub.Kubectl(ctx, "", "apply", "-k", folder); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Hub.Kubectl(ctx, "", "label", "localqueue/"+queue, "-n", fleet.Namespace, "plimsoll.dev/gate-first=true"); err != nil {
		t.Fatal(err)
	}
	awaitCreated(ctx, t, queue, false)
}

// awaitCreated waits until the API server creates the workloads of a queue active or inactive.
func awaitCreated(ctx context.Context, t *testing.T, queue string, active bool) {
	t.Helper()
	workload := fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: probe, namespace: %s}
spec:
  queueName: %s
  podSets: [{name: main, count: 1, template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}]
`, fleet.Namespace, queue)
	await(ctx, t, fmt.Sprintf("workloads of %s to be created with active: %t", queue, active), func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, workload, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.active}")
		if err == nil && out != fmt.Sprint(active) {
			err = fmt.Errorf("spec.active is %q", out)
		}
		return err
	})
}
