package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// exportedFields collects and returns the names of the exported dcgm-exporter metrics.
func exportedFields(t *testing.T, c *collector.Collector) string {
	t.Helper()
	if err := c.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := c.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (DCGM_\S+)`).FindAllStringSubmatch(text.String(), -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}

func TestInvalidCounterFileKeepsSelection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	source, err := sim.FromScenario("steady", 1, pods.IsAllocated, log)
	if err != nil {
		t.Fatal(err)
	}
	c := collector.New(collector.Config{Node: "n", Log: log}, pods, collector.NamedSource{Source: source})
	o := &options{counterFile: path}
	exported := func() string { return exportedFields(t, c) }
	write("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.\n")
	if err := o.selectCounters(t.Context(), c, log); err != nil {
		t.Fatal(err)
	}
	if got := exported(); got != "DCGM_FI_DEV_GPU_UTIL" {
		t.Errorf("exported: %s", got)
	}
	if o.counterFileChanged() {
		t.Error("changed right after it was read")
	}
	write("DCGM_FI_DEV_GPU_UTIL, gauze, Busy.\n")
	if !o.counterFileChanged() {
		t.Error("not changed after it was replaced")
	}
	if err := o.selectCounters(t.Context(), c, log); err == nil || !strings.Contains(err.Error(), path+": line 1") {
		t.Errorf("%v", err)
	}
	if got := exported(); got != "DCGM_FI_DEV_GPU_UTIL" {
		t.Errorf("after an invalid file: %s", got)
	}
	if o.counterFileChanged() {
		t.Error("an invalid file would be logged repeatedly")
	}
	if err := os.Remove(path); err != nil || !o.counterFileChanged() {
		t.Errorf("not changed after it was deleted: %v", err)
	}
	if err := o.selectCounters(t.Context(), c, log); err == nil || o.counterFileChanged() {
		t.Errorf("deleted file: %v", err)
	}
}

// If the ConfigMap cannot be read, the exporter logs the reason and uses the file.
func TestCounterFileReplacesUnreadableConfigMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	if err := os.WriteFile(path, []byte("DCGM_FI_DEV_GPU_UTIL, gauge, u\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for configMap, want := range map[string]string{"none": "", "ns:name": "kubeconfig", "name": "must be NAMESPACE:NAME"} {
		o, err := parse(t, "-m", configMap, "-f", path, "--kubeconfig="+filepath.Join(t.TempDir(), "kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		origin, text, err := o.readCounters(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil || origin != "counter file "+path || !strings.HasPrefix(text, "DCGM_FI_DEV_GPU_UTIL") || (want == "") != (out.Len() == 0) || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s, %q, %v, log %q", configMap, origin, text, err, out.String())
		}
	}
}

// A ConfigMap that selects no field is an error, as in dcgm-exporter: all of its metrics would
// disappear.
func TestCounterFileReplacesEmptyConfigMap(t *testing.T) {
	directory := t.TempDir()
	for name, text := range map[string]string{"no text": "", "comments only": "# DCGM_FI_DEV_GPU_TEMP, gauge, t\n\n"} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"name","namespace":"ns"},"data":{"metrics":%q}}`, text)
			}))
			defer server.Close()
			o, err := parse(t, "-m", "ns:name", "-f", writeCounterFile(t, directory), "--kubeconfig="+writeKubeconfig(t, directory, server.URL))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			origin, _, err := o.readCounters(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
			if err != nil || !strings.HasPrefix(origin, "counter file ") || !strings.Contains(out.String(), "ConfigMap ns:name selects no field") {
				t.Errorf("%s, %v, log %q", origin, err, out.String())
			}
			o.fromConfigMap = true // its earlier content was read
			if _, _, err := o.readCounters(t.Context(), slog.New(slog.DiscardHandler)); err == nil {
				t.Error("an empty ConfigMap replaces the selection")
			}
		})
	}
}

// writeCounterFile writes a counter file with the utilization.
func writeCounterFile(t *testing.T, directory string) string {
	t.Helper()
	path := filepath.Join(directory, "counters.csv")
	if err := os.WriteFile(path, []byte("DCGM_FI_DEV_GPU_UTIL, gauge, u\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeKubeconfig writes a kubeconfig file for a server without authentication.
func writeKubeconfig(t *testing.T, directory, server string) string {
	t.Helper()
	path := filepath.Join(directory, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Once the ConfigMap was read, the counter file has no effect: not if it changes, and not if the
// API server fails.
func TestConfigMapReplacesCounterFile(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"name","namespace":"ns"},"data":{"metrics":"DCGM_FI_DEV_GPU_TEMP, gauge, t"}}`)
	}))
	defer server.Close()
	directory := t.TempDir()
	kubeconfig, file := writeKubeconfig(t, directory, server.URL), writeCounterFile(t, directory)
	o, err := parse(t, "--node-name=n", "--source=sim", "-k=false", "-m", "ns:name", "-f", file, "--kubeconfig="+kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	pods, sources, err := o.prepare(log)
	if err != nil {
		t.Fatal(err)
	}
	c := collector.New(o.collectorConfig(log), pods, sources...)
	if err := o.selectCounters(t.Context(), c, log); err != nil {
		t.Fatal(err)
	}
	const want = "DCGM_FI_DEV_GPU_TEMP"
	if got := exportedFields(t, c); got != want || requests.Load() != 1 {
		t.Errorf("exported: %s after %d requests", got, requests.Load())
	}
	if err := os.WriteFile(file, []byte("DCGM_FI_DEV_POWER_USAGE, gauge, p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o.counterFileChanged() {
		t.Error("a change of the file reads the ConfigMap again")
	}
	ctx, stop := context.WithCancel(t.Context())
	o.interval = 1
	hangups, ended := make(chan os.Signal), make(chan struct{})
	go func() { defer close(ended); o.reloadCounters(ctx, c, hangups, log) }()
	for range 2 {
		hangups <- syscall.SIGHUP
	}
	for requests.Load() < 3 {
		runtime.Gosched()
	}
	server.Close()
	hangups <- syscall.SIGHUP
	stop()
	<-ended
	if got := requests.Load(); got != 3 {
		t.Errorf("%d requests, want one at the start and one for each SIGHUP", got)
	}
	if got := exportedFields(t, c); got != want {
		t.Errorf("exported after the API server failed: %s", got)
	}
}

func TestReloadOnHangup(t *testing.T) {
	counters := filepath.Join(t.TempDir(), "counters.csv")
	write := func(text string) {
		if err := os.WriteFile(counters, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.\n")
	p := start(t, command(t, "--source=sim", "--collectors="+counters, "--collect-interval=500"))
	p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
	write("DCGM_FI_DEV_POWER_USAGE, gauge, Watts.\n")
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for {
		status, body := p.get("/metrics")
		before, after := strings.Contains(body, "DCGM_FI_DEV_GPU_UTIL{"), strings.Contains(body, "DCGM_FI_DEV_POWER_USAGE{")
		if status != http.StatusOK || before == after {
			t.Fatalf("%d; old selection: %t, new selection: %t", status, before, after)
		}
		if after {
			break
		}
	}
	write("DCGM_FI_DEV_POWER_USAGE, gauze, Watts.\n")
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.waitForLog(regexp.MustCompile(`cannot reload the counters; keeping the current selection.*line 1`))
	if _, body := p.get("/metrics"); !strings.Contains(body, "DCGM_FI_DEV_POWER_USAGE{") {
		t.Error("an invalid file changed the selection")
	}
}
