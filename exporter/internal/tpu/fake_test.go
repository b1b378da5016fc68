package tpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// schema defines the messages of the runtime metric service used by the exporter. The fake
// encodes them with the protobuf library instead of the code under test. A message is a list of
// NAME TYPE NUMBER. A type starts with * if repeated and with ? if optional.
var schema = map[string]string{
	"MetricRequest":                "metric_name string 1;skip_node_aggregation bool 2",
	"MetricResponse":               "metric TPUMetric 1",
	"TPUMetric":                    "name string 1;description string 2;metrics *Metric 3",
	"Metric":                       "attribute Attribute 1;timestamp Timestamp 2;gauge Gauge 3;counter Counter 4;start_timestamp Timestamp 7",
	"Timestamp":                    "seconds int64 1;nanos int32 2",
	"Attribute":                    "key string 1;value AttrValue 2",
	"AttrValue":                    "string_attr ?string 1;bool_attr ?bool 2;int_attr ?int64 3;double_attr ?double 4;kvlist_attr KeyValueList 6;bytes_attr ?bytes 7",
	"KeyValueList":                 "attributes *Attribute 1",
	"Gauge":                        "as_double ?double 1;as_int ?int64 2;as_string ?string 3;as_bool ?bool 4",
	"Counter":                      "as_double ?double 1;as_int ?uint64 2",
	"ListSupportedMetricsRequest":  "filter string 1",
	"ListSupportedMetricsResponse": "supported_metric *SupportedMetric 1",
	"SupportedMetric":              "metric_name string 1",
	"GetTpuRuntimeStatusRequest":   "include_hlo_info bool 1",
	"GetTpuRuntimeStatusResponse":  "host_name ?string 1;core_states *CoreState 2",
	"CoreState":                    "key int32 1;value CurrentCoreStateSummary 2", // a map entry
	"CurrentCoreStateSummary":      "core_id TpuCoreIdentifier 1;sequencer_info *SequencerInfo 2;queued_program_info *QueuedProgramInfo 6",
	"TpuCoreIdentifier":            "global_core_id ?int32 1;chip_id ?int32 2",
	"SequencerInfo":                "sequencer_type ?int32 1;sequencer_index ?int32 2;pc ?int64 3;tag ?int64 4;run_id ?int64 7",
	"QueuedProgramInfo":            "run_id ?int64 1;launch_id ?int64 2",
}

var messages = sync.OnceValue(func() protoreflect.MessageDescriptors {
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("tpu.proto"), Package: proto.String("t"), Syntax: proto.String("proto3")}
	for name, fields := range schema {
		m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		for text := range strings.SplitSeq(fields, ";") {
			var field, kind string
			var number int32
			if _, err := fmt.Sscan(text, &field, &kind, &number); err != nil {
				panic(err)
			}
			m.Field = append(m.Field, fieldDescriptor(m, field, kind, number))
		}
		file.MessageType = append(file.MessageType, m)
	}
	descriptor, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return descriptor.Messages()
})

func fieldDescriptor(m *descriptorpb.DescriptorProto, name, kind string, number int32) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	if rest, ok := strings.CutPrefix(kind, "*"); ok {
		kind, f.Label = rest, descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	if rest, ok := strings.CutPrefix(kind, "?"); ok {
		kind, f.Proto3Optional, f.OneofIndex = rest, proto.Bool(true), proto.Int32(int32(len(m.OneofDecl)))
		m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + name)})
	}
	if n, ok := descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+strings.ToUpper(kind)]; ok {
		f.Type = descriptorpb.FieldDescriptorProto_Type(n).Enum()
		return f
	}
	f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".t."+kind)
	return f
}

// newMessage returns a message of the schema, parsed from the text format.
func newMessage(name, text string) *dynamicpb.Message {
	m := dynamicpb.NewMessage(messages().ByName(protoreflect.Name(name)))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		panic(fmt.Sprintf("%s: %v in\n%s", name, err, text))
	}
	return m
}

