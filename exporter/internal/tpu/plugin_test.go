package tpu

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// pluginExposition is the exposition of a device plugin whose chip numbers start at 4.
const pluginExposition = `# TYPE tensorcore_utilization_node gauge
tensorcore_utilization_node{accelerator_id="123-5",make="cloud-tpu",model="tpu7x",tpu_topology="2x2x2"} 55.5
tensorcore_utilization_node{accelerator_id="123-4",make="cloud-tpu",model="tpu7x",tpu_topology="2x2x2"} 44.5
memory_bandwidth_utilization_node{accelerator_id="123-4"} 1
memory_bandwidth_utilization_node{accelerator_id="123-5"} 2
go_goroutines 34
`

func TestReadPluginMetrics(t *testing.T) {
	response := pluginExposition
	plugin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if response == "" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, response)
	}))
	t.Cleanup(plugin.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	runtime := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 10, 20), memoryBandwidth: gauges(0, "as_double", 30, 40)})
	s := newSource(fakeSysfs(t, "0x006f", "0x006f"), runtime.address)
	if got := valuesOf(readAll(t, s), device.TensorCoreUtil); got != "- -" {
		t.Errorf("without the option the tensor core utilization is %s, want it absent", got)
	}
	s.options.Plugin = plugin.URL
	readings := readAll(t, s)
	if got := valuesOf(readings, device.TensorCoreUtil); got != "44.5 55.5" {
		t.Errorf("tensor core utilization is %s, want 44.5 55.5", got)
	}
	if got := valuesOf(readings, device.MemoryBandwidthUtil); got != "30 40" {
		t.Errorf("memory bandwidth is %s, want the values of the runtime, 30 40", got)
	}
	for _, tc := range []struct{ name, response, err string }{
		{"forbidden", "", "403 Forbidden"},
		{"not the text format", "<html>", "text format parsing error"},
		{"too large", strings.Repeat("#", maxPluginBytes+1), "exceeds 4 MiB"},
		{"missing chip", `tensorcore_utilization_node{accelerator_id="123-4"} 1` + "\n", "1 values for 2 chips"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			response = tc.response
			readings := readAll(t, s)
			services := s.Services()
			if got := services[1]; got.Name != "plugin" || got.State != device.ServiceFailed || !strings.Contains(got.Err.Error(), tc.err) {
				t.Errorf("service is %v, want a failed plugin with error %s", got, tc.err)
			}
			if got := valuesOf(readings, device.TensorCoreUtil) + ", " + valuesOf(readings, device.DutyCycle); got != "- -, 10 20" {
				t.Errorf("tensor core utilization and duty cycle are %s, want - -, 10 20", got)
			}
		})
	}
	plugin.Close()
	if readAll(t, s); s.Services()[1].State != device.ServiceFailed {
		t.Error("a stopped plugin is not reported as failed")
	}
}
