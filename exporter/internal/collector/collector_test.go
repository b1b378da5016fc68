package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sort"
	"strings"
	"sync"
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

// box is a source of eight devices whose state a test sets.
type box struct {
	mu     sync.Mutex
	lost   map[string]bool
	fails  map[string]bool
	noXIDs bool
	stall  chan struct{} // listing waits for it
	hung   map[string]chan struct{}
	reads  map[string]int
	xids   []device.XID
	err    error

	instances   []device.Instance                        // of the first device
	tell        func(d device.Device, r *device.Reading) // a reading, instead of ours
	facts       device.Facts
	clockEvents *float64 // that every device tells; none for nil
}

func uuid(i int) string { return "GPU-" + strings.Repeat(string(rune('a'+i)), 4) }

func (b *box) Devices(context.Context) ([]device.Device, error) {
	b.mu.Lock()
	stall := b.stall
	b.mu.Unlock()
	if stall != nil {
		<-stall
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var devices []device.Device
	for i := range 8 {
		devices = append(devices, device.Device{UUID: uuid(i), Index: i, Minor: "nvidia" + string(rune('0'+i)),
			PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, Links: []string{device.NVSwitch}, Driver: "580.1", ReportsXIDs: !b.noXIDs, Facts: b.facts})
	}
	return devices, b.err
}

func (b *box) Read(_ context.Context, d device.Device) (device.Reading, error) {
	b.mu.Lock()
	if b.reads == nil {
		b.reads = map[string]int{}
	}
	b.reads[d.UUID]++
	stall, lost, fails := b.hung[d.UUID], b.lost[d.UUID], b.fails[d.UUID]
	b.mu.Unlock()
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
	if b.tell != nil {
		b.tell(d, &r)
		return r, nil
	}
	if d.Instance != nil {
		r.Set(device.FBUsed, 700)
		return r, nil
	}
	if d.Index == 0 && b.instances != nil {
		r.MIG = true
		for _, i := range b.instances {
			part := d
			i.Parent = d.UUID
			part.UUID, part.Instance = fmt.Sprintf("MIG-%d-%d-%d", d.Index, i.GI, i.CI), &i
			r.Instances = append(r.Instances, part)
		}
	}
	r.Set(device.GPUUtil, float64(10+d.Index))
	r.Set(device.PowerUsage, 300)
	r.Set(device.PowerLimit, 700)
	r.Set(device.ThermalViolation, 2.5e9)
	r.Set(device.NVLinkTx, 4096)
	if b.clockEvents != nil {
		r.Set(device.ClockEvents, *b.clockEvents)
	}
	r.Set(device.FBFree, 80_000)
	r.Set(device.ThermalMargin, -3)
	r.Set(device.MemoryTemp, 1000) // drivers do
	r.Set(device.PCIeRxBytes, math.NaN())
	return r, nil
}

func (b *box) XIDs() []device.XID {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.xids
	b.xids = nil
	return x
}
func (b *box) Close() error { return nil }

// kubelet answers PodResources on a socket.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu     sync.Mutex
	held   map[string][]string // "namespace/pod/container" -> device ids
	server *grpc.Server

	resource string   // nvidia.com/gpu without another
	ids      []string // of its devices

	uncounted bool // GetAllocatableResources fails
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	var names []string
	for name := range k.held {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		p := strings.Split(name, "/")
		out.PodResources = append(out.PodResources, &podresources.PodResources{Namespace: p[0], Name: p[1],
			Containers: []*podresources.ContainerResources{{Name: p[2], Devices: []*podresources.ContainerDevices{
				{ResourceName: cmp.Or(k.resource, "nvidia.com/gpu"), DeviceIds: k.held[name]}}}}})
	}
	return out, nil
}

func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	if k.uncounted {
		return nil, errors.New("unimplemented")
	}
	ids := k.ids
	for i := range 8 {
		if k.resource == "" {
			ids = append(ids, uuid(i))
		}
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: cmp.Or(k.resource, "nvidia.com/gpu"), DeviceIds: ids}}}, nil
}

func (k *kubelet) start(t *testing.T, socket string) {
	t.Helper()
	k.server = serveKubelet(t, k, socket)
}

