//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// A queue has quota for two jobs of 8 GPUs, and a third one waits. Both jobs that run agreed to be
// reclaimed, and the GPUs of one are idle. Mode Shadow records that job and changes nothing. Mode
// Enforce returns it to the queue, the waiting job runs, and then the idle job runs again.
func TestIdleJobReturnsToItsQueue(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	t.Cleanup(func() { deleteObjects(t, "reclaimpolicy/idle-gpus") })
	queue{name: "reclaim", hub: 16, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	clusters := map[string]string{}
	for _, name := range []string{"idle", "busy"} {
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Queue: "reclaim", PodLabels: map[string]string{v1alpha1.ReclaimableLabel: "true"}})
		clusters[name] = awaitRunning(ctx, t, name)
	}
	node, err := lab.NodeOf(ctx, "idle", clusters["idle"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.SetIdle(node, false); err != nil {
			t.Error(err)
		}
	})
	if err := lab.SetIdle(node, true); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "waits", Model: fleet.H100, GPUs: 8, Queue: "reclaim", Duration: 5 * time.Second})

	status := applyReclaimPolicy(ctx, t, v1alpha1.ModeShadow)
	if r := status.History[0]; !strings.Contains(r.Name, "idle") || r.Cluster != clusters["idle"] || r.Devices != 8 || r.IdleSeconds < 10 || len(status.History) > 1 {
		t.Errorf("history %+v", status.History)
	}
	for name, cluster := range clusters {
		checkStillRuns(ctx, t, name, cluster)
	}

	start := time.Now()
	applyReclaimPolicy(ctx, t, v1alpha1.ModeEnforce)
	awaitView(ctx, t, "idle", "to return to its queue", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 && !v.Admitted })
	t.Logf("idle has no cluster %s after the policy was enforced", time.Since(start).Round(time.Second))
	awaitFinished(ctx, t, "waits")
	t.Logf("the waiting job has finished after %s", time.Since(start).Round(time.Second))
	if err := lab.SetIdle(node, false); err != nil {
		t.Fatal(err)
	}
	awaitRunning(ctx, t, "idle")
	t.Logf("idle runs again after %s", time.Since(start).Round(time.Second))
	checkStillRuns(ctx, t, "busy", clusters["busy"])
	if events := kubectl(ctx, t, "get", "events", "-n", fleet.Namespace, "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}"); !strings.Contains(events, "Reclaimed ReclaimPolicy idle-gpus returns it to its queue: its 8 devices on "+clusters["idle"]) {
		t.Error("the workload has no event Reclaimed")
	}
	if wl, err := lab.Workload(ctx, "idle"); err != nil || !strings.Contains(wl.Annotations[v1alpha1.DispatchAnnotation], `"reclaimed"`) {
		t.Errorf("the workload does not record the reclaim: %v", err)
	}
}

// applyReclaimPolicy sets the mode and waits until the policy has acted in it.
func applyReclaimPolicy(ctx context.Context, t *testing.T, mode v1alpha1.Mode) v1alpha1.ReclaimPolicyStatus {
	t.Helper()
	if err := lab.Hub.Apply(ctx, fleet.ReclaimIdle(mode)); err != nil {
		t.Fatal(err)
	}
	policy := v1alpha1.ReclaimPolicy{}
	await(ctx, t, "the policy to act in mode "+string(mode), func(ctx context.Context) error {
		text, err := lab.Hub.Kubectl(ctx, "", "get", "reclaimpolicy", "idle-gpus", "-o", "json")
		if err == nil {
			policy = v1alpha1.ReclaimPolicy{}
			err = json.Unmarshal([]byte(text), &policy)
		}
		if err == nil && !slices.ContainsFunc(policy.Status.History, func(r v1alpha1.ReclaimRecord) bool { return r.Mode == mode }) {
			err = fmt.Errorf("status %+v", policy.Status)
		}
		return err
	})
	return policy.Status
}
