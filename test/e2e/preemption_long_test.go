//go:build e2e && long

package e2e

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// urgentYAML contains a gate whose fit query counts all devices instead of the free
// ones. A workload passes the gate, and Kueue on the worker preempts others for it.
const urgentYAML = `
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: urgent, namespace: plimsoll-fleet}
spec:
  clusterSets: [global]
  predicates: [{requiredClusterSelector: {labelSelector: {matchLabels: {urgent: "true"}}}}]
---
apiVersion: plimsoll.dev/v1alpha1
kind: PlacementGate
metadata: {name: urgent}
spec:
  placementRef: {namespace: plimsoll-fleet, name: urgent}
  sourceRef: {name: thanos}
  periodSeconds: 2
  queries: {fit: 'floor(sum by (cluster) (cluster_resource_model:plimsoll_devices:sum{model="$model"}) / $devices_per_pod)'}
  multiKueue: {configName: plimsoll-urgent, credentials: {type: Existing}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: plimsoll-urgent}
spec:
  controllerName: plimsoll.dev/placement
  parameters: {apiGroup: plimsoll.dev, kind: PlacementGate, name: urgent}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: multikueue-urgent}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: plimsoll-urgent}
`

func TestPreemptionOnWorker(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	createPriorities(ctx, t)
	if _, err := lab.Hub.Kubectl(ctx, "", "label", "managedcluster/cluster1", "urgent=true", "--overwrite"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteObjects(t, "placementgate/urgent", "multikueueconfig/plimsoll-urgent") })
	if err := lab.Hub.Apply(ctx, urgentYAML); err != nil {
		t.Fatal(err)
	}
	queue{name: "worker-prio", hub: 256, worker: 8, checks: []string{"plimsoll-urgent", "multikueue-urgent"}, preempt: true}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "modest", Model: fleet.H100, GPUs: 8, Queue: "worker-prio", Priority: "low"})
	awaitRunning(ctx, t, "modest")
	submit(ctx, t, fleet.Job{Name: "urgent", Model: fleet.H100, GPUs: 8, Queue: "worker-prio", Priority: "high", Duration: 5 * time.Second})
	if got := awaitRunning(ctx, t, "urgent"); got != "cluster1" {
		t.Fatalf("urgent runs on %s, want cluster1", got)
	}
	if v, err := lab.View(ctx, "modest"); err != nil || len(v.Running) > 0 {
		t.Fatalf("modest was not preempted: %+v, %v", v, err)
	}
	awaitFinished(ctx, t, "urgent")
	awaitRunning(ctx, t, "modest")
}