// serveKubelet until the test ends, or until it is stopped.
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
	box     *box
	kubelet *kubelet
	socket  string
}

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{box: &box{lost: map[string]bool{}, hung: map[string]chan struct{}{}},
		kubelet: &kubelet{held: map[string][]string{}}, socket: filepath.Join(t.TempDir(), "k.sock")}
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
	f.Collector = New(Config{Node: "node-1", Interval: time.Second, Deadline: 50 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler)}, f.box, pods)
	return f
}

// scrape the handler as Prometheus would, and read the text with its parser.
func (f *fixture) scrape(t *testing.T) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if response.Code != http.StatusOK {
		t.Fatalf("scrape answers %d: %s", response.Code, response.Body)
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

// value of the one series with these labels.
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

func states(t *testing.T, families map[string]*dto.MetricFamily) [4]float64 {
	t.Helper()
	var out [4]float64
	for i, state := range []string{"allocatable", "allocated", "free", "unhealthy"} {
		out[i] = value(t, families, "plimsoll_node_devices", "node", "node-1", "resource", "nvidia.com/gpu", "model", "NVIDIA-H100-80GB-HBM3", "state", state)
	}
	return out
}

func TestFreeIsAllocatableMinusHeldMinusUnhealthy(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/train-0/main"] = []string{uuid(0), uuid(1), uuid(2)}
	f.box.lost[uuid(2)] = true // held and lost: not free, once
	f.box.lost[uuid(7)] = true
	families, _ := f.collect(t)
	if got, want := states(t, families), [4]float64{8, 3, 4, 2}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy = %v, want %v", got, want)
	}
	if got := value(t, families, "plimsoll_node_largest_free_group", "model", "NVIDIA-H100-80GB-HBM3"); got != 4 {
		t.Errorf("NVLink connects %g of the 4 free devices", got)
	}
	if got := value(t, families, "plimsoll_device_lost", "uuid", uuid(7)); got != 1 {
		t.Fatalf("plimsoll_device_lost = %g", got)
	}
}

func TestSharedDevicesAreNeverFree(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/notebook/main"] = []string{uuid(0) + "::3"}
	families, _ := f.collect(t)
	if got, want := states(t, families), [4]float64{8, 1, 7, 0}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy = %v, want %v", got, want)
	}
}

func TestTwoReplicasInOneContainerAreOneSeries(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/serve/main"] = []string{uuid(0) + "::0", uuid(0) + "::1"}
	families, text := f.collect(t)
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		series, _, _ := strings.Cut(line, "} ")
		if seen[series] && !strings.HasPrefix(line, "#") {
			t.Errorf("twice: %s", series)
		}
		seen[series] = true
	}
	if got := value(t, families, "plimsoll_device_owner_info", "uuid", uuid(0), "pod", "serve"); got != 1 {
		t.Errorf("its holder is not named:\n%s", text)
	}
}

func TestLabelsAreDCGMExportersInItsOrder(t *testing.T) {
	f := setup(t)
	f.kubelet.held[`team-a/tr"ain/main`] = []string{uuid(0)}
	_, text := f.collect(t)
	for _, want := range []string{
		`DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1",container="main",namespace="team-a",pod="tr\"ain"} 10`,
		`DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-bbbb",pci_bus_id="00000000:1B:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1"} 11`,
		"# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing line: %s", want)
		}
	}
	if strings.Contains(text, "DCGM_FI_DEV_SM_CLOCK") {
		t.Error("a field that the device does not tell is exposed")
	}
}

