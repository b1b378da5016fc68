package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePods is an API server with fixed pods.
type fakePods struct {
	pods        map[string]podmap.Meta
	unreachable bool
}

func (a *fakePods) Pod(namespace, name string) (podmap.Meta, bool) {
	m, ok := a.pods[namespace+"/"+name]
	return m, ok
}

func (a *fakePods) Reachable() bool { return !a.unreachable }

// fakeSource is a source of eight devices whose state a test sets.
type fakeSource struct {
	mu     sync.Mutex
	lost   map[string]bool
	fails  map[string]bool
	noXIDs bool
	stall  chan struct{}            // listings block until it is closed
	hung   map[string]chan struct{} // readings of a device block until it is closed
	reads  map[string]int
	xids   []device.XID
	err    error

	instances   []device.Instance                        // of the first device
	override    func(d device.Device, r *device.Reading) // replaces the default values
	facts       device.Facts
	clockEvents *float64 // of every device; nil if not reported
}

func uuid(i int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i) }

func migUUID(device, gi, ci int) string {
	return fmt.Sprintf("MIG-%08d-%04d-%04d-8000-000000000000", device, gi, ci)
}

func (s *fakeSource) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	stall := s.stall
	s.mu.Unlock()
	if stall != nil {
		<-stall
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var devices []device.Device
	for i := range 8 {
		devices = append(devices, device.Device{UUID: uuid(i), Index: i, Minor: "nvidia" + string(rune('0'+i)),
			PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, Links: []string{device.NVSwitch}, Driver: "580.1", ReportsXIDs: !s.noXIDs, Facts: s.facts})
	}
	return devices, s.err
}

func (s *fakeSource) Read(_ context.Context, d device.Device) (device.Reading, error) {
	s.mu.Lock()
	if s.reads == nil {
		s.reads = map[string]int{}
	}
	s.reads[d.UUID]++
	stall, lost, fails := s.hung[d.UUID], s.lost[d.UUID], s.fails[d.UUID]
	s.mu.Unlock()
	if stall != nil {
		<-stall
	}
	if lost {
		return device.Reading{}, device.ErrLost
	}
	if fails {
		return device.Reading{}, errors.New("GPU requires reset")
	}
	r := device.Reading{Time: time.Now()}
	if s.override != nil {
		s.override(d, &r)
		return r, nil
	}
	if d.Instance != nil {
		r.Set(device.FBUsed, 700)
		return r, nil
	}
	if d.Index == 0 && s.instances != nil {
		r.MIG = true
		for _, i := range s.instances {
			part := d
			i.Parent = d.UUID
			part.UUID, part.Instance = migUUID(d.Index, i.GI, i.CI), &i
			r.Instances = append(r.Instances, part)
		}
	}
	r.Set(device.GPUUtil, float64(10+d.Index))
	r.Set(device.PowerUsage, 300)
	r.Set(device.PowerLimit, 700)
	r.Set(device.ThermalViolation, 2.5e9)
	r.Set(device.NVLinkTx, 4096)
	if s.clockEvents != nil {
		r.Set(device.ClockEvents, *s.clockEvents)
	}
	r.Set(device.FBFree, 80_000)
	r.Set(device.ThermalMargin, -3)
	r.Set(device.MemoryTemp, 1000) // some drivers report such values
	r.Set(device.PCIeRxBytes, math.NaN())
	return r, nil
}

func (s *fakeSource) XIDs() []device.XID {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.xids
	s.xids = nil
	return x
}

func (s *fakeSource) Close() error { return nil }

// fakeKubelet serves PodResources on a socket.
type fakeKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu       sync.Mutex
	holdings map[string][]string // device ids by namespace/pod/container
	claims   map[string][]string // devices of resource claims by namespace/pod/container
	server   *grpc.Server

	resource  string   // default nvidia.com/gpu
	driver    string   // of resource claims; default gpu.nvidia.com
	ids       []string // additional allocatable devices
	noDevices bool     // the devices of the source are not allocatable

	failAllocatable bool         // GetAllocatableResources returns an error
	lists           atomic.Int64 // number of List calls
}

