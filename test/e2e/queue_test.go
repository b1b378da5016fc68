//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// queue of H100s in the namespace of the samples, on hub and workers.
type queue struct {
	name        string
	hub, worker int      // devices of quota
	checks      []string // on the hub
	// preempt lower priorities, on hub and workers.
	preempt bool
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

func (q queue) make(ctx context.Context, t *testing.T) {
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
	if err := lab.Hub.Apply(ctx, fmt.Sprintf(queueYAML, q.name, q.hub, preemption, checks)); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "clusterqueue/"+q.name, "Active", "True")
}

// priorities high and low, on hub and workers.
func priorities(ctx context.Context, t *testing.T) {
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

// check and configuration of MultiKueue over all workers; the latter, which keeps Kueue
// connected to them, for as long as the test lasts.
func multikueue(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() { removed(t, "multikueueconfig/"+name) })
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

// plainQueue is a queue of MultiKueue without a gate of ours.
func plainQueue(ctx context.Context, t *testing.T) {
	t.Helper()
	multikueue(ctx, t, "plain")
	queue{name: "plain", hub: 8, worker: 8, checks: []string{"plain"}}.make(ctx, t)
}

// removed objects of a test that others might trip over.
func removed(t *testing.T, objects ...string) {
	t.Helper()
	after(t, func(ctx context.Context) error {
		_, err := lab.Hub.Kubectl(ctx, "", append([]string{"delete", "--ignore-not-found"}, objects...)...)
		return err
	})
}
