package fleet

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/test/lab/components"
)

//go:embed manifests/kwok-stages.yaml
var kwokStages []byte

// GPUResource is the name of the extended resource of the lab's GPUs.
const GPUResource = "nvidia.com/gpu"

// startNodes creates the worker's GPU nodes, serves a PodResources socket for each
// and runs kwok, which keeps the nodes ready.
func (c *Cluster) startNodes(ctx, lifetime context.Context, w Worker) error {
	for _, n := range w.Nodes {
		if err := c.createNode(ctx, n); err != nil {
			return err
		}
		node, err := c.fleet.newSimulatedNode(w.Name, n)
		if err != nil {
			return err
		}
		if err := node.serve(lifetime, &c.fleet.servers); err != nil {
			return err
		}
		c.fleet.targets.add(c.Name, scrapeTarget{job: "plimsoll-exporter", addr: node.exporterAddr, scheme: "http"})
	}
	if err := c.startKwok(ctx); err != nil {
		return err
	}
	return c.watchPods(lifetime)
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
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("110"), GPUResource: *resource.NewQuantity(int64(n.GPUs), resource.DecimalSI),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			"type": "kwok", corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			"nvidia.com/gpu.product": n.Model.Label, "nvidia.com/gpu.count": strconv.Itoa(n.GPUs),
		}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
	want := node.DeepCopy().Status
	if err := c.Client.Create(ctx, node); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	node.Status = want
	if err := c.Client.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("status of node %s: %w", n.Name, err)
	}
	return nil
}
