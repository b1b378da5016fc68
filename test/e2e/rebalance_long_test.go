//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// A small job of low priority runs on the only whole node of cluster3, and a large job of high priority
// waits for it. While no other cluster has room for the small job, nothing moves. Then cluster2 has room:
// mode Shadow records the move and changes nothing, and in mode Enforce the small job moves to cluster2
// and the large one starts on cluster3.
func TestSmallJobMovesForALargeOne(t *testing.T) {
	ctx := testContext(t, 8*time.Minute)
	t.Cleanup(func() { deleteObjects(t, "reclaimpolicy/rebalance") })
	createPriorities(ctx, t)
	patchGate(ctx, t, `{"hold":{"afterSeconds":3}}`, `{"hold":null}`)
	for _, w := range fleet.DefaultWorkers() {
		for _, n := range w.Nodes {
			if n.Model == fleet.H100 && n.Name != "cluster3-gpu0" {
				occupy(ctx, t, w.Name, n.Name, n.GPUs)
			}
		}
	}
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster2", fleet.H100, 0)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 8)
	queue{name: "rebalance", hub: 256, worker: 256, checks: []string{"plimsoll", "multikueue"}}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "small", Model: fleet.H100, GPUs: 2, Queue: "rebalance", Priority: "low", PodLabels: map[string]string{v1alpha1.ReclaimableLabel: "true"}})
	if cluster := awaitRunning(ctx, t, "small"); cluster != "cluster3" {
		t.Fatalf("small runs on %s", cluster)
	}
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 6)
	submit(ctx, t, fleet.Job{Name: "large", Model: fleet.H100, GPUs: 8, Queue: "rebalance", Priority: "high"})
	awaitWaiting(ctx, t, "large", "best is")

	applyRebalance(ctx, t, v1alpha1.ModeShadow)
	awaitMove(ctx, t, "no other cluster to have room", func(m v1alpha1.Move) bool {
		return m.State == v1alpha1.MoveNone && strings.Contains(m.Reason, "fits on no other cluster")
	})
	if err := lab.Vacate(ctx, "cluster2", "cluster2-gpu2"); err != nil {
		t.Fatal(err)
	}
	status := awaitMove(ctx, t, "mode Shadow to record the move", func(m v1alpha1.Move) bool {
		return m.State == v1alpha1.MoveRecorded && strings.Contains(m.For, "large") && m.Cluster == "cluster3"
	})
	if r := status.History[0]; len(status.History) > 1 || !strings.Contains(r.Name, "small") || r.Cluster != "cluster3" || r.Devices != 2 || r.Move == nil || r.Move.To != "cluster2" {
		t.Errorf("history %+v", status.History)
	}
	checkStillRuns(ctx, t, "small", "cluster3")

	start := time.Now()
	applyRebalance(ctx, t, v1alpha1.ModeEnforce)
	awaitView(ctx, t, "small", "to leave cluster3", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
	t.Logf("small has left cluster3 after %s", time.Since(start).Round(time.Second))
	if cluster := awaitRunning(ctx, t, "large"); cluster != "cluster3" {
		t.Errorf("large runs on %s", cluster)
	}
	t.Logf("large runs after %s", time.Since(start).Round(time.Second))
	if cluster := awaitRunning(ctx, t, "small"); cluster != "cluster2" {
		t.Errorf("small runs again on %s", cluster)
	}
	t.Logf("small runs again after %s", time.Since(start).Round(time.Second))
	events := kubectl(ctx, t, "get", "events", "-n", fleet.Namespace, "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}")
	if !strings.Contains(events, "Rebalanced ReclaimPolicy rebalance returns it to its queue: ") {
		t.Error("the workload has no event Rebalanced")
	}
	if wl, err := lab.Workload(ctx, "small"); err != nil || !strings.Contains(wl.Annotations[v1alpha1.DispatchAnnotation], `{"cluster":"cluster3","avoid":true,`) {
		t.Errorf("the workload does not record the move: %v", err)
	}
}

func applyRebalance(ctx context.Context, t *testing.T, mode v1alpha1.Mode) {
	t.Helper()
	if err := lab.Hub.Apply(ctx, fleet.Rebalance(mode)); err != nil {
		t.Fatal(err)
	}
}

// awaitMove waits until the policy has one move as wanted.
func awaitMove(ctx context.Context, t *testing.T, what string, want func(v1alpha1.Move) bool) v1alpha1.ReclaimPolicyStatus {
	t.Helper()
	policy := v1alpha1.ReclaimPolicy{}
	await(ctx, t, what, func(ctx context.Context) error {
		text, err := lab.Hub.Kubectl(ctx, "", "get", "reclaimpolicy", "rebalance", "-o", "json")
		if err == nil {
			policy = v1alpha1.ReclaimPolicy{}
			err = json.Unmarshal([]byte(text), &policy)
		}
		if moves := policy.Status.Moves; err == nil && (len(moves) != 1 || !want(moves[0])) {
			err = fmt.Errorf("status %+v", policy.Status)
		}
		return err
	})
	return policy.Status
}
