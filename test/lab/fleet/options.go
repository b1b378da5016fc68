package fleet

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/test/story"
)

// OperatorDispatcher is MultiKueue's dispatcherName if the operator dispatches.
const OperatorDispatcher = "plimsoll.dev/dispatcher"

// Options configure a fleet. The zero value is the default fleet.
type Options struct {
	// Dir is the folder for state, data and logs. Default DefaultDir().
	Dir string
	// Root is the root of the repository. Default FindRoot().
	Root string
	// Progress receives one line per step. Default os.Stderr.
	Progress io.Writer
	// Workers are the worker clusters. Default DefaultWorkers().
	Workers []Worker
	// Seed determines the simulated devices. Default 1.
	Seed int64
	// Dispatcher is MultiKueue's dispatcherName on the hub. Default
	// OperatorDispatcher.
	Dispatcher string
	// Audit logs each write of a Workload on the hub, and each request of the operator;
	// see Fleet.AuditLog.
	Audit bool
	// WithoutRules starts each Prometheus without rules; see Cluster.LoadRules.
	WithoutRules bool
	// WorkerClientQPS is the number of requests per second and kind that MultiKueue may send to a
	// worker. Default: Kueue's own limit, 5. Another value builds a changed Kueue.
	WorkerClientQPS int
	// Bare skips the build of Plimsoll's own programs.
	Bare bool
}

// Worker is a cluster that runs workloads.
type Worker struct {
	Name  string
	Nodes []Node
}

// NodeCPU is the number of cores of a node.
const NodeCPU = 128

// Node is a simulated node with GPUs or TPU chips.
type Node struct {
	Name  string
	Model GPUModel
	GPUs  int // or TPU chips
	// CPU is the number of cores. Default NodeCPU.
	CPU int64
	// Replicas is the number of pods that share each GPU by time-slicing. The node then offers
	// SharedGPUResource. 0: a pod holds whole GPUs.
	Replicas int
	// HAMi makes HAMi share the GPUs instead: a pod requests GPUResource, memory and cores.
	HAMi bool
	// Utilization (0 to 1) of each device, whatever pods hold it. Default: that of the pods.
	Utilization []float64
	// Topology of the TPU slice that the node belongs to, such as 2x4, and the node pool, which
	// is the slice.
	Topology, NodePool string
}

// SharedNode returns a node of H100 GPUs with this utilization (0 to 1), each of which 4 pods share.
func SharedNode(name string, utilization ...float64) Node {
	return Node{Name: name, Model: H100, GPUs: len(utilization), Replicas: 4, Utilization: utilization}
}

// HAMiNode returns a node of H100 GPUs, each of which HAMi divides among up to 10 pods.
func HAMiNode(name string, gpus int) Node {
	return Node{Name: name, Model: H100, GPUs: gpus, Replicas: 10, HAMi: true}
}

// GPUModel is a model of GPU or TPU.
type GPUModel struct {
	Product   string // name in NVML
	Label     string // value of the node label nvidia.com/gpu.product, or of GKE's for TPUs
	Flavor    string // ResourceFlavor of the samples
	MemoryMiB int
	NVSwitch  bool // NVSwitches connect all GPUs of a node
	TPU       bool
}

// The models of the default fleet.
var (
	H100 = GPUModel{Product: "NVIDIA H100 80GB HBM3", Label: "NVIDIA-H100-80GB-HBM3", Flavor: "h100", MemoryMiB: 81559, NVSwitch: true}
	A100 = GPUModel{Product: "NVIDIA A100-SXM4-80GB", Label: "NVIDIA-A100-SXM4-80GB", Flavor: "a100", MemoryMiB: 81920, NVSwitch: true}
	L4   = GPUModel{Product: "NVIDIA L4", Label: "NVIDIA-L4", Flavor: "l4", MemoryMiB: 23034}
)

// TPUv6e is the model of nodes that AddNode adds.
var TPUv6e = GPUModel{Product: "tpu-v6e-slice", Label: "tpu-v6e-slice", Flavor: "v6e", MemoryMiB: 32 << 10, TPU: true}

// labelKey returns the key of the node label with the model.
func (m GPUModel) labelKey() string {
	if m.TPU {
		return "cloud.google.com/gke-tpu-accelerator"
	}
	return ProductLabel
}

// resource returns the resource by which pods request whole devices of the model.
func (m GPUModel) resource() corev1.ResourceName {
	if m.TPU {
		return TPUResource
	}
	return GPUResource
}

// resource returns the resource of the node's devices.
func (n Node) resource() corev1.ResourceName {
	if n.Replicas > 0 && !n.HAMi {
		return SharedGPUResource
	}
	return n.Model.resource()
}

// Models are the device models by the names of stories.
var Models = map[story.Model]GPUModel{story.H100: H100, story.A100: A100, story.L4: L4}

// DefaultWorkers returns the clusters of story.Fleet.
func DefaultWorkers() []Worker {
	var list []Worker
	for _, c := range story.Fleet {
		w := Worker{Name: c.Name}
		for _, shape := range c.Nodes {
			for range shape.Nodes {
				w.Nodes = append(w.Nodes, Node{Name: fmt.Sprintf("%s-gpu%d", c.Name, len(w.Nodes)), Model: Models[shape.Model], GPUs: shape.Devices})
			}
		}
		list = append(list, w)
	}
	return list
}

func (o *Options) setDefaults() error {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	if o.Workers == nil {
		o.Workers = DefaultWorkers()
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Dispatcher == "" {
		o.Dispatcher = OperatorDispatcher
	}
	if o.Root == "" {
		root, err := FindRoot()
		if err != nil {
			return err
		}
		o.Root = root
	}
	if o.Dir == "" {
		dir, err := DefaultDir()
		if err != nil {
			return err
		}
		o.Dir = dir
	}
	return nil
}

// DefaultDir returns the default folder for a fleet's state: $PLIMSOLL_LAB_DIR,
// else $XDG_STATE_HOME/plimsoll/lab, else ~/.local/state/plimsoll/lab.
func DefaultDir() (string, error) {
	if dir := os.Getenv("PLIMSOLL_LAB_DIR"); dir != "" {
		return dir, nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "plimsoll", "lab"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the lab's state (set XDG_STATE_HOME): %w", err)
	}
	return filepath.Join(home, ".local", "state", "plimsoll", "lab"), nil
}

// FindRoot returns the root of the repository that contains the working directory.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "lab", "components")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("not in a checkout of Plimsoll: neither the working directory nor a parent has test/lab/components")
}
