package tpu

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestReadAssignsValuesToChips(t *testing.T) {
	runtime := startRuntime(t, map[string]string{
		memoryTotal: gauges(404, "as_int", 33<<30, 34<<30),
		memoryUsed:  gauges(404, "as_int", 0, 2<<30),
		// In another order than the chips.
		dutyCycle:  gauges(405, "as_double", 99.5) + gauges(404, "as_double", 0),
		sliceError: `metrics{attribute{key:"a" value{kvlist_attr{attributes{key:"type" value{string_attr:"x"}}}}} gauge{as_int:1}}`,
		queueSize: `metrics{attribute{key:"a" value{kvlist_attr{attributes{key:"device_ordinal" value{string_attr:"1"}}}}} gauge{as_int:0}}
		            metrics{attribute{key:"a" value{kvlist_attr{attributes{key:"core_type" value{string_attr:"TC"}} attributes{key:"device_ordinal" value{int_attr:0}}}}} gauge{as_int:0}}`,
		"hlo.execution.timing.distribution.microseconds": "",
	})
	readings := readAll(t, newSource(fakeSysfs(t, "0x006f", "0x006f"), runtime.address))
	for f, want := range map[device.Field]string{
		device.AcceleratorMemoryTotal: "3.5433480192e+10 3.6507222016e+10", device.AcceleratorMemoryUsed: "0 2.147483648e+09",
		device.DutyCycle: "0 99.5", device.QueuedPrograms: "0 0", device.SliceError: "1 1", device.MegascaleError: "- -",
		device.TensorCoreUtil: "- -", device.Workload: "1 1", device.StalledSeconds: "0 0",
	} {
		if got := valuesOf(readings, f); got != want {
			t.Errorf("field %d is %s, want %s", f, got, want)
		}
	}
	for _, name := range runtime.requested {
		if strings.HasPrefix(name, "hlo.execution") || name == megascaleError {
			t.Errorf("metric %s was requested", name)
		}
	}
}

// A v3 chip has two devices in the memory metrics, but a single duty cycle.
func TestReadCombinesDevicesOfChip(t *testing.T) {
	runtime := startRuntime(t, map[string]string{memoryUsed: gauges(0, "as_int", 1, 2, 3, 4), dutyCycle: gauges(0, "as_double", 40, 60)})
	readings := readAll(t, newSource(fakeSysfs(t, "0x0027/0x004f", "0x0027/0x004f"), runtime.address))
	if got := valuesOf(readings, device.AcceleratorMemoryUsed); got != "3 7" {
		t.Errorf("memory is %s, want 3 7", got)
	}
	if got := valuesOf(readings, device.DutyCycle); got != "40 60" {
		t.Errorf("duty cycle is %s, want 40 60", got)
	}
}

// A v6e chip has a single device. Four values cannot be assigned to two chips.
func TestReadRejectsValuesOfUnknownDevices(t *testing.T) {
	runtime := startRuntime(t, map[string]string{memoryUsed: gauges(0, "as_int", 1, 2, 3, 4), dutyCycle: gauges(0, "as_double", 40, 60)})
	s := newSource(fakeSysfs(t, "0x006f", "0x006f"), runtime.address)
	readings := readAll(t, s)
	if got := valuesOf(readings, device.AcceleratorMemoryUsed); got != "- -" {
		t.Errorf("memory is %s, want it absent", got)
	}
	if got := valuesOf(readings, device.DutyCycle); got != "40 60" {
		t.Errorf("duty cycle is %s, want 40 60", got)
	}
	if services := s.Services(); len(services) != 1 || services[0].Err == nil || !strings.Contains(services[0].Err.Error(), "4 values for 2 chips") {
		t.Errorf("services do not report the values: %v", services)
	}
}

// Pods come and go, each with its own address.
func TestLoggedProblemsForgetRemovedServices(t *testing.T) {
	s := newSource(fakeSysfs(t, "0x0063"))
	for range 3 {
		s.options.Runtimes = []string{startTextServer(t, "no gRPC")}
		readAll(t, s)
	}
	if len(s.loggedProblems) != 1 {
		t.Errorf("%d services are remembered, want 1: %v", len(s.loggedProblems), s.loggedProblems)
	}
}
