package tpu

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// exposition of a device plugin on a host whose chips it numbers from 4 on.
const exposition = `# TYPE tensorcore_utilization_node gauge
tensorcore_utilization_node{accelerator_id="123-5",make="cloud-tpu",model="tpu7x",tpu_topology="2x2x2"} 55.5
tensorcore_utilization_node{accelerator_id="123-4",make="cloud-tpu",model="tpu7x",tpu_topology="2x2x2"} 44.5
memory_bandwidth_utilization_node{accelerator_id="123-4"} 1
memory_bandwidth_utilization_node{accelerator_id="123-5"} 2
go_goroutines 34
`

func TestThePluginsMetricsAreRelayed(t *testing.T) {
	answer := exposition
	plugin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answer == "" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(plugin.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	l := start(t, map[string]string{dutyCycle: values(0, "as_double", 10, 20), memoryBandwidth: values(0, "as_double", 30, 40)})
	s := source(host(t, "0x006f", "0x006f"), l.address)
	if got := row(read(t, s), device.TensorCoreUtil); got != "- -" {
		t.Errorf("without being asked for, it is relayed: %s", got)
	}
	s.o.Plugin = plugin.URL
	readings := read(t, s)
	if got := row(readings, device.TensorCoreUtil) + ", " + row(readings, device.MemoryBandwidthUtil); got != "44.5 55.5, 30 40" {
		t.Errorf("tensor cores, and memory bandwidth by the runtime's own word: %s", got)
	}
	for _, bad := range []struct{ answer, says string }{
		{"", "403 Forbidden"},
		{"<html>", "text format parsing error"},
		{strings.Repeat("#\n", most), "answers more than 4 MiB"},
		{`tensorcore_utilization_node{accelerator_id="123-4"} 1` + "\n", "1 values for 2 chips"},
	} {
		answer = bad.answer
		readings := read(t, s)
		services := s.Services()
		if got := services[1]; got.Name != "plugin" || got.State != device.ServiceFailed || !strings.Contains(got.Err.Error(), bad.says) {
			t.Errorf("%.20q: %v, want %s", bad.answer, got, bad.says)
		}
		if got := row(readings, device.TensorCoreUtil) + ", " + row(readings, device.DutyCycle); got != "- -, 10 20" {
			t.Errorf("%.20q: tensor cores and duty cycle %s", bad.answer, got)
		}
	}
	plugin.Close()
	if read(t, s); s.Services()[1].State != device.ServiceFailed {
		t.Error("a plugin that is gone is not told")
	}
}
