package tpu

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/tpu/tpupb"
)

func TestServiceState(t *testing.T) {
	for _, tc := range []struct {
		name     string
		prepare  func(f *fakeRuntime)
		state    device.ServiceState
		err      string
		workload string
		duty     string
	}{
		{"serving", func(*fakeRuntime) {}, device.ServiceServing, "", "1", "50"},
		{"no listener", func(f *fakeRuntime) { f.stop() }, device.ServiceIdle, "no workload's runtime listens on 127.0.0.1:", "0", "-"},
		{"unavailable", func(f *fakeRuntime) { f.err = status.Error(codes.Unavailable, "no program yet") }, device.ServiceIdle, "no workload's runtime", "0", "-"},
		{"stops between calls", func(f *fakeRuntime) { f.stopsSoon = true }, device.ServiceIdle, "no workload's runtime", "0", "-"},
		{"internal error", func(f *fakeRuntime) { f.err = status.Error(codes.Internal, "boom") }, device.ServiceFailed, "returned Internal: boom", "-", "-"},
		{"old libtpu", func(f *fakeRuntime) { f.err = status.Error(codes.Unimplemented, "unknown method") }, device.ServiceFailed, "libtpu may be too old", "-", "-"},
		{"access denied", func(f *fakeRuntime) { f.err = status.Error(codes.PermissionDenied, "not you") }, device.ServiceFailed, "denies access: not you", "-", "-"},
		{"invalid message", func(f *fakeRuntime) { f.metrics[dutyCycle] = "garbage" }, device.ServiceServing, "dutycycle.percent: rpc error: code = Internal desc = grpc: failed to unmarshal", "1", "-"},
		{"unlisted metric", func(f *fakeRuntime) { f.metrics[memoryUsed] = gauges(0, "as_int", 1); f.unlisted[memoryUsed] = true }, device.ServiceServing, "", "1", "50"},
		{"value is not finite", func(f *fakeRuntime) {
			f.metrics[dutyCycle] = gauges(0, "as_double", 50) + `metrics{gauge{as_double:nan}}`
		}, device.ServiceServing, "", "1", "50"},
		{"implausible value", func(f *fakeRuntime) { f.metrics[dutyCycle] = gauges(0, "as_double", 5000) }, device.ServiceServing, "", "1", "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runtime := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 50)})
			tc.prepare(runtime)
			s := newSource(fakeSysfs(t, "0x0063"), runtime.address)
			readings := readAll(t, s)
			services := s.Services()
			if len(services) != 1 || services[0].State != tc.state || (services[0].Err == nil) != (tc.err == "") || tc.err != "" && !strings.Contains(services[0].Err.Error(), tc.err) {
				t.Errorf("services are %v, want %s: %s", services, tc.state, tc.err)
			}
			if got := valuesOf(readings, device.Workload) + " " + valuesOf(readings, device.DutyCycle); got != tc.workload+" "+tc.duty {
				t.Errorf("workload and duty cycle are %s, want %s %s", got, tc.workload, tc.duty)
			}
			if got := valuesOf(readings, device.AcceleratorMemoryTotal); got != "1.7179869184e+10" {
				t.Errorf("memory is %s, want the size of a v5e", got)
			}
			if got := valuesOf(readings, device.AcceleratorMemoryUsed); got != "-" {
				t.Errorf("memory used is %s, want it absent", got)
			}
		})
	}
}

func TestServiceIsNotTheRuntime(t *testing.T) {
	address := startTextServer(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	s := newSource(fakeSysfs(t, "0x0063"), address)
	readings := readAll(t, s)
	if got := s.Services(); got[0].State != device.ServiceFailed || !strings.Contains(got[0].Err.Error(), "is not the runtime metric service") {
		t.Errorf("services are %v", got)
	}
	if got := valuesOf(readings, device.Workload); got != "-" {
		t.Errorf("workload is %s, want it absent", got)
	}
}

func TestSlowServiceTimesOut(t *testing.T) {
	runtime := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 50)})
	release := make(chan struct{})
	runtime.hang = release
	s := newSource(fakeSysfs(t, "0x0063"), runtime.address)
	readings := readAll(t, s)
	if got := s.Services(); got[0].State != device.ServiceFailed || !strings.Contains(got[0].Err.Error(), "does not respond within 1s") {
		t.Errorf("services are %v", got)
	}
	if got := valuesOf(readings, device.DutyCycle); got != "-" {
		t.Errorf("duty cycle is %s, want it absent", got)
	}
	runtime.update(func() { runtime.hang = nil })
	close(release)
	if got := valuesOf(readAll(t, s), device.DutyCycle); got != "50" {
		t.Errorf("after the recovery of the service the duty cycle is %s, want 50", got)
	}
}

func TestServiceRestarts(t *testing.T) {
	runtime := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 50)})
	s := newSource(fakeSysfs(t, "0x0063"), runtime.address)
	readAll(t, s)
	runtime.stop()
	if got := valuesOf(readAll(t, s), device.DutyCycle); got != "-" {
		t.Errorf("without the service the duty cycle is %s, want it absent", got)
	}
	runtime.serve(t)
	if got := valuesOf(readAll(t, s), device.DutyCycle); got != "50" {
		t.Errorf("after the restart the duty cycle is %s, want 50", got)
	}
}

func TestAddCoresReportsFailures(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		failed bool
	}{
		{"no cores", nil, false},
		{"old libtpu", status.Error(codes.Unimplemented, "unknown method"), false},
		{"access denied", status.Error(codes.PermissionDenied, "not you"), false},
		{"internal error, or an invalid message", status.Error(codes.Internal, "boom"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m runtimeMetrics
			m.addCores(&tpupb.GetTpuRuntimeStatusResponse{}, tc.err)
			if err := errors.Join(m.failures...); (err != nil) != tc.failed {
				t.Errorf("failures are %v, want a failure: %t", err, tc.failed)
			}
		})
	}
}