func TestAHungDeviceCostsNoOtherItsMetrics(t *testing.T) {
	f := setup(t)
	stall := make(chan struct{})
	f.box.hung[uuid(3)] = stall
	f.collect(t)
	families, _ := f.collect(t)
	if n := len(families["DCGM_FI_DEV_GPU_UTIL"].Metric); n != 7 {
		t.Fatalf("%d devices have fresh values, want the 7 others", n)
	}
	if got := value(t, families, "plimsoll_device_hung", "uuid", uuid(3)); got != 1 {
		t.Fatalf("plimsoll_device_hung = %g", got)
	}
	if got, want := states(t, families), [4]float64{8, 0, 7, 1}; got != want {
		t.Fatalf("allocatable, allocated, free, unhealthy = %v, want %v", got, want)
	}
	f.box.mu.Lock()
	reads := f.box.reads[uuid(3)]
	delete(f.box.hung, uuid(3))
	f.box.mu.Unlock()
	if reads != 1 {
		t.Fatalf("the stalled device was called %d times, want once until it returns", reads)
	}
	close(stall)
	for {
		families, _ = f.collect(t)
		if value(t, families, "plimsoll_device_hung", "uuid", uuid(3)) == 0 {
			break
		}
	}
	if n := len(families["DCGM_FI_DEV_GPU_UTIL"].Metric); n != 8 {
		t.Fatalf("%d devices after the stall, want 8", n)
	}
}

