//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// cordonAllBut cordons every node with GPUs of the fleet except one.
func cordonAllBut(ctx context.Context, t *testing.T, kept string) {
	t.Helper()
	for _, cluster := range []string{"cluster1", "cluster2", "cluster3"} {
		out, err := lab.Worker(cluster).Kubectl(ctx, "", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range strings.Fields(out) {
			if strings.Contains(node, "gpu") && node != kept {
				cordon(ctx, t, cluster, node)
			}
		}
	}
}

// One node with eight GPUs is left, and small jobs keep it busy. An urgent job that needs the
// whole node gets it as soon as the running ones end: the gate holds the cluster for it.
func TestUrgentJobDoesNotStarveBehindSmallOnes(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	createPriorities(ctx, t)
	cordonAllBut(ctx, t, "cluster1-gpu0")
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 8)
	awaitFreeDevices(ctx, t, "cluster2", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 0)
	queue{name: "contest", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	var small []string
	submitSmall := func(n int) {
		for range n {
			name := fmt.Sprintf("small-%d", len(small))
			small = append(small, name)
			submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Queue: "contest", Priority: "low", Duration: 30 * time.Second})
		}
	}
	submitSmall(12)
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 0)
	patchGate(ctx, t, `{"hold":{"afterSeconds":3}}`, `{"hold":null}`)
	submit(ctx, t, fleet.Job{Name: "whole-node", Model: fleet.H100, GPUs: 8, Queue: "contest", Priority: "high", Duration: 5 * time.Second})
	submitSmall(12)
	awaitRunning(ctx, t, "whole-node")
	started := 0
	for _, name := range small {
		v, err := lab.View(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if v.Finished || v.Cluster != "" {
			started++
		}
	}
	if started > 14 {
		t.Errorf("%d of %d small jobs started before the urgent one", started, len(small))
	}
	awaitFinished(ctx, t, "whole-node")
	for _, name := range small {
		awaitFinished(ctx, t, name)
	}
}

// A node has room for one job at a time. Jobs of two priorities, of which the urgent ones are
// submitted last, start by priority, and within a priority in the order of their submission.
func TestJobsStartByPriority(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	createPriorities(ctx, t)
	cordonAllBut(ctx, t, "cluster1-gpu0")
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 8)
	awaitFreeDevices(ctx, t, "cluster2", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 0)
	queue{name: "by-priority", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "first", Model: fleet.H100, GPUs: 8, Queue: "by-priority", Priority: "low", Duration: 20 * time.Second})
	awaitRunning(ctx, t, "first")
	order := []string{"high-1", "high-2", "low-1", "low-2"}
	for _, name := range []string{"low-1", "low-2", "high-1", "high-2"} {
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Queue: "by-priority", Priority: name[:len(name)-2], Duration: 3 * time.Second})
		awaitWaiting(ctx, t, name, messageNoRoom(8, fleet.H100))
	}
	var started []string
	await(ctx, t, "all jobs to start", func(ctx context.Context) error {
		for _, name := range order {
			v, err := lab.View(ctx, name)
			if err != nil {
				return err
			}
			if (len(v.Running) > 0 || v.Finished) && !slices.Contains(started, name) {
				started = append(started, name)
			}
		}
		if len(started) < len(order) {
			return fmt.Errorf("started %v", started)
		}
		return nil
	})
	if !slices.Equal(started, order) {
		t.Errorf("started %v, want %v", started, order)
	}
}

// A queue has a second check of another controller. The gate decides at once, but sends the job
// to a cluster only when the other check is Ready.
func TestGateWaitsForTheOtherCheck(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	deleteObjects(t, "admissioncheck/other-budget", "--wait=false") // the queue still names it
	if err := lab.Hub.Apply(ctx, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: other-budget}\nspec: {controllerName: example.com/budget}\n"); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	kubectl(ctx, t, "patch", "admissioncheck/other-budget", "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Active","status":"True","reason":"Active","message":"","lastTransitionTime":"`+now+`"}]}}`)
	queue{name: "budgeted", hub: 8, worker: 8, checks: []string{"plimsoll", "multikueue", "other-budget"}}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "budgeted", Model: fleet.H100, GPUs: 1, Queue: "budgeted"})
	name := "workload/" + awaitWorkloadName(ctx, t, "budgeted")
	check := func(check, field string) string {
		return kubectl(ctx, t, "get", name, "-n", fleet.Namespace, "-o", `jsonpath={.status.admissionChecks[?(@.name=="`+check+`")].`+field+`}`)
	}
	await(ctx, t, "the gate's check to be Ready", func(context.Context) error {
		if state := check("plimsoll", "state"); state != "Ready" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	if v, err := lab.View(ctx, "budgeted"); err != nil || len(v.Nominated) > 0 || len(v.Copies) > 0 {
		t.Fatalf("the job was sent before the other check: %+v, %v", v, err)
	}
	names := strings.Fields(kubectl(ctx, t, "get", name, "-n", fleet.Namespace, "-o", "jsonpath={.status.admissionChecks[*].name}"))
	kubectl(ctx, t, "patch", name, "-n", fleet.Namespace, "--subresource=status", "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/status/admissionChecks/%d/state","value":"Ready"}]`, slices.Index(names, "other-budget")))
	awaitRunning(ctx, t, "budgeted")
}

// awaitWorkloadName waits until Kueue has made the Workload of a job.
func awaitWorkloadName(ctx context.Context, t *testing.T, job string) (name string) {
	t.Helper()
	await(ctx, t, "the workload of "+job, func(ctx context.Context) error {
		wl, err := lab.Workload(ctx, job)
		if err == nil && wl == nil {
			err = fmt.Errorf("there is none")
		}
		if err == nil {
			name = wl.Name
		}
		return err
	})
	return name
}
