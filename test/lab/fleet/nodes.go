package fleet

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/test/lab/components"
)

//go:embed manifests/kwok-stages.yaml
var kwokStages []byte

// Extended resources of the lab's devices.
const (
	GPUResource       = "nvidia.com/gpu"
	SharedGPUResource = "nvidia.com/gpu.shared" // replicas of time-sliced GPUs
	TPUResource       = "google.com/tpu"
	HAMiMemory        = "nvidia.com/gpumem"   // MiB of each GPU
	HAMiCores         = "nvidia.com/gpucores" // percent of each GPU
)

// Labels of nodes that state a topology.
const (
	TPUTopologyLabel = "cloud.google.com/gke-tpu-topology"
	BlockLabel       = "cloud.google.com/gce-topology-block"
	nodePoolLabel    = "cloud.google.com/gke-nodepool"
)

// ProductLabel is the label of a node with the model of its GPUs.
const ProductLabel = "nvidia.com/gpu.product"

// CapacityTypeLabel is a label of a node in EKS. kube-state-metrics reports it as
// label_eks_amazonaws_com_capacity_type.
const CapacityTypeLabel = "eks.amazonaws.com/capacityType"

// startNodes creates the worker's GPU nodes, serves a PodResources socket for each
// and runs kwok, which keeps the nodes ready.
func (c *Cluster) startNodes(ctx, lifetime context.Context, w Worker) error {
	for _, n := range w.Nodes {
		if _, err := c.addNode(ctx, n); err != nil {
			return err
		}
	}
	if err := c.startKwok(ctx); err != nil {
		return err
	}
	if len(w.Nodes) > 0 {
		if err := c.createSystemPod(ctx, w.Nodes[0].Name); err != nil {
			return err
		}
	}
	return c.watchPods(lifetime)
}

// createSystemPod creates a pod that always runs. Each real cluster has some, at least that of kube-state-metrics; the
// rules do not trust a kube-state-metrics that reports none.
func (c *Cluster) createSystemPod(ctx context.Context, node string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "node-agent"}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "example.com/node-agent"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}}
	if err := c.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("system pod: %w", err)
	}
	return nil
}

// addNode creates a node, serves its PodResources socket and adds its exporter to the scrape
// targets. The exporter does not run yet.
func (c *Cluster) addNode(ctx context.Context, n Node) (*simulatedNode, error) {
	node, err := c.fleet.newSimulatedNode(c.Name, n)
	if err != nil {
		return nil, err
	}
	if err := c.createNode(ctx, n); err != nil {
		return nil, err
	}
	if err := node.serve(&c.fleet.servers); err != nil {
		return nil, err
	}
	c.fleet.targets.add(c.Name, scrapeTarget{job: "plimsoll-exporter", addr: node.exporterAddr, scheme: "http"})
	return node, nil
}

// AddNode adds a node with an exporter to a worker of a running fleet. RemoveNode removes it. The
// name must be new: means over 10 minutes still contain the devices of a node that was removed.
func (f *Fleet) AddNode(ctx context.Context, cluster string, n Node) error {
	c := f.Worker(cluster)
	if c == nil {
		return fmt.Errorf("the lab has no worker %q", cluster)
	}
	node, err := c.addNode(ctx, n)
	if err != nil {
		return err
	}
	if err := f.startExporter(ctx, node); err != nil {
		return err
	}
	return c.reloadPrometheus(ctx)
}

// RemoveNode removes a node that AddNode added, or a part of it if AddNode failed.
func (f *Fleet) RemoveNode(ctx context.Context, cluster, name string) error {
	c, node := f.Worker(cluster), f.node(name)
	if c == nil || node == nil {
		return nil
	}
	f.targets.remove(cluster, node.exporterAddr)
	if err := c.reloadPrometheus(ctx); err != nil {
		return err
	}
	if _, running := f.procs.Pids()[node.exporter()]; running {
		if err := f.procs.End(node.exporter(), syscall.SIGTERM); err != nil {
			return err
		}
	}
	node.stop()
	f.mu.Lock()
	delete(f.nodes, name)
	f.mu.Unlock()
	return client.IgnoreNotFound(c.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (c *Cluster) startKwok(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	name := c.Name + "-kwok"
	work := filepath.Join(c.fleet.opts.Dir, "work", name)
	dir, err := components.SourceDir(ctx, c.fleet.opts.Root, "shared", "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	stages := kwokStages
	for _, file := range []string{"fast/node-initialize.yaml", "heartbeat-with-lease/node-heartbeat-with-lease.yaml"} {
		content, err := os.ReadFile(filepath.Join(dir, "kustomize", "stage", "node", file))
		if err != nil {
			return fmt.Errorf("kwok's node stages: %w", err)
		}
		stages = append(append(stages[:len(stages):len(stages)], "\n---\n"...), content...)
	}
	config := filepath.Join(work, "kwok.yaml")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(config, stages, 0o600); err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	return c.fleet.procs.Run(ctx, program{
		name: name, path: c.fleet.bin.Path("kwok"),
		args: []string{"--kubeconfig=" + c.Kubeconfig, "--config=" + config, "--manage-nodes-with-label-selector=type=kwok",
			"--node-lease-duration-seconds=40", "--server-address=" + addr, "--node-ip=127.0.0.1"},
		ready: httpReady("http://"+addr+"/healthz", httpPlain),
	})
}

func (c *Cluster) createNode(ctx context.Context, n Node) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cmp.Or(n.CPU, NodeCPU), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("110"), n.resource(): *resource.NewQuantity(int64(n.GPUs*max(n.Replicas, 1)), resource.DecimalSI),
	}
	if n.HAMi { // kube-scheduler adds up what HAMi's scheduler tests for each device
		capacity[HAMiMemory] = *resource.NewQuantity(int64(n.GPUs*n.Model.MemoryMiB), resource.DecimalSI)
		capacity[HAMiCores] = *resource.NewQuantity(int64(n.GPUs*100), resource.DecimalSI)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.labels()}}
	if err := c.Client.Create(ctx, node); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	created := node.DeepCopy()
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	// A patch, because kwok may have changed the status of the node already.
	if err := c.Client.Status().Patch(ctx, node, client.MergeFrom(created)); err != nil {
		return fmt.Errorf("status of node %s: %w", n.Name, err)
	}
	return nil
}

// labels returns the labels of the node: those of the lab, of the kubelet, and of GPU feature
// discovery or GKE.
func (n Node) labels() map[string]string {
	labels := map[string]string{
		"type": "kwok", corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		n.Model.labelKey(): n.Model.Label,
	}
	switch {
	case n.Model.TPU:
		labels[TPUTopologyLabel], labels[nodePoolLabel] = n.Topology, n.NodePool
	default:
		labels["nvidia.com/gpu.count"] = strconv.Itoa(n.GPUs)
	}
	if n.Replicas > 0 && !n.HAMi {
		labels["nvidia.com/gpu.replicas"], labels["nvidia.com/gpu.sharing-strategy"] = strconv.Itoa(n.Replicas), "time-slicing"
	}
	return labels
}