func (k *fakeKubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.lists.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	for _, name := range slices.Sorted(maps.Keys(k.holdings)) {
		out.PodResources = append(out.PodResources, podWith(name, &podresources.ContainerResources{
			Devices: []*podresources.ContainerDevices{{ResourceName: cmp.Or(k.resource, "nvidia.com/gpu"), DeviceIds: k.holdings[name]}}}))
	}
	for _, name := range slices.Sorted(maps.Keys(k.claims)) {
		claim := &podresources.DynamicResource{ClaimName: "claim", ClaimNamespace: "ml"}
		for _, id := range k.claims[name] {
			claim.ClaimResources = append(claim.ClaimResources, &podresources.ClaimResource{DriverName: cmp.Or(k.driver, "gpu.nvidia.com"), PoolName: "node-1", DeviceName: id})
		}
		out.PodResources = append(out.PodResources, podWith(name, &podresources.ContainerResources{DynamicResources: []*podresources.DynamicResource{claim}}))
	}
	return out, nil
}

// podWith returns a pod with one container, both named by namespace/pod/container.
func podWith(name string, c *podresources.ContainerResources) *podresources.PodResources {
	part := strings.Split(name, "/")
	c.Name = part[2]
	return &podresources.PodResources{Namespace: part[0], Name: part[1], Containers: []*podresources.ContainerResources{c}}
}

func (k *fakeKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	if k.failAllocatable {
		return nil, errors.New("unimplemented")
	}
	ids := k.ids
	for i := range 8 {
		if k.resource == "" && !k.noDevices {
			ids = append(ids, uuid(i))
		}
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: cmp.Or(k.resource, "nvidia.com/gpu"), DeviceIds: ids}}}, nil
}

func (k *fakeKubelet) start(t testing.TB, socket string) {
	t.Helper()
	k.server = serveKubelet(t, k, socket)
}

// serveKubelet serves PodResources until the test ends or the server is stopped.
func serveKubelet(t testing.TB, k podresources.PodResourcesListerServer, socket string) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return server
}

type fixture struct {
	*Collector
	source  *fakeSource
	kubelet *fakeKubelet
	socket  string
}

// longDeadline is never exceeded by a device that responds, also on a busy machine. hangDeadline is
// that of tests in which a call hangs, which wait for it.
const longDeadline, hangDeadline = time.Minute, 200 * time.Millisecond

func setup(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{source: &fakeSource{lost: map[string]bool{}, hung: map[string]chan struct{}{}},
		kubelet: &fakeKubelet{holdings: map[string][]string{}}, socket: filepath.Join(t.TempDir(), "k.sock")}
	f.kubelet.start(t, f.socket)
	pods, err := podmap.New(f.socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Close(); err != nil {
			t.Error(err)
		}
	})
	f.Collector = New(Config{Node: "node-1", Interval: time.Second, Deadline: longDeadline,
		Log: slog.New(slog.DiscardHandler)}, pods, NamedSource{Source: f.source})
	return f
}

// scrape requests /metrics and parses the response with Prometheus' parser.
func (f *fixture) scrape(t *testing.T) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if response.Code != http.StatusOK {
		t.Fatalf("scrape returns %d: %s", response.Code, response.Body)
	}
	text := response.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the exposition does not parse: %v\n%s", err, text)
	}
	return families, text
}

func (f *fixture) collect(t *testing.T) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f.scrape(t)
}

// value returns the value of the first series with these labels.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	family := families[name]
	if family == nil {
		t.Fatalf("no %s", name)
	}
series:
	for _, m := range family.Metric {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		for i := 0; i < len(labels); i += 2 {
			if have[labels[i]] != labels[i+1] {
				continue series
			}
		}
		return m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	t.Fatalf("no %s with %v", name, labels)
	return 0
}

func (f *fixture) get(accept, encoding string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", encoding)
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, request)
	return response
}

// singleSource is a source of one device whose listing a test can stall or fail.
type singleSource struct {
	mu    sync.Mutex
	uuid  string
	stall chan struct{}
	err   error
	lists int
}

func (s *singleSource) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	s.lists++
	stall, err := s.stall, s.err
	s.mu.Unlock()
	if stall != nil {
		<-stall
	}
	if err != nil {
		return nil, err
	}
	return []device.Device{{UUID: s.uuid, Minor: s.uuid, Model: "m"}}, nil
}

func (s *singleSource) Read(context.Context, device.Device) (device.Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := device.Reading{Time: time.Now()}
	r.Set(device.GPUUtil, float64(s.lists))
	return r, nil
}

func (s *singleSource) set(stall chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = stall
}

func (s *singleSource) XIDs() []device.XID { return nil }

func (s *singleSource) Close() error { return nil }
