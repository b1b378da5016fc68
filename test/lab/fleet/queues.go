package fleet

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// GPUQueue is a queue in the namespace of the jobs, on hub and workers.
type GPUQueue struct {
	Name        string
	Hub, Worker int      // quota in GPUs
	Checks      []string // admission checks on the hub
	Preempt     bool     // preempts lower priorities, on hub and workers
	Cohort      string   // on the hub; empty = none
	Flavors     []string // each has the quota; default that of H100
	// Resource that the quota counts; default GPUResource.
	Resource corev1.ResourceName
	// Unlimited are further resources that jobs may request.
	Unlimited []corev1.ResourceName
}

const queueYAML = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: %[3]s}
  resourceGroups:
  - coveredResources: [%[5]s]
    flavors: [%[2]s]
%[4]s---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[1]s, namespace: team-a}
spec: {clusterQueue: %[1]s}
`

const flavorYAML = `{name: %s, resources: [{name: %s, nominalQuota: %d}, {name: cpu, nominalQuota: 10k}, {name: memory, nominalQuota: 100Ti}%s]}`

// Manifest returns the objects of the queue with this quota. spec has further lines of the
// ClusterQueue's spec.
func (q GPUQueue) Manifest(gpus int, spec string) string {
	if len(q.Flavors) == 0 {
		q.Flavors = []string{H100.Flavor}
	}
	if q.Resource == "" {
		q.Resource = GPUResource
	}
	resources, unlimited := []string{string(q.Resource), "cpu", "memory"}, ""
	for _, name := range q.Unlimited {
		resources = append(resources, string(name))
		unlimited += fmt.Sprintf(", {name: %s, nominalQuota: 1G}", name)
	}
	var flavors []string
	for _, name := range q.Flavors {
		flavors = append(flavors, fmt.Sprintf(flavorYAML, name, q.Resource, gpus, unlimited))
	}
	preemption := "Never"
	if q.Preempt {
		preemption = "LowerPriority"
	}
	return fmt.Sprintf(queueYAML, q.Name, strings.Join(flavors, ", "), preemption, spec, strings.Join(resources, ", "))
}

// CreateQueue creates the queue and waits until it is active on the hub.
func (f *Fleet) CreateQueue(ctx context.Context, q GPUQueue) error {
	for _, w := range f.Workers {
		if err := w.Apply(ctx, q.Manifest(q.Worker, "")); err != nil {
			return err
		}
	}
	onHub := "  admissionChecksStrategy: {admissionChecks: [{name: " + strings.Join(q.Checks, "}, {name: ") + "}]}\n"
	if q.Cohort != "" {
		onHub += "  cohortName: " + q.Cohort + "\n"
	}
	if err := f.Hub.Apply(ctx, q.Manifest(q.Hub, onHub)); err != nil {
		return err
	}
	_, err := f.Hub.Kubectl(ctx, "", "wait", "--for=condition=Active", "--timeout=60s", "clusterqueue/"+q.Name)
	return err
}

// DeleteQueue deletes the queue of that name on hub and workers.
func (f *Fleet) DeleteQueue(ctx context.Context, name string) error {
	return f.deleteEverywhere(ctx, "localqueue/"+name, "clusterqueue/"+name)
}

// CreatePriorities creates the WorkloadPriorityClasses high and low, on hub and workers.
func (f *Fleet) CreatePriorities(ctx context.Context) error {
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
	return f.applyEverywhere(ctx, yaml)
}

// DeletePriorities deletes the objects of CreatePriorities.
func (f *Fleet) DeletePriorities(ctx context.Context) error {
	return f.deleteEverywhere(ctx, "workloadpriorityclass/high", "workloadpriorityclass/low")
}

// applyEverywhere applies manifests to hub and workers.
func (f *Fleet) applyEverywhere(ctx context.Context, manifests string) error {
	for _, c := range append([]*Cluster{f.Hub}, f.Workers...) {
		if err := c.Apply(ctx, manifests); err != nil {
			return err
		}
	}
	return nil
}

// deleteEverywhere deletes objects on hub and workers that exist.
func (f *Fleet) deleteEverywhere(ctx context.Context, objects ...string) error {
	for _, c := range append([]*Cluster{f.Hub}, f.Workers...) {
		if _, err := c.Kubectl(ctx, "", append([]string{"delete", "--ignore-not-found", "-n", Namespace}, objects...)...); err != nil {
			return err
		}
	}
	return nil
}
