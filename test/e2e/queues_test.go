//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// queue is a queue for H100 GPUs in the namespace of the jobs, on hub and workers.
type queue struct {
	name        string
	hub, worker int      // quota in GPUs
	checks      []string // admission checks on the hub
	preempt     bool     // preempts lower priorities, on hub and workers
	cohort      string   // on the hub; empty = none
}

const queueYAML = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: %[3]s}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu, memory]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: %[2]d}, {name: cpu, nominalQuota: 10k}, {name: memory, nominalQuota: 100Ti}]}]
%[4]s---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[1]s, namespace: team-a}
spec: {clusterQueue: %[1]s}
`

func (q queue) create(ctx context.Context, t *testing.T) {
	t.Helper()
	preemption := "Never"
	if q.preempt {
		preemption = "LowerPriority"
	}
	for _, w := range lab.Workers {
		if err := w.Apply(ctx, fmt.Sprintf(queueYAML, q.name, q.worker, preemption, "")); err != nil {
			t.Fatal(err)
		}
	}
	checks := "  admissionChecksStrategy: {admissionChecks: [{name: " + strings.Join(q.checks, "}, {name: ") + "}]}\n"
	if q.cohort != "" {
		checks += "  cohortName: " + q.cohort + "\n"
	}
	if err := lab.Hub.Apply(ctx, fmt.Sprintf(queueYAML, q.name, q.hub, preemption, checks)); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "clusterqueue/"+q.name, conditionActive, "True")
}

// createPriorities creates the priorities high and low, on hub and workers.
func createPriorities(ctx context.Context, t *testing.T) {
	t.Helper()
	const yaml = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: low}
value: 1
`
	for _, w := range lab.Workers {
		if err := w.Apply(ctx, yaml); err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.Hub.Apply(ctx, yaml); err != nil {
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
