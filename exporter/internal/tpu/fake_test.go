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

// schema is the service's, as far as it is used, so that the fake speaks protobuf by
// the protobuf library and not by what is tested: NAME of TYPE = NUMBER, * repeated.
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
	"CoreState":                    "key int32 1;value CurrentCoreStateSummary 2", // an entry of a map
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
			m.Field = append(m.Field, describe(m, field, kind, number))
		}
		file.MessageType = append(file.MessageType, m)
	}
	descriptor, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return descriptor.Messages()
})

func describe(m *descriptorpb.DescriptorProto, name, kind string, number int32) *descriptorpb.FieldDescriptorProto {
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

// message of the schema from its text form.
func message(name, text string) *dynamicpb.Message {
	m := dynamicpb.NewMessage(messages().ByName(protoreflect.Name(name)))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		panic(fmt.Sprintf("%s: %v in\n%s", name, err, text))
	}
	return m
}

// libtpu is a runtime metric service whose answers a test sets.
type libtpu struct {
	address string

	mu       sync.Mutex
	metrics  map[string]string // text of a TPUMetric's metrics, by name
	unlisted map[string]bool
	status   string // text of a GetTpuRuntimeStatusResponse; empty = an older runtime, without the call
	fails    error  // of every call
	dies     bool   // after it has listed its metrics
	hangs    chan struct{}
	asked    []string
	alone    bool // the last question was for what this process alone has
	server   *grpc.Server
	ended    chan struct{}
}

// start a service with these metrics.
func start(t *testing.T, metrics map[string]string) *libtpu {
	t.Helper()
	l := &libtpu{metrics: metrics, unlisted: map[string]bool{}, address: "127.0.0.1:0"}
	l.serve(t)
	t.Cleanup(l.stop)
	return l
}

func (l *libtpu) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.address = listener.Addr().String()
	l.server = grpc.NewServer(grpc.UnknownServiceHandler(l.handle))
	l.ended = make(chan struct{})
	go func(s *grpc.Server, ended chan struct{}) {
		defer close(ended)
		_ = s.Serve(listener) // until it is stopped
	}(l.server, l.ended)
}

func (l *libtpu) stop() {
	l.server.Stop()
	<-l.ended
}

func (l *libtpu) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *libtpu) handle(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method := strings.TrimPrefix(full, "/tpu.monitoring.runtime.RuntimeMetricService/")
	request := map[string]string{"ListSupportedMetrics": "ListSupportedMetricsRequest", "GetRuntimeMetric": "MetricRequest", "GetTpuRuntimeStatus": "GetTpuRuntimeStatusRequest"}[method]
	if request == "" {
		return status.Error(codes.Unimplemented, full)
	}
	in := message(request, "")
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if hangs := l.hangs; hangs != nil {
		l.mu.Unlock()
		<-hangs
		l.mu.Lock()
	}
	out, err := l.answer(method, in)
	if err != nil {
		return err
	}
	return stream.SendMsg(out)
}

func (l *libtpu) answer(method string, in *dynamicpb.Message) (proto.Message, error) {
	switch {
	case l.fails != nil:
		return nil, l.fails
	case method == "ListSupportedMetrics":
		text := ""
		for name := range l.metrics {
			if !l.unlisted[name] {
				text += fmt.Sprintf("supported_metric{metric_name:%q}", name)
			}
		}
		return message("ListSupportedMetricsResponse", text), nil
	case l.dies:
		go l.server.Stop()
		return nil, status.Error(codes.Unavailable, "gone")
	case method == "GetTpuRuntimeStatus" && l.status == "":
		return nil, status.Error(codes.Unimplemented, method)
	case method == "GetTpuRuntimeStatus":
		return message("GetTpuRuntimeStatusResponse", l.status), nil
	}
	name := in.Get(in.Descriptor().Fields().ByName("metric_name")).String()
	l.asked = append(l.asked, name)
	l.alone = in.Get(in.Descriptor().Fields().ByName("skip_node_aggregation")).Bool()
	if text := l.metrics[name]; text != "garbage" {
		return message("MetricResponse", fmt.Sprintf("metric{name:%q %s}", name, text)), nil
	}
	garbage := message("MetricResponse", "")
	garbage.SetUnknown([]byte{0x0a, 0x03, 0xff, 0xff, 0xff}) // a metric that is no message
	return garbage, nil
}

// values is a metric with one gauge for each device, numbered from first on.
func values(first int, kind string, each ...float64) string {
	var b strings.Builder
	for i, v := range each {
		fmt.Fprintf(&b, `metrics{attribute{key:"device-id" value{int_attr:%d}} gauge{%s:%s}}`, first+i, kind, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return b.String()
}

// host is a fake sysfs of chips, by PCI device id.
func host(t *testing.T, ids ...string) string {
	t.Helper()
	root := t.TempDir()
	for i, id := range ids {
		address := fmt.Sprintf("0000:00:%02x.0", 4+i)
		id, subsystem, _ := strings.Cut(id, "/")
		path := pci(t, root, address, map[string]string{"vendor": vendor, "device": id, "subsystem_device": subsystem})
		if err := os.Symlink(fmt.Sprintf("../../../kernel/iommu_groups/%d", i), filepath.Join(path, "iommu_group")); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func pci(t *testing.T, root, address string, attributes map[string]string) string {
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

// source over a fake host and the services at addresses.
func source(sysfs string, addresses ...string) *Source {
	return New(Options{Sysfs: sysfs, Runtimes: addresses, Log: slog.New(slog.DiscardHandler)})
}

// read all devices.
func read(t *testing.T, s *Source) []device.Reading {
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

// row of a field's values, one for each device; absent ones as "-".
func row(readings []device.Reading, f device.Field) string {
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

// impostor answers every connection with a text and closes it.
func impostor(t *testing.T, text string) string {
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
			_, _ = conn.Write([]byte(text)) // whoever asks may have gone
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return listener.Addr().String()
}
