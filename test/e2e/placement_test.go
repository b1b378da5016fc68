//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Two clusters have room for 5 jobs each. Without the ledger of in-flight
// reservations, most jobs would go to the same cluster.
func TestBurstFillsTwoClustersEvenly(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	occupy(ctx, t, "cluster1", "cluster1-gpu0", 6)
	occupy(ctx, t, "cluster2", "cluster2-gpu0", 4)
	occupy(ctx, t, "cluster2", "cluster2-gpu2", 6)
	occupy(ctx, t, "cluster3", "cluster3-gpu0", 8)
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 10)
	awaitFreeDevices(ctx, t, "cluster2", fleet.H100, 10)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 0)
	const jobs = 10
	for i := range jobs {
		submit(ctx, t, fleet.Job{Name: fmt.Sprintf("ten-%d", i), Model: fleet.H100, GPUs: 2})
	}
	count := map[string]int{}
	for i := range jobs {
		count[awaitRunning(ctx, t, fmt.Sprintf("ten-%d", i))]++
	}
	if count["cluster1"] != 5 || count["cluster2"] != 5 {
		t.Fatalf("the burst went to %v, want 5 on cluster1 and 5 on cluster2", count)
	}
}

// ownedConfig is an object with the gate as its owner. Its deletion shows that the
// garbage collector has handled the gate's deletion.
const ownedConfig = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata:
  name: owned
  ownerReferences: [{apiVersion: plimsoll.dev/v1alpha1, kind: PlacementGate, name: gpu, uid: %s}]
spec: {clusters: [cluster1]}
`

func TestDeletedGateKeepsRunningJobs(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "gated", Model: fleet.H100, GPUs: 1})
	cluster := awaitRunning(ctx, t, "gated")
	gate, err := lab.Hub.Kubectl(ctx, "", "get", "placementgate", "gpu", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	const uids = `jsonpath={.metadata.uid}{range .items[*]}{.metadata.uid} {end}`
	get := func(args ...string) string {
		out, err := lab.Hub.Kubectl(ctx, "", append(append([]string{"get"}, args...), "-o", uids)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	config, clusters := get("multikueueconfig/plimsoll-gpu"), get("multikueueclusters")
	if err := lab.Hub.Apply(ctx, fmt.Sprintf(ownedConfig, get("placementgate/gpu"))); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Hub.Kubectl(ctx, "", "delete", "placementgate", "gpu"); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the garbage collection of the gate's objects", func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "multikueueconfig", "owned", "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("%s still exists", out)
		}
		return err
	})
	if got := get("multikueueconfig/plimsoll-gpu"); got != config {
		t.Fatalf("the MultiKueueConfig was deleted with the gate: its uid is %s, was %s", got, config)
	}
	if got := get("multikueueclusters"); got != clusters {
		t.Fatalf("MultiKueueClusters were deleted with the gate: their uids are %s, were %s", got, clusters)
	}
	await(ctx, t, "the admission check to become inactive without its gate", func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "admissioncheck", "plimsoll", "-o", `jsonpath={.status.conditions[?(@.type=="Active")].status}`)
		if err == nil && out != "False" {
			err = fmt.Errorf("Active is %q", out)
		}
		return err
	})
	// A queue without a gate still works.
	createPlainQueue(ctx, t)
	submit(ctx, t, fleet.Job{Name: "ungated", Model: fleet.H100, GPUs: 1, Queue: "plain"})
	awaitRunning(ctx, t, "ungated")
	checkStillRuns(ctx, t, "gated", cluster)

	if err := lab.Hub.Apply(ctx, stripServerFields(t, gate)); err != nil {
		t.Fatal(err)
	}
	submit(ctx, t, fleet.Job{Name: "gated-again", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "gated-again")
	checkStillRuns(ctx, t, "gated", cluster)
}
