package fleet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// GatedQueue is a queue for jobs that a sample gate decides.
type GatedQueue struct {
	GPUQueue
	sample string // file in config/samples
	gate   string // name of its PlacementGate
	// setup are the objects on hub and workers that the queue needs, and their names.
	setup       string
	setupByName []string
}

// check returns the name of the queue's AdmissionCheck.
func (q GatedQueue) check() string { return gateCheck + "-" + q.Name }

// The queues of the sample gates. Each has quota for all devices.
var (
	// NVLinkQueue is for jobs that need devices connected by NVLink.
	NVLinkQueue = GatedQueue{sample: "gates/nvlink.yaml", gate: "gpu-nvlink",
		GPUQueue: GPUQueue{Name: "nvlink", Hub: 256, Worker: 256, Flavors: []string{H100.Flavor, L4.Flavor}}}
	// PackingQueue is for jobs on replicas of time-sliced GPUs.
	PackingQueue = GatedQueue{sample: "gates/packing.yaml", gate: "gpu-packing",
		GPUQueue: GPUQueue{Name: "packing", Hub: 256, Worker: 256, Resource: SharedGPUResource}}
	// SharesQueue is for jobs on parts of GPUs that HAMi shares.
	SharesQueue = GatedQueue{sample: "gates/shares.yaml", gate: "gpu-shares",
		GPUQueue: GPUQueue{Name: "shares", Hub: 256, Worker: 256, Unlimited: []corev1.ResourceName{HAMiMemory, HAMiCores}}}
	// TopologyQueue is for jobs whose pods must start in one block.
	TopologyQueue = GatedQueue{sample: "gates/topology.yaml", gate: "gpu-topology",
		GPUQueue: GPUQueue{Name: "topology", Hub: 256, Worker: 256, Flavors: []string{"h100-blocks"}},
		setup:    blocksYAML, setupByName: []string{"resourceflavor/h100-blocks", "topology/blocks"}}
	// TPUQueue is for jobs on slices of TPUs.
	TPUQueue = GatedQueue{sample: "cookbook/tpu-slices.yaml", gate: "tpu-slices",
		GPUQueue: GPUQueue{Name: "tpu", Hub: 256, Worker: 256, Flavors: []string{TPUv6e.Flavor}, Resource: TPUResource},
		setup:    tpuYAML, setupByName: []string{"resourceflavor/v6e"}}
)

// blocksYAML lets Kueue place the pods of a job in one block. The levels are node labels.
const blocksYAML = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: blocks}
spec: {levels: [{nodeLabel: cloud.google.com/gce-topology-block}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100-blocks}
spec: {topologyName: blocks, nodeLabels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
`

const tpuYAML = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: v6e}
spec: {nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice}}
`

// CreateGatedQueue creates the queue, its sample gate and its check.
func (f *Fleet) CreateGatedQueue(ctx context.Context, q GatedQueue) error {
	if q.setup != "" {
		if err := f.applyEverywhere(ctx, q.setup); err != nil {
			return err
		}
	}
	if err := f.ApplySample(ctx, q.sample); err != nil {
		return err
	}
	if err := f.ApplyGateCheck(ctx, q.check(), q.gate); err != nil {
		return err
	}
	q.Checks = []string{q.check(), "multikueue"}
	return f.CreateQueue(ctx, q.GPUQueue)
}

// DeleteGatedQueue deletes the objects of CreateGatedQueue.
func (f *Fleet) DeleteGatedQueue(ctx context.Context, q GatedQueue) error {
	if err := f.DeleteQueue(ctx, q.Name); err != nil {
		return err
	}
	if _, err := f.Hub.Kubectl(ctx, "", "delete", "--ignore-not-found", "admissioncheck/"+q.check(), "placementgate/"+q.gate); err != nil {
		return err
	}
	if len(q.setupByName) == 0 {
		return nil
	}
	return f.deleteEverywhere(ctx, q.setupByName...)
}