// The driver serializes calls on a lock: when every device hangs, it is held.
func TestWhenEveryDeviceHangsTheDriverIsStalled(t *testing.T) {
	f := setup(t)
	release := make(chan struct{})
	for i := range 7 {
		f.box.hung[uuid(i)] = release
	}
	families, _ := f.collect(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 0 || f.Healthy() != nil {
		t.Error("the driver is called stalled although a device answers")
	}
	f.box.mu.Lock()
	f.box.hung[uuid(7)] = release
	f.box.mu.Unlock()
	families, _ = f.collect(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 1 || f.Healthy() == nil {
		t.Error("no device answers, and the driver is said to")
	}
	close(release)
	for value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 0 {
		families, _ = f.collect(t)
	}
	if err := f.Healthy(); err != nil {
		t.Error(err)
	}
}

func TestWithoutTheKubeletNothingIsSaidToBeFree(t *testing.T) {
	f := setup(t)
	f.kubelet.server.Stop()
	families, _ := f.collect(t)
	if families["plimsoll_node_devices"] != nil {
		t.Fatal("devices are counted although nobody knows who holds them")
	}
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "kubelet does not answer"); got != 8 {
		t.Fatalf("unmapped = %g, want 8", got)
	}
	f.kubelet.start(t, f.socket)
	families, _ = f.collect(t)
	if got, want := states(t, families), [4]float64{8, 0, 8, 0}; got != want {
		t.Fatalf("after the kubelet came back: %v, want %v", got, want)
	}
}

func TestXIDsAreCountedAndLatched(t *testing.T) {
	f := setup(t)
	f.box.xids = []device.XID{{UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 13}}
	families, _ := f.collect(t)
	if got := value(t, families, "plimsoll_xid_total", "uuid", uuid(2), "xid", "79", "severity", "critical"); got != 2 {
		t.Errorf("XID 79 counted %g times, want 2", got)
	}
	if got := value(t, families, "DCGM_FI_DEV_XID_ERRORS", "UUID", uuid(2), "err_code", "13"); got != 13 {
		t.Errorf("the last XID is %g, want 13", got)
	}
}

func TestWithoutEventsNoXIDIsSaidToBeTheLast(t *testing.T) {
	f := setup(t)
	f.box.noXIDs = true
	if families, _ := f.collect(t); families["DCGM_FI_DEV_XID_ERRORS"] != nil {
		t.Error("an XID of 0 although nobody watches for any")
	}
}

func TestHealthTellsThatCollectionFails(t *testing.T) {
	f := setup(t)
	health := func() int {
		response := httptest.NewRecorder()
		f.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/health", nil))
		return response.Code
	}
	if got := health(); got != http.StatusServiceUnavailable {
		t.Fatalf("before any collection: %d", got)
	}
	f.collect(t)
	if got := health(); got != http.StatusOK {
		t.Fatalf("after a collection: %d", got)
	}
	f.box.err = io.ErrUnexpectedEOF
	if err := f.Collect(t.Context()); err == nil {
		t.Fatal("a source that can't list its devices is no error")
	}
	f.cfg.Now = func() time.Time { return time.Now().Add(11 * time.Second) }
	if got := health(); got != http.StatusServiceUnavailable {
		t.Fatalf("with a snapshot of 11 s ago: %d", got)
	}
}

func TestWhatFollowsFromAReadingIsInBaseUnits(t *testing.T) {
	f := setup(t)
	families, text := f.collect(t)
	if got := value(t, families, "plimsoll_device_throttled_seconds_total", "uuid", uuid(1), "reason", "thermal"); got != 2.5 {
		t.Errorf("throttled by heat for %g s", got)
	}
	if got := value(t, families, "plimsoll_device_power_headroom_watts", "uuid", uuid(1)); got != 400 {
		t.Errorf("%g W of headroom", got)
	}
	if got := value(t, families, "plimsoll_device_nvlink_bytes_total", "uuid", uuid(1), "direction", "transmit"); got != 4096 {
		t.Errorf("%g bytes sent", got)
	}
	if got := value(t, families, "plimsoll_device_memory_headroom_bytes", "uuid", uuid(1)); got != 80_000<<20 {
		t.Errorf("%g bytes of memory left", got)
	}
	if got := value(t, families, "plimsoll_device_thermal_headroom_celsius", "uuid", uuid(1)); got != -3 {
		t.Errorf("%g degrees left", got)
	}
	for _, absent := range []string{`reason="power"`, `direction="receive"`} {
		if strings.Contains(text, absent) {
			t.Errorf("%s, which the device did not tell, is there", absent)
		}
	}
}

func TestValuesThatCannotBeAreLeftOutAndCounted(t *testing.T) {
	f := setup(t)
	f.collect(t)
	families, _ := f.collect(t)
	if families["DCGM_FI_DEV_MEMORY_TEMP"] != nil {
		t.Error("1000 degrees are exposed")
	}
	for _, field := range []string{"DCGM_FI_DEV_MEMORY_TEMP", "plimsoll_device_pcie_bytes_total_receive"} {
		if got := value(t, families, "plimsoll_exporter_bogus_values_total", "uuid", uuid(1), "field", field); got != 2 {
			t.Errorf("%s was left out %g times of 2", field, got)
		}
	}
	if n := len(families["plimsoll_exporter_bogus_values_total"].Metric); n != 16 {
		t.Errorf("%d series, want one for each field of 8 devices that gave nonsense", n)
	}
}

func TestEveryFieldHasAName(t *testing.T) {
	for f := range device.NumFields {
		if fieldName(f) == "" {
			t.Errorf("field %d has none", f)
		}
	}
}

func TestADeviceThatAnswersWithErrorsIsNotFree(t *testing.T) {
	f := setup(t)
	f.box.fails = map[string]bool{uuid(2): true}
	families, text := f.collect(t)
	if got, want := states(t, families), [4]float64{8, 0, 7, 1}; got != want {
		t.Errorf("allocatable, allocated, free, unhealthy: %v, want %v", got, want)
	}
	if value(t, families, "plimsoll_device_failed", "uuid", uuid(2)) != 1 || value(t, families, "plimsoll_device_failed", "uuid", uuid(1)) != 0 {
		t.Errorf("plimsoll_device_failed does not tell which:\n%s", text)
	}
	if strings.Contains(text, `DCGM_FI_DEV_GPU_UTIL{gpu="2"`) {
		t.Errorf("a value that was not read:\n%s", text)
	}
	f.box.fails = nil
	if families, _ = f.collect(t); value(t, families, "plimsoll_device_failed", "uuid", uuid(2)) != 0 {
		t.Error("it answers again and is still called failed")
	}
}

func TestAStalledDriverIsToldAndServedAround(t *testing.T) {
	f := setup(t)
	f.collect(t)
	release := make(chan struct{})
	f.box.stall = release
	for range 2 {
		if err := f.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "the driver does not answer") {
			t.Fatalf("a stalled listing: %v", err)
		}
	}
	families, _ := f.scrape(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 1 || value(t, families, "DCGM_FI_DEV_GPU_UTIL", "gpu", "3") != 13 {
		t.Error("the scrape does not tell, or lost what was known")
	}
	if err := f.Healthy(); err == nil {
		t.Error("healthy with a driver that does not answer")
	}
	f.box.mu.Lock()
	f.box.stall = nil
	f.box.mu.Unlock()
	close(release)
	families, _ = f.collect(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 0 || f.Healthy() != nil {
		t.Error("it answers again and is still called stalled")
	}
}
