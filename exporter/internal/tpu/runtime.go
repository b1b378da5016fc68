package tpu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"plimsoll.dev/plimsoll/exporter/internal/tpu/tpupb"
)

// Names of the runtime metrics read by the exporter.
const (
	memoryTotal     = "tpu.runtime.hbm.memory.total.bytes"
	memoryUsed      = "tpu.runtime.hbm.memory.usage.bytes"
	memoryBandwidth = "tpu.runtime.hbm.utilization.percent"
	dutyCycle       = "tpu.runtime.tensorcore.dutycycle.percent"
	idleSeconds     = "tpu.runtime.tensorcore.idle_duration.seconds"
	uptimeSeconds   = "tpu.runtime.uptime.seconds.gauge"
	queueSize       = "hlo.queue.size.gauge"
	megascaleError  = "megascale.error.detected.gauge"
	sliceError      = "slice.error.detected.gauge"
)

var metricNames = []string{memoryTotal, memoryUsed, memoryBandwidth, dutyCycle, idleSeconds, uptimeSeconds, queueSize, megascaleError, sliceError}

// timeout limits all calls to a service together.
const timeout = time.Second

// runtimeMetrics are the metrics of one or several runtime metric services.
type runtimeMetrics struct {
	samples  map[string][]sample // by metric name
	cores    []core              // only read while programs are queued
	failures []error             // of metrics listed by the service
}

// errIdle means that no workload runs: nothing listens on the address, or the service ended.
var errIdle = errors.New("no workload's runtime listens")

// queryRuntime reads the metrics of the runtime metric service at address, which must be
// HOST:PORT. With ownProcessOnly the service reports only the chips of its own process. The
// error is errIdle if no workload runs.
func queryRuntime(ctx context.Context, address string, ownProcessOnly bool) (runtimeMetrics, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := newRuntimeClient(address)
	if err != nil {
		return runtimeMetrics{}, err
	}
	defer client.close()
	list := &tpupb.ListSupportedMetricsResponse{}
	err = client.call(ctx, "ListSupportedMetrics", &tpupb.ListSupportedMetricsRequest{}, list)
	switch {
	case status.Code(err) == codes.Unavailable && client.connected.Load() && !client.speaksGRPC():
		return runtimeMetrics{}, fmt.Errorf("the server on %s is not the runtime metric service: %s", address, status.Convert(err).Message())
	case err != nil:
		return runtimeMetrics{}, describeError(address, err)
	}
	m := runtimeMetrics{samples: map[string][]sample{}}
	for _, name := range metricNames {
		if !slices.ContainsFunc(list.GetSupportedMetric(), func(s *tpupb.SupportedMetric) bool { return s.GetMetricName() == name }) {
			continue
		}
		response := &tpupb.MetricResponse{}
		err := client.call(ctx, "GetRuntimeMetric", &tpupb.MetricRequest{MetricName: name, SkipNodeAggregation: ownProcessOnly}, response)
		if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
			return runtimeMetrics{}, describeError(address, err)
		}
		m.addMetric(name, response.GetMetric(), err)
	}
	if m.hasQueuedPrograms() {
		response := &tpupb.GetTpuRuntimeStatusResponse{}
		err := client.call(ctx, "GetTpuRuntimeStatus", &tpupb.GetTpuRuntimeStatusRequest{}, response)
		m.addCores(response, err)
	}
	return m, nil
}

// runtimeClient calls the runtime metric service at an address.
type runtimeClient struct {
	conn      *grpc.ClientConn
	connected atomic.Bool // a TCP connection was established
	peer      peer.Peer
}

func newRuntimeClient(address string) (*runtimeClient, error) {
	c := &runtimeClient{}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			c.connected.Store(true)
		}
		return conn, err
	}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<20)))
	if err != nil {
		return nil, fmt.Errorf("%s must be HOST:PORT: %w", address, err)
	}
	return c, nil
}

func (c *runtimeClient) call(ctx context.Context, method string, request, response proto.Message) error {
	return c.conn.Invoke(ctx, "/tpu.monitoring.runtime.RuntimeMetricService/"+method, request, response, grpc.Peer(&c.peer))
}

// speaksGRPC reports whether the server completed the gRPC handshake of the last call.
func (c *runtimeClient) speaksGRPC() bool { return c.peer.Addr != nil }

func (c *runtimeClient) close() { _ = c.conn.Close() } // fails only if already closed

// addMetric adds the response to the request for a metric, or the failure.
func (m *runtimeMetrics) addMetric(name string, metric *tpupb.TPUMetric, err error) {
	if err == nil && metric.GetName() != name {
		err = fmt.Errorf("the response is for metric %q", metric.GetName())
	}
	if err != nil {
		m.failures = append(m.failures, fmt.Errorf("%s: %w", name, err))
		return
	}
	m.samples[name] = samplesOf(metric)
}

// addCores adds the response to the request for the core states, or the failure. An old
// libtpu does not implement the request, and a service may deny it. Both are no failure.
func (m *runtimeMetrics) addCores(response *tpupb.GetTpuRuntimeStatusResponse, err error) {
	if code := status.Code(err); slices.Contains([]codes.Code{codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated}, code) {
		return
	}
	var cores []core
	if err == nil {
		cores, err = coresOf(response)
	}
	if err != nil {
		m.failures = append(m.failures, fmt.Errorf("core states: %w", err))
		return
	}
	m.cores = cores
}

func (m *runtimeMetrics) hasQueuedPrograms() bool {
	return slices.ContainsFunc(m.samples[queueSize], func(s sample) bool { return s.value > 0 })
}

// describeError converts a gRPC error to an error with the likely cause.
func describeError(address string, err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable:
		return fmt.Errorf("%w on %s", errIdle, address)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s does not respond within %s", address, timeout)
	case codes.Unimplemented:
		return fmt.Errorf("the server on %s has no runtime metric service; libtpu may be too old", address)
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%s denies access: %s", address, status.Convert(err).Message())
	default:
		return fmt.Errorf("%s returned %s: %s", address, code, status.Convert(err).Message())
	}
}
