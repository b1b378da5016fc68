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
	"strconv"
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
	Topology   string      `json:"topology,omitempty"` // of a TPU chip
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
	server        *grpc.Server // nil before serve
	forged        *http.Server // in place of the exporter; nil = none
	resource      corev1.ResourceName
	units         []unit
	hami          bool

	mu    sync.Mutex
	hides bool // pods from the exporter
	state simState
	pods  map[types.UID]*devicePod
	order []types.UID // of pods, in the order of their binding
}

// devicePod is a pod with devices. It has them from its binding until it ends.
type devicePod struct {
	namespace, name string
	containers      []string          // in the pod's order
	devices         map[string][]unit // by container
	share           hamiShare         // of each device
}

// unit is what the device plugin allocates: a whole device, or a replica of it.
type unit struct {
	id     string // as the plugin names it
	device int    // index
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
		state:  simState{Seed: f.opts.Seed}, pods: map[types.UID]*devicePod{}, resource: n.resource(), hami: n.HAMi,
	}
	if len(s.socket) > maxSocketPath {
		return nil, fmt.Errorf("the path of a socket has %d bytes, but a Unix socket may have at most %d: use a folder with a shorter path (--dir)", len(s.socket), maxSocketPath)
	}
	for i := range n.GPUs {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", f.opts.Seed, n.Name, i))
		device := simDevice{
			UUID:  fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
			Model: n.Model.Product, MemoryMiB: n.Model.MemoryMiB, State: DeviceOK, NVSwitch: n.Model.NVSwitch, Topology: n.Topology}
		if n.Utilization != nil {
			device.setUtilization(n.Utilization[i])
		}
		s.state.Devices = append(s.state.Devices, device)
		s.units = append(s.units, n.units(device.UUID, i)...)
	}
	f.mu.Lock()
	f.nodes[n.Name] = s
	f.mu.Unlock()
	return s, s.write()
}

// units returns the units of a device, with the ids of NVIDIA's, HAMi's or Google's device plugin.
func (n Node) units(uuid string, index int) []unit {
	switch {
	case n.Model.TPU:
		return []unit{{strconv.Itoa(index), index}}
	case n.Replicas == 0:
		return []unit{{uuid, index}}
	}
	format := "%s::%d"
	if n.HAMi {
		format = "%s-%d"
	}
	units := make([]unit, n.Replicas)
	for i := range units {
		units[i] = unit{fmt.Sprintf(format, uuid, i), index}
	}
	return units
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

// serve serves the kubelet's PodResources API on the node's socket until stop.
func (s *simulatedNode) serve(servers *sync.WaitGroup) error {
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
		return err
	}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		return fmt.Errorf("PodResources socket of %s: %w", s.node, err)
	}
	s.server = grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s.server, s)
	servers.Add(1)
	go func() { defer servers.Done(); _ = s.server.Serve(listener) }() // returns after stop
	return nil
}

// stop ends serve.
func (s *simulatedNode) stop() {
	if s.server != nil {
		s.server.Stop()
	}
}

// exporter returns the name of the node's exporter among the fleet's programs.
func (s *simulatedNode) exporter() string { return "exporter-" + s.node }

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

// allocate assigns free units to a pod, like the NVIDIA device plugin without topology: the first
// free device, or a replica of the device with the fewest taken ones.
func (s *simulatedNode) allocate(pod *corev1.Pod) *devicePod {
	taken := s.taken()
	p := &devicePod{namespace: pod.Namespace, name: pod.Name, devices: map[string][]unit{}, share: hamiShareOf(pod)}
	full := s.fullDevices(p.share)
	for _, container := range pod.Spec.Containers {
		p.containers = append(p.containers, container.Name)
		wanted := container.Resources.Limits[s.resource]
		for range wanted.Value() {
			if u, ok := s.freeUnit(taken, full); ok {
				taken[u] = true
				p.devices[container.Name] = append(p.devices[container.Name], u)
			}
		}
	}
	return p
}

// taken returns the units that pods hold.
func (s *simulatedNode) taken() map[unit]bool {
	taken := map[unit]bool{}
	for _, p := range s.pods {
		for _, units := range p.devices {
			for _, u := range units {
				taken[u] = true
			}
		}
	}
	return taken
}

// freeUnit returns the first free unit of the device with the fewest taken ones that is not full. ok
// is false if there is none.
func (s *simulatedNode) freeUnit(taken map[unit]bool, full []bool) (best unit, ok bool) {
	held := make([]int, len(s.state.Devices))
	for u := range taken {
		held[u.device]++
	}
	for _, u := range s.units {
		if !taken[u] && !full[u.device] && (!ok || held[u.device] < held[best.device]) {
			best, ok = u, true
		}
	}
	return best, ok
}

// List returns all pods of the node with their devices.
func (s *simulatedNode) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &podresources.ListPodResourcesResponse{}
	if s.hides {
		return response, nil
	}
	for _, uid := range s.order {
		response.PodResources = append(response.PodResources, s.pods[uid].resources(s.resource))
	}
	return response, nil
}

// Get returns one pod of the node with its devices.
func (s *simulatedNode) Get(_ context.Context, request *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.namespace == request.PodNamespace && p.name == request.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: p.resources(s.resource)}, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not run on this node", request.PodNamespace, request.PodName)
}

// GetAllocatableResources returns all devices of the node, including lost ones, as
// the kubelet does.
func (s *simulatedNode) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{containerDevices(s.resource, s.units)}}, nil
}

func containerDevices(name corev1.ResourceName, units []unit) *podresources.ContainerDevices {
	devices := &podresources.ContainerDevices{ResourceName: string(name)}
	for _, u := range units {
		devices.DeviceIds = append(devices.DeviceIds, u.id)
	}
	return devices
}

func (p *devicePod) resources(resource corev1.ResourceName) *podresources.PodResources {
	out := &podresources.PodResources{Name: p.name, Namespace: p.namespace}
	for _, name := range p.containers {
		container := &podresources.ContainerResources{Name: name}
		if units := p.devices[name]; len(units) > 0 {
			container.Devices = []*podresources.ContainerDevices{containerDevices(resource, units)}
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
