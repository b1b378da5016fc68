package tpu

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

// node is a complete exporter with a fake sysfs, procfs and kubelet. It is scraped over HTTP.
type node struct {
	t         *testing.T
	sysfs     string
	root      string // contains proc and dev
	kubelet   *fake.Kubelet
	collector *collector.Collector
	server    *httptest.Server
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, sysfs: fakeSysfs(t, "0x0063", "0x0063", "0x0063", "0x0063"), root: t.TempDir(), kubelet: fake.Start(t)}
	n.kubelet.Allocatable("google.com/tpu", "0", "1", "2", "3")
	addOwnNamespace(t, n.root)
	addFakeProcess(t, n.root, fakeProcess{pid: 2, namespace: "net:[2]", ip: "10.4.0.2"}) // the processes of the host are visible
	pods, err := podmap.New(n.kubelet.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Close() })
	quiet := slog.New(slog.DiscardHandler)
	s := New(Options{Sysfs: n.sysfs, Procfs: filepath.Join(n.root, "proc"), Dev: filepath.Join(n.root, "dev"), Ports: "1", IsAllocated: pods.IsAllocated, Topology: "2x2", Log: quiet})
	n.collector = collector.New(collector.Config{Node: "n", Interval: time.Second, Log: quiet}, pods, collector.NamedSource{Name: "tpu", Source: s})
	n.server = httptest.NewServer(n.collector.Handler())
	t.Cleanup(n.server.Close)
	t.Cleanup(n.server.Client().CloseIdleConnections)
	return n
}

// scrape collects and then scrapes like Prometheus. It returns the values by labels.
func (n *node) scrape() map[string]float64 {
	n.t.Helper()
	if err := n.collector.Collect(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.server.URL+"/metrics", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := n.server.Client().Do(request)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		n.t.Fatalf("%s, %v", response.Status, err)
	}
	series, parser := map[string]float64{}, textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return series
		}
		if err != nil {
			n.t.Fatalf("%v in\n%s", err, text)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			_, _, v := parser.Series()
			parser.Labels(&l)
			series[l.String()] = v
		}
	}
}

// expect compares values with the scraped series. The key of want is the name of the metric
// with labels in the form NAME=VALUE. The value "-" means no such series.
func (n *node) expect(series map[string]float64, want map[string]string) {
	n.t.Helper()
	for selector, value := range want {
		parts, got := strings.Split(selector, " "), "-"
	next:
		for s, v := range series {
			if !strings.Contains(s, `__name__="`+parts[0]+`"`) {
				continue
			}
			for _, l := range parts[1:] {
				name, value, _ := strings.Cut(l, "=")
				if !strings.Contains(s, fmt.Sprintf("%s=%q", name, value)) {
					continue next
				}
			}
			got = fmt.Sprintf("%g", v)
		}
		if got != value {
			n.t.Errorf("%s is %s, want %s", selector, got, value)
		}
	}
}

func TestScrapeFollowsWorkload(t *testing.T) {
	n := newNode(t)
	n.expect(n.scrape(), map[string]string{
		"plimsoll_node_devices state=free resource=google.com/tpu model=tpu-v5-lite-podslice": "4",
		"plimsoll_device_workload_up gpu=0":                                                   "0",
		"memory_total_node accelerator_id=n-3 tpu_topology=2x2":                               "1.7179869184e+10",
		"memory_used_node": "-", "duty_cycle_node": "-", "accelerator_request": "-",
		"plimsoll_exporter_services service=runtime state=idle": "1",
	})

	// A pod gets two chips and does not use them yet.
	n.kubelet.Hold("team-a/train-0/main", "google.com/tpu", "1", "2")
	n.expect(n.scrape(), map[string]string{
		"plimsoll_node_devices state=free":             "2",
		"plimsoll_device_owner_info gpu=2 pod=train-0": "1",
		"accelerator_request pod=train-0":              "2",
		"memory_total accelerator_id=n-1 pod=train-0":  "1.7179869184e+10",
		"duty_cycle":                        "-",
		"plimsoll_device_workload_up gpu=1": "0",
		"plimsoll_exporter_services service=runtime state=idle": "1",
	})

	// Its process opens the chips and the runtime metric service.
	runtime := startRuntime(t, map[string]string{
		dutyCycle: gauges(0, "as_double", 71, 72), memoryUsed: gauges(0, "as_int", 1<<30, 2<<30), memoryTotal: gauges(0, "as_int", 15<<30, 15<<30),
		queueSize: gauges(0, "as_int", 0, 0), sliceError: `metrics{gauge{as_int:0}}`,
	})
	_, port, _ := strings.Cut(runtime.address, ":")
	addFakeProcess(t, n.root, fakeProcess{pid: 20, namespace: "net:[1]", ip: "127.0.0.1", environ: "TPU_RUNTIME_METRICS_PORTS=" + port, nodes: []string{"vfio/2", "vfio/1"}})
	n.expect(n.scrape(), map[string]string{
		"duty_cycle accelerator_id=n-1 pod=train-0 namespace=team-a container=main make=cloud-tpu": "71",
		"duty_cycle_node accelerator_id=n-2":                       "72",
		"duty_cycle_node accelerator_id=n-0":                       "-",
		"memory_used accelerator_id=n-2":                           "2.147483648e+09",
		"memory_total_node accelerator_id=n-2":                     "1.610612736e+10",
		"plimsoll_device_memory_headroom_bytes gpu=2":              "1.3958643712e+10",
		"plimsoll_device_workload_up gpu=1":                        "1",
		"plimsoll_device_workload_up gpu=0":                        "0",
		"plimsoll_device_idle_allocated_seconds gpu=1":             "0",
		"plimsoll_device_stalled_seconds gpu=1":                    "0",
		"plimsoll_device_slice_error gpu=1":                        "0",
		"plimsoll_exporter_services service=runtime state=serving": "1",
		"tensorcore_utilization_node":                              "-", "plimsoll_device_megascale_error": "-",
	})

	// The service hangs. Then the process exits and a chip is lost.
	release := make(chan struct{})
	runtime.update(func() { runtime.hang = release })
	n.expect(n.scrape(), map[string]string{
		"plimsoll_exporter_services service=runtime state=failed": "1",
		"plimsoll_device_workload_up gpu=1":                       "-", "duty_cycle": "-",
		"plimsoll_node_devices state=unhealthy": "0",
	})
	close(release)
	if err := errors.Join(os.RemoveAll(filepath.Join(n.root, "proc/20")), os.RemoveAll(filepath.Join(n.sysfs, "bus/pci/devices/0000:00:07.0"))); err != nil {
		t.Fatal(err)
	}
	n.expect(n.scrape(), map[string]string{
		"plimsoll_device_lost gpu=3":            "1",
		"plimsoll_node_devices state=unhealthy": "1",
		"plimsoll_node_devices state=free":      "1",
		"memory_total_node accelerator_id=n-3":  "-",
		"memory_total_node accelerator_id=n-1":  "1.7179869184e+10",
		"plimsoll_device_workload_up gpu=1":     "0",
	})
}
