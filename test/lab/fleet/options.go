package fleet

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options of a fleet. The zero value is the default fleet.
type Options struct {
	// Dir holds state, data and logs; $XDG_STATE_HOME/plimsoll/lab by default.
	Dir string
	// Root of the repository; found upwards from the working folder by default.
	Root string
	// Out gets progress, line by line; os.Stderr by default.
	Out io.Writer
	// Workers of the fleet; DefaultWorkers by default.
	Workers []Worker
	// Seed of the simulated silicon.
	Seed int64
	// Dispatcher of MultiKueue on the hub; the operator's by default.
	Dispatcher string
	// Audit records every write of a Workload on the hub; see AuditLog.
	Audit bool
	// Bare leaves Plimsoll's own programs unbuilt.
	Bare bool
}

// Worker is a cluster to run workloads on.
type Worker struct {
	Name  string
	Nodes []Node
}

// Node is a simulated GPU node.
type Node struct {
	Name  string
	Model GPUModel
	GPUs  int
}

// GPUModel is a kind of device.
type GPUModel struct {
	Product   string // as NVML names it
	Label     string // as GPU feature discovery labels it
	Flavor    string // ResourceFlavor of the samples
	MemoryMiB int
	NVSwitch  bool // its node's switches connect all of them
}

// The models of the default fleet.
var (
	H100 = GPUModel{"NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", "h100", 81559, true}
	A100 = GPUModel{"NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "a100", 81920, true}
	L4   = GPUModel{"NVIDIA L4", "NVIDIA-L4", "l4", 23034, false}
)

// DefaultWorkers are three clusters of four nodes. cluster2 has the most H100s,
// but no node with eight: a job that asks eight on one node doesn't fit there.
func DefaultWorkers() []Worker {
	return []Worker{
		newWorker("cluster1", shape{H100, 8}, shape{H100, 8}, shape{A100, 8}, shape{L4, 4}),
		newWorker("cluster2", shape{H100, 4}, shape{H100, 4}, shape{H100, 6}, shape{H100, 6}),
		newWorker("cluster3", shape{H100, 8}, shape{A100, 8}, shape{A100, 8}, shape{L4, 8}),
	}
}

type shape struct {
	model GPUModel
	gpus  int
}

func newWorker(name string, shapes ...shape) Worker {
	w := Worker{Name: name}
	for i, s := range shapes {
		w.Nodes = append(w.Nodes, Node{Name: fmt.Sprintf("%s-gpu%d", name, i), Model: s.model, GPUs: s.gpus})
	}
	return w
}

func (o *Options) setDefaults() error {
	if o.Out == nil {
		o.Out = os.Stderr
	}
	if o.Workers == nil {
		o.Workers = DefaultWorkers()
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Dispatcher == "" {
		o.Dispatcher = "plimsoll.dev/dispatcher"
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

// DefaultDir is where a fleet keeps its state unless told otherwise:
// $PLIMSOLL_LAB_DIR, else below $XDG_STATE_HOME.
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

// FindRoot finds the repository that the working folder is in.
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
	return "", fmt.Errorf("not in a checkout of Plimsoll: no test/lab/components in this folder or above")
}
