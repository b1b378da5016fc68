package fleet

import (
	"context"
	"fmt"
	"strings"
)

// GPUQueue is a queue in the namespace of the jobs, on hub and workers.
type GPUQueue struct {
	Name        string
	Hub, Worker int      // quota in GPUs
	Checks      []string // admission checks on the hub
	Preempt     bool     // preempts lower priorities, on hub and workers
	Cohort      string   // on the hub; empty = none
	Flavors     []string // each has the quota; default that of H100
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
    flavors: [%[2]s]
%[4]s---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[1]s, namespace: team-a}
spec: {clusterQueue: %[1]s}
`

const flavorYAML = `{name: %s, resources: [{name: nvidia.com/gpu, nominalQuota: %d}, {name: cpu, nominalQuota: 10k}, {name: memory, nominalQuota: 100Ti}]}`

// Manifest returns the objects of the queue with this quota. spec has further lines of the
// ClusterQueue's spec.
func (q GPUQueue) Manifest(gpus int, spec string) string {
	if len(q.Flavors) == 0 {
		q.Flavors = []string{H100.Flavor}
	}
	var flavors []string
	for _, name := range q.Flavors {
		flavors = append(flavors, fmt.Sprintf(flavorYAML, name, gpus))
	}
	preemption := "Never"
	if q.Preempt {
		preemption = "LowerPriority"
	}
	return fmt.Sprintf(queueYAML, q.Name, strings.Join(flavors, ", "), preemption, spec)
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
	for _, c := range append([]*Cluster{f.Hub}, f.Workers...) {
		if _, err := c.Kubectl(ctx, "", "delete", "--ignore-not-found", "-n", Namespace, "localqueue/"+name, "clusterqueue/"+name); err != nil {
			return err
		}
	}
	return nil
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
	for _, c := range append([]*Cluster{f.Hub}, f.Workers...) {
		if err := c.Apply(ctx, yaml); err != nil {
			return err
		}
	}
	return nil
}

// CreateNVLinkQueue creates the queue "nvlink" for H100 and L4 GPUs, with the sample gate for jobs
// that need devices connected by NVLink.
func (f *Fleet) CreateNVLinkQueue(ctx context.Context) error {
	if err := f.ApplySample(ctx, "gates/nvlink.yaml"); err != nil {
		return err
	}
	if err := f.ApplyGateCheck(ctx, "plimsoll-nvlink", "gpu-nvlink"); err != nil {
		return err
	}
	return f.CreateQueue(ctx, GPUQueue{Name: "nvlink", Hub: 256, Worker: 256, Checks: []string{"plimsoll-nvlink", "multikueue"}, Flavors: []string{H100.Flavor, L4.Flavor}})
}

// DeleteNVLinkQueue deletes the objects of CreateNVLinkQueue.
func (f *Fleet) DeleteNVLinkQueue(ctx context.Context) error {
	if err := f.DeleteQueue(ctx, "nvlink"); err != nil {
		return err
	}
	_, err := f.Hub.Kubectl(ctx, "", "delete", "--ignore-not-found", "admissioncheck/plimsoll-nvlink", "placementgate/gpu-nvlink")
	return err
}
