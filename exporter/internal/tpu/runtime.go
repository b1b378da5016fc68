package tpu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Names of the runtime's metrics that are asked for.
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

var wanted = []string{memoryTotal, memoryUsed, memoryBandwidth, dutyCycle, idleSeconds, uptimeSeconds, queueSize, megascaleError, sliceError}

// timeout of all questions to one service.
const timeout = time.Second

// told is what one or several services said: the samples of each metric, and what
// the cores execute where that was worth asking.
type told struct {
	metrics map[string][]sample
	cores   []core
	lacks   []error // metrics that are listed and were not given
}

// errIdle says that no workload's runtime listens.
var errIdle = errors.New("no workload's runtime listens")

// ask the runtime metric service at an address: which metrics it has, then those.
// ofThisProcess leaves out what the service would say for its neighbors. A service
// that goes away between is idle; one that gives nonsense is an error.
func ask(ctx context.Context, address string, ofThisProcess bool) (told, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var connected atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(
		func(ctx context.Context, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err == nil {
				connected.Store(true)
			}
			return c, err
		}), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(1<<20)))
	if err != nil {
		return told{}, fmt.Errorf("%s must be HOST:PORT: %w", address, err)
	}
	defer func() { _ = conn.Close() }() // nothing is under way any more
	var speaks peer.Peer                // has an address once something there speaks gRPC
	call := func(method string, message []byte) (answer []byte, err error) {
		err = conn.Invoke(ctx, "/tpu.monitoring.runtime.RuntimeMetricService/"+method, message, &answer, grpc.Peer(&speaks))
		return answer, err
	}
	list, err := call("ListSupportedMetrics", nil)
	switch {
	case status.Code(err) == codes.Unavailable && connected.Load() && speaks.Addr == nil:
		return told{}, fmt.Errorf("what listens on %s is not the runtime metric service: %s", address, status.Convert(err).Message())
	case err != nil:
		return told{}, explain(address, err)
	}
	names, err := supported(list)
	if err != nil {
		return told{}, fmt.Errorf("%s lists its metrics: %w", address, err)
	}
	t := told{metrics: map[string][]sample{}}
	for _, name := range wanted {
		if !names[name] {
			continue
		}
		answer, err := call("GetRuntimeMetric", request(name, ofThisProcess))
		if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
			return told{}, explain(address, err)
		}
		t.take(name, answer, err)
	}
	if t.waiting() {
		// Of an old libtpu, or one that refuses: the cores' state is not told.
		if answer, err := call("GetTpuRuntimeStatus", nil); err == nil {
			t.cores, _ = cores(answer)
		}
	}
	return t, nil
}

// take the answer to the question for a metric.
func (t *told) take(name string, answer []byte, err error) {
	var got string
	var values []sample
	if err == nil {
		got, values, err = samples(answer)
	}
	if err == nil && got != name {
		err = fmt.Errorf("the answer is %q", got)
	}
	if err != nil {
		t.lacks = append(t.lacks, fmt.Errorf("%s: %w", name, err))
		return
	}
	t.metrics[name] = values
}

// waiting is true when programs are queued.
func (t *told) waiting() bool {
	for _, s := range t.metrics[queueSize] {
		if s.value > 0 {
			return true
		}
	}
	return false
}

// explain why a service did not answer.
func explain(address string, err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable:
		return fmt.Errorf("%w on %s", errIdle, address)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s does not answer within %s", address, timeout)
	case codes.Unimplemented:
		return fmt.Errorf("what listens on %s has no runtime metric service; libtpu may be too old for it", address)
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%s refuses to tell: %s", address, status.Convert(err).Message())
	default:
		return fmt.Errorf("%s answers %s: %s", address, code, status.Convert(err).Message())
	}
}
