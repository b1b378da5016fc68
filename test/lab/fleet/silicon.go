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
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// DeviceState is how a simulated device behaves.
type DeviceState string

// States of a device.
const (
	DeviceOK   DeviceState = "ok"
	DeviceLost DeviceState = "lost"
	DeviceHung DeviceState = "hung"
)

// simDevice and simState are the exporter's --sim-state file.
type simDevice struct {
	UUID       string      `json:"uuid"`
	Model      string      `json:"model"`
	MemoryMiB  int         `json:"memoryMiB"`
	State      DeviceState `json:"state"`
	Background float64     `json:"background"`
	NVSwitch   bool        `json:"nvswitch,omitempty"`
}

type simState struct {
	Seed    int64       `json:"seed"`
	Devices []simDevice `json:"devices"`
}

// siliconNode plays the kubelet's device manager and the devices of one node.
type siliconNode struct {
	podresources.UnimplementedPodResourcesListerServer
	cluster, node string
	exporterAddr  string
	socket, file  string

	mu    sync.Mutex
	state simState
	pods  map[types.UID]*devicePod
	order []types.UID
}

// devicePod holds devices of a node from its binding to its end.
type devicePod struct {
	namespace, name string
	containers      map[string][]string // container -> device UUIDs
	names           []string            // containers, in the pod's order
}

func (f *Fleet) newSiliconNode(cluster string, n Node) (*siliconNode, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &siliconNode{
		cluster: cluster, node: n.Name, exporterAddr: fmt.Sprintf("127.0.0.1:%d", port),
		socket: filepath.Join(f.opts.Dir, "sockets", n.Name+".sock"),
		file:   filepath.Join(f.opts.Dir, "silicon", n.Name+".json"),
		state:  simState{Seed: f.opts.Seed}, pods: map[types.UID]*devicePod{},
	}
	if len(s.socket) > 104 {
		return nil, fmt.Errorf("the path of a socket would be %d bytes, more than a Unix socket may have (104): give the lab a folder with a shorter path (--dir)", len(s.socket))
	}
	for i := range n.GPUs {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", f.opts.Seed, n.Name, i))
		s.state.Devices = append(s.state.Devices, simDevice{
			UUID:  fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
			Model: n.Model.Product, MemoryMiB: n.Model.MemoryMiB, State: DeviceOK, NVSwitch: n.Model.NVSwitch})
	}
	f.sidecarMu.Lock()
	f.nodes[n.Name] = s
	f.sidecarMu.Unlock()
	return s, s.write()
}

// write the devices' state for the exporter, atomically.
func (s *siliconNode) write() error {
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

// serve answers PodResources on the node's socket until life ends.
func (s *siliconNode) serve(life context.Context, servers *sync.WaitGroup) error {
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
	go func() { defer servers.Done(); _ = server.Serve(listener) }() // ends with Stop
	go func() { defer servers.Done(); <-life.Done(); server.Stop() }()
	return nil
}

// observe a pod as the API server shows it: it takes devices when it is bound
// and gives them back when it ends.
func (s *siliconNode) observe(pod *corev1.Pod, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	_, held := s.pods[pod.UID]
	switch {
	case over && held:
		delete(s.pods, pod.UID)
		for i, uid := range s.order {
			if uid == pod.UID {
				s.order = append(s.order[:i:i], s.order[i+1:]...)
				break
			}
		}
	case !over && !held:
		s.pods[pod.UID] = s.allocate(pod)
		s.order = append(s.order, pod.UID)
	}
}

// allocate the first free devices, as the NVIDIA device plugin does without topology.
func (s *siliconNode) allocate(pod *corev1.Pod) *devicePod {
	taken := map[string]bool{}
	for _, p := range s.pods {
		for _, devices := range p.containers {
			for _, uuid := range devices {
				taken[uuid] = true
			}
		}
	}
	p := &devicePod{namespace: pod.Namespace, name: pod.Name, containers: map[string][]string{}}
	for _, container := range pod.Spec.Containers {
		p.names = append(p.names, container.Name)
		wanted := container.Resources.Limits[GPUResource]
		for _, device := range s.state.Devices {
			if int64(len(p.containers[container.Name])) == wanted.Value() {
				break
			}
			if !taken[device.UUID] {
				taken[device.UUID] = true
				p.containers[container.Name] = append(p.containers[container.Name], device.UUID)
			}
		}
	}
	return p
}

// List answers which pod holds which devices.
func (s *siliconNode) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &podresources.ListPodResourcesResponse{}
	for _, uid := range s.order {
		response.PodResources = append(response.PodResources, s.pods[uid].resources())
	}
	return response, nil
}

// Get answers for one pod.
func (s *siliconNode) Get(_ context.Context, request *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.namespace == request.PodNamespace && p.name == request.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: p.resources()}, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not run here", request.PodNamespace, request.PodName)
}

// GetAllocatableResources answers with every device: the kubelet's allocatable
// does not shrink when a device dies.
func (s *siliconNode) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
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
	for _, name := range p.names {
		container := &podresources.ContainerResources{Name: name}
		if devices := p.containers[name]; len(devices) > 0 {
			container.Devices = []*podresources.ContainerDevices{{ResourceName: GPUResource, DeviceIds: devices}}
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// SetDevice makes one device of a node ok, lost or hung.
func (f *Fleet) SetDevice(node string, index int, state DeviceState) error {
	return f.changeSilicon(node, func(s *simState) error {
		if index < 0 || index >= len(s.Devices) {
			return fmt.Errorf("node %s has devices 0 to %d, not %d", node, len(s.Devices)-1, index)
		}
		s.Devices[index].State = state
		return nil
	})
}

// SetBackground sets the utilization, 0..1, that others cause on a node's devices.
func (f *Fleet) SetBackground(node string, utilization float64) error {
	if utilization < 0 || utilization > 1 {
		return fmt.Errorf("utilization must be within 0..1, not %g", utilization)
	}
	return f.changeSilicon(node, func(s *simState) error {
		for i := range s.Devices {
			s.Devices[i].Background = utilization
		}
		return nil
	})
}

func (f *Fleet) changeSilicon(node string, change func(*simState) error) error {
	s := f.nodes[node]
	if s == nil {
		return fmt.Errorf("the lab has no node %q", node)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := change(&s.state); err != nil {
		return err
	}
	return s.write()
}

// SetLoad sets the utilization, 0..1, that others cause on all nodes of a cluster.
func (f *Fleet) SetLoad(cluster string, utilization float64) error {
	for _, s := range f.siliconOf([]string{cluster}) {
		if err := f.SetBackground(s.node, utilization); err != nil {
			return err
		}
	}
	return nil
}

// ExporterShowsLoad is true once every device of a cluster shows at least so
// much utilization, in percent, on its node's own exporter.
func (f *Fleet) ExporterShowsLoad(ctx context.Context, cluster string, percent float64) (bool, error) {
	for _, s := range f.siliconOf([]string{cluster}) {
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

// scrape an exporter.
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
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}
