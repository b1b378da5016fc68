//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// queue is a queue in the namespace of the jobs, on hub and workers.
type queue struct {
	name        string
	hub, worker int      // quota in GPUs
	checks      []string // admission checks on the hub
	preempt     bool     // preempts lower priorities, on hub and workers
	cohort      string   // on the hub; empty = none
	flavors     []string // default: that of H100 GPUs
}

func (q queue) create(ctx context.Context, t *testing.T) {
	t.Helper()
	err := lab.CreateQueue(ctx, fleet.GPUQueue{Name: q.name, Hub: q.hub, Worker: q.worker, Checks: q.checks, Preempt: q.preempt, Cohort: q.cohort, Flavors: q.flavors})
	if err != nil {
		t.Fatal(err)
	}
}

// createPriorities creates the priorities high and low, on hub and workers.
func createPriorities(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := lab.CreatePriorities(ctx); err != nil {
		t.Fatal(err)
	}
}

// createMultiKueueCheck creates an admission check and a MultiKueueConfig with all
// workers. The cleanup deletes the MultiKueueConfig, because it keeps Kueue connected
// to the workers.
func createMultiKueueCheck(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() { deleteObjects(t, "multikueueconfig/"+name) })
	if err := lab.Hub.Apply(ctx, fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: %[1]s}
spec: {clusters: [cluster1, cluster2, cluster3]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: %[1]s}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: %[1]s}
`, name)); err != nil {
		t.Fatal(err)
	}
}

// createPlainQueue creates the queue "plain" with MultiKueue and without a gate.
func createPlainQueue(ctx context.Context, t *testing.T) {
	t.Helper()
	createMultiKueueCheck(ctx, t, "plain")
	queue{name: "plain", hub: 8, worker: 8, checks: []string{"plain"}}.create(ctx, t)
}

// deleteObjects deletes objects on the hub that would affect later tests.
func deleteObjects(t *testing.T, objects ...string) {
	t.Helper()
	cleanUp(t, func(ctx context.Context) error {
		_, err := lab.Hub.Kubectl(ctx, "", append([]string{"delete", "--ignore-not-found"}, objects...)...)
		return err
	})
}