// fakeRuntime is a fake runtime metric service.
type fakeRuntime struct {
	address string

	mu        sync.Mutex
	metrics   map[string]string // metrics of a TPUMetric in text format, by name
	unlisted  map[string]bool   // metrics missing in the list of supported metrics
	status    string            // GetTpuRuntimeStatusResponse in text format; without it the call is not implemented
	err       error             // returned by every call
	stopsSoon bool              // the service stops after the list of supported metrics
	hang      chan struct{}     // calls wait until it is closed
	requested []string          // requested metrics
	ownOnly   bool              // the last request was for the own process only
	server    *grpc.Server
	stopped   chan struct{}
}

// startRuntime starts a runtime metric service with metrics in text format, by name.
func startRuntime(t *testing.T, metrics map[string]string) *fakeRuntime {
	t.Helper()
	f := &fakeRuntime{metrics: metrics, unlisted: map[string]bool{}, address: "127.0.0.1:0"}
	f.serve(t)
	t.Cleanup(f.stop)
	return f
}

func (f *fakeRuntime) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	f.address = listener.Addr().String()
	f.server = grpc.NewServer(grpc.UnknownServiceHandler(f.handle))
	f.stopped = make(chan struct{})
	go func(s *grpc.Server, stopped chan struct{}) {
		defer close(stopped)
		_ = s.Serve(listener) // returns after Stop
	}(f.server, f.stopped)
}

func (f *fakeRuntime) stop() {
	f.server.Stop()
	<-f.stopped
}

// update calls change while no call is in progress.
func (f *fakeRuntime) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRuntime) handle(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method := strings.TrimPrefix(full, "/tpu.monitoring.runtime.RuntimeMetricService/")
	request := map[string]string{"ListSupportedMetrics": "ListSupportedMetricsRequest", "GetRuntimeMetric": "MetricRequest", "GetTpuRuntimeStatus": "GetTpuRuntimeStatusRequest"}[method]
	if request == "" {
		return status.Error(codes.Unimplemented, full)
	}
	in := newMessage(request, "")
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if hang := f.hang; hang != nil {
		f.mu.Unlock()
		<-hang
		f.mu.Lock()
	}
	out, err := f.respond(method, in)
	if err != nil {
		return err
	}
	return stream.SendMsg(out)
}

func (f *fakeRuntime) respond(method string, in *dynamicpb.Message) (proto.Message, error) {
	switch {
	case f.err != nil:
		return nil, f.err
	case method == "ListSupportedMetrics":
		text := ""
		for name := range f.metrics {
			if !f.unlisted[name] {
				text += fmt.Sprintf("supported_metric{metric_name:%q}", name)
			}
		}
		return newMessage("ListSupportedMetricsResponse", text), nil
	case f.stopsSoon:
		go f.server.Stop()
		return nil, status.Error(codes.Unavailable, "stopped")
	case method == "GetTpuRuntimeStatus" && f.status == "":
		return nil, status.Error(codes.Unimplemented, method)
	case method == "GetTpuRuntimeStatus":
		return newMessage("GetTpuRuntimeStatusResponse", f.status), nil
	}
	name := in.Get(in.Descriptor().Fields().ByName("metric_name")).String()
	f.requested = append(f.requested, name)
	f.ownOnly = in.Get(in.Descriptor().Fields().ByName("skip_node_aggregation")).Bool()
	if text := f.metrics[name]; text != "garbage" {
		return newMessage("MetricResponse", fmt.Sprintf("metric{name:%q %s}", name, text)), nil
	}
	garbage := newMessage("MetricResponse", "")
	garbage.SetUnknown([]byte{0x0a, 0x03, 0xff, 0xff, 0xff}) // the metric is not a valid message
	return garbage, nil
}

