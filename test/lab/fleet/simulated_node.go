package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// DeviceState is the state of a simulated device.
type DeviceState string

// The states of a device. A lost device is missing; queries of a hung device do not
// return.
const (
	DeviceOK   DeviceState = "ok"
	DeviceLost DeviceState = "lost"
	DeviceHung DeviceState = "hung"
)

// simDevice is a device in the exporter's --sim-state file.
type simDevice struct {
	UUID       string      `json:"uuid"`
	Model      string      `json:"model"`
	MemoryMiB  int         `json:"memoryMiB"`
	State      DeviceState `json:"state"`
	Background float64     `json:"background"`
	NVSwitch   bool        `json:"nvswitch,omitempty"`
	// Processes determine the utilization of the device, whether a pod holds it or not.
	Processes []simProcess `json:"processes,omitempty"`
}

// simProcess is a process on a device.
type simProcess struct {
	PID       int     `json:"pid"`
	MemoryMiB int     `json:"memoryMiB"`
	Busy      float64 `json:"busy"`
}

// simState is the content of the exporter's --sim-state file.
type simState struct {
	Seed    int64       `json:"seed"`
	Devices []simDevice `json:"devices"`
}

// simulatedNode simulates the devices of one node and the device manager of its
// kubelet.
type simulatedNode struct {
	podresources.UnimplementedPodResourcesListerServer
	cluster, node string
	exporterAddr  string
	socket, file  string

	mu    sync.Mutex
	state simState
	pods  map[types.UID]*devicePod
	order []types.UID // of pods, in the order of their binding
}

// devicePod is a pod with devices. It has them from its binding until it ends.
type devicePod struct {
	namespace, name string
	containers      []string            // in the pod's order
	devices         map[string][]string // container -> UUIDs
}

// maxSocketPath is the maximal length of the path of a Unix socket, in bytes.
const maxSocketPath = 104

func (f *Fleet) newSimulatedNode(cluster string, n Node) (*simulatedNode, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &simulatedNode{
		cluster: cluster, node: n.Name, exporterAddr: fmt.Sprintf("127.0.0.1:%d", port),
		socket: filepath.Join(f.opts.Dir, "sockets", n.Name+".sock"),
		file:   filepath.Join(f.opts.Dir, "devices", n.Name+".json"),
		state:  simState{Seed: f.opts.Seed}, pods: map[types.UID]*devicePod{},
	}
	if len(s.socket) > maxSocketPath {
		return nil, fmt.Errorf("the path of a socket has %d bytes, but a Unix socket may have at most %d: use a folder with a shorter path (--dir)", len(s.socket), maxSocketPath)
	}
	for i := range n.GPUs {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", f.opts.Seed, n.Name, i))
		s.state.Devices = append(s.state.Devices, simDevice{
			UUID:  fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
			Model: n.Model.Product, MemoryMiB: n.Model.MemoryMiB, State: DeviceOK, NVSwitch: n.Model.NVSwitch})
	}
	f.mu.Lock()
	f.nodes[n.Name] = s
	f.mu.Unlock()
	return s, s.write()
}

// node returns the simulated node of that name, or nil.
func (f *Fleet) node(name string) *simulatedNode {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[name]
}

// write replaces the exporter's --sim-state file atomically.
func (s *simulatedNode) write() error {
	content, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		return err
	}
	tmp := s.file + ".tmp"
	return errors.Join(os.WriteFile(tmp, content, 0o600), os.Rename(tmp, s.file))
}

// serve serves the kubelet's PodResources API on the node's socket until lifetime
// ends.
func (s *simulatedNode) serve(lifetime context.Context, servers *sync.WaitGroup) error {
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
		return err
	}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		return fmt.Errorf("PodResources socket of %s: %w", s.node, err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, s)
	servers.Add(2)
	go func() { defer servers.Done(); _ = server.Serve(listener) }() // returns after Stop
	go func() { defer servers.Done(); <-lifetime.Done(); server.Stop() }()
	return nil
}

// observe updates the devices of a pod: they are allocated once the pod is bound to
// the node, and free once the pod has ended.
func (s *simulatedNode) observe(pod *corev1.Pod, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	_, allocated := s.pods[pod.UID]
	switch {
	case ended && allocated:
		delete(s.pods, pod.UID)
		s.order = slices.DeleteFunc(s.order, func(uid types.UID) bool { return uid == pod.UID })
	case !ended && !allocated:
		s.pods[pod.UID] = s.allocate(pod)
		s.order = append(s.order, pod.UID)
	}
}

// allocate assigns the first free devices to a pod, like the NVIDIA device plugin
// without topology.
func (s *simulatedNode) allocate(pod *corev1.Pod) *devicePod {
	taken := map[string]bool{}
	for _, p := range s.pods {
		for _, uuids := range p.devices {
			for _, uuid := range uuids {
				taken[uuid] = true
			}
		}
	}
	p := &devicePod{namespace: pod.Namespace, name: pod.Name, devices: map[string][]string{}}
	for _, container := range pod.Spec.Containers {
		p.containers = append(p.containers, container.Name)
		wanted := container.Resources.Limits[GPUResource]
		for _, device := range s.state.Devices {
			if int64(len(p.devices[container.Name])) == wanted.Value() {
				break
			}
			if !taken[device.UUID] {
				taken[device.UUID] = true
				p.devices[container.Name] = append(p.devices[container.Name], device.UUID)
			}
		}
	}
	return p
}

// List returns all pods of the node with their devices.
func (s *simulatedNode) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &podresources.ListPodResourcesResponse{}
	for _, uid := range s.order {
		response.PodResources = append(response.PodResources, s.pods[uid].resources())
	}
	return response, nil
}

// Get returns one pod of the node with its devices.
func (s *simulatedNode) Get(_ context.Context, request *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.namespace == request.PodNamespace && p.name == request.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: p.resources()}, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not run on this node", request.PodNamespace, request.PodName)
}

// GetAllocatableResources returns all devices of the node, including lost ones, as
// the kubelet does.
func (s *simulatedNode) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	devices := &podresources.ContainerDevices{ResourceName: GPUResource}
	for _, device := range s.state.Devices {
		devices.DeviceIds = append(devices.DeviceIds, device.UUID)
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{devices}}, nil
}

func (p *devicePod) resources() *podresources.PodResources {
	out := &podresources.PodResources{Name: p.name, Namespace: p.namespace}
	for _, name := range p.containers {
		container := &podresources.ContainerResources{Name: name}
		if uuids := p.devices[name]; len(uuids) > 0 {
			container.Devices = []*podresources.ContainerDevices{{ResourceName: GPUResource, DeviceIds: uuids}}
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// ExporterShowsLoad returns whether the exporters of a cluster report at least this
// utilization, in percent, for all devices.
func (f *Fleet) ExporterShowsLoad(ctx context.Context, cluster string, percent float64) (bool, error) {
	for _, s := range f.simulatedNodes([]string{cluster}) {
		families, err := scrape(ctx, s.exporterAddr)
		if err != nil {
			return false, err
		}
		family := families["DCGM_FI_DEV_GPU_UTIL"]
		if family == nil {
			return false, fmt.Errorf("the exporter of %s has no DCGM_FI_DEV_GPU_UTIL", s.node)
		}
		for _, m := range family.Metric {
			if m.GetGauge().GetValue() < percent {
				return false, nil
			}
		}
	}
	return true, nil
}

// scrape returns the metrics of the exporter at addr by name.
func scrape(ctx context.Context, addr string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := httpPlain.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", addr, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}
