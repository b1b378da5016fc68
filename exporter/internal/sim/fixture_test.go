package sim

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

var discardLog = slog.New(slog.DiscardHandler)

// twoDevices is a valid state file.
const twoDevices = `{"seed":7,"devices":[
 {"uuid":"GPU-a","model":"NVIDIA L4","memoryMiB":23034,"state":"ok","background":0},
 {"uuid":"GPU-b","model":"NVIDIA L4","memoryMiB":23034,"state":"ok","background":0}]}`

func notAllocated(string) bool { return false }

// writeState writes a state file and returns its path.
func writeState(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readDevice lists the devices and reads the device at index.
func readDevice(t *testing.T, s *Source, index int) device.Reading {
	t.Helper()
	devices, err := s.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Read(t.Context(), devices[index])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// node is a complete exporter with a simulated source, a fake kubelet and a clock set by the
// test.
type node struct {
	t       *testing.T
	kubelet *fake.Kubelet
	source  *Source
	*collector.Collector
	start time.Time
}

// startScenario starts an exporter for a scenario.
func startScenario(t *testing.T, scenario string, adjust ...func(*collector.Config)) *node {
	t.Helper()
	n := &node{t: t, kubelet: fake.Start(t), start: time.Now()}
	pods, err := podmap.New(n.kubelet.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Close() })
	if n.source, err = FromScenario(scenario, 1, pods.IsAllocated, discardLog); err != nil {
		t.Fatal(err)
	}
	config := collector.Config{Node: "n", Interval: time.Second, Log: discardLog}
	for _, a := range adjust {
		a(&config)
	}
	n.Collector = collector.New(config, pods, collector.NamedSource{Source: n.source})
	return n
}

// scrapeAt collects at a time since the start of the scenario and returns the exposition.
func (n *node) scrapeAt(since time.Duration) string {
	n.t.Helper()
	n.source.now = func() time.Time { return n.start.Add(since) }
	if err := n.Collect(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	response := httptest.NewRecorder()
	n.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return response.Body.String()
}

// expectSeries checks that the exposition has each series with its value.
func expectSeries(t *testing.T, text string, series ...string) {
	t.Helper()
	for _, s := range series {
		if !strings.Contains(text, s+"\n") {
			name, _, _ := strings.Cut(s, "{")
			t.Errorf("missing: %s\nthere are:\n%s", s, strings.Join(linesWith(text, name+"{"), "\n"))
		}
	}
}

// linesWith returns the lines of text with a substring.
func linesWith(text, substring string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, substring) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