// gauges returns a metric in text format with a gauge per device. The device numbers start at
// first.
func gauges(first int, kind string, each ...float64) string {
	var b strings.Builder
	for i, v := range each {
		fmt.Fprintf(&b, `metrics{attribute{key:"device-id" value{int_attr:%d}} gauge{%s:%s}}`, first+i, kind, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return b.String()
}

// fakeSysfs creates a sysfs with chips of PCI device IDs, or DEVICE/SUBSYSTEM, and returns its
// path.
func fakeSysfs(t *testing.T, ids ...string) string {
	t.Helper()
	root := t.TempDir()
	for i, id := range ids {
		address := fmt.Sprintf("0000:00:%02x.0", 4+i)
		id, subsystem, _ := strings.Cut(id, "/")
		path := addPCIDevice(t, root, address, map[string]string{"vendor": googleVendor, "device": id, "subsystem_device": subsystem})
		if err := os.Symlink(fmt.Sprintf("../../../kernel/iommu_groups/%d", i), filepath.Join(path, "iommu_group")); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// addPCIDevice adds a PCI device to a fake sysfs and returns its path.
func addPCIDevice(t *testing.T, root, address string, attributes map[string]string) string {
	t.Helper()
	path := filepath.Join(root, "bus/pci/devices", address)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range attributes {
		if err := os.WriteFile(filepath.Join(path, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// newSource returns a source with a fake sysfs and the services at addresses.
func newSource(sysfs string, addresses ...string) *Source {
	return New(Options{Sysfs: sysfs, Runtimes: addresses, Log: slog.New(slog.DiscardHandler)})
}

// newSourceWithProcfs returns a source with a fake sysfs and the fake procfs below root. Its
// default port is 9.
func newSourceWithProcfs(sysfs, root string) *Source {
	return New(Options{Sysfs: sysfs, Procfs: filepath.Join(root, "proc"), Dev: filepath.Join(root, "dev"), Ports: "9", Log: slog.New(slog.DiscardHandler)})
}

// fibTrie is /proc/PID/net/fib_trie of a pod. The argument is the pod IP.
const fibTrie = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     |-- %[1]s
        /32 host LOCAL
`

// addOwnNamespace adds the exporter's own process, in the namespaces net:[1] and pid:[1].
func addOwnNamespace(t *testing.T, root string) {
	t.Helper()
	addFakeProcess(t, root, fakeProcess{pid: 1, namespace: "net:[1]", ip: "10.0.0.1"})
	if err := os.Symlink("1", filepath.Join(root, "proc/self")); err != nil {
		t.Fatal(err)
	}
}

// fakeProcess is a process with open device nodes.
type fakeProcess struct {
	pid           int
	namespace, ip string // of its network
	inet6         string // /proc/PID/net/if_inet6; the file is missing if empty
	environ       string // an environment variable
	nodes         []string
}

// addFakeProcess adds a process to the fake procfs below root. It is in a PID namespace of its own.
func addFakeProcess(t *testing.T, root string, p fakeProcess) {
	t.Helper()
	dir := filepath.Join(root, "proc", strconv.Itoa(p.pid))
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "fd"), 0o755), os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.MkdirAll(filepath.Join(dir, "net"), 0o755),
		os.Symlink(p.namespace, filepath.Join(dir, "ns/net")), os.Symlink(fmt.Sprintf("pid:[%d]", p.pid), filepath.Join(dir, "ns/pid")), os.WriteFile(filepath.Join(dir, "net/fib_trie"), fmt.Appendf(nil, fibTrie, p.ip), 0o600),
		os.WriteFile(filepath.Join(dir, "environ"), []byte("A=b\x00"+p.environ+"\x00"), 0o600), os.Symlink("/dev/null", filepath.Join(dir, "fd/0")))
	if p.inet6 != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "net/if_inet6"), []byte(p.inet6), 0o600))
	}
	for i, node := range p.nodes {
		err = errors.Join(err, os.Symlink(filepath.Join(root, "dev", node), filepath.Join(dir, "fd", strconv.Itoa(3+i))))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readAll lists and reads all devices. The reading of a lost device is empty.
func readAll(t *testing.T, s *Source) []device.Reading {
	t.Helper()
	devices, err := s.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []device.Reading
	for _, d := range devices {
		r, err := s.Read(context.Background(), d)
		if err != nil && !errors.Is(err, device.ErrLost) {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// valuesOf returns the value of a field in each reading, or "-" where the field is absent.
func valuesOf(readings []device.Reading, f device.Field) string {
	var cells []string
	for _, r := range readings {
		if v, ok := r.Get(f); ok {
			cells = append(cells, fmt.Sprintf("%g", v))
		} else {
			cells = append(cells, "-")
		}
	}
	return strings.Join(cells, " ")
}

// startTextServer starts a server that writes text to every connection and closes it.
func startTextServer(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(text)) // the client may have disconnected
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return listener.Addr().String()
}
