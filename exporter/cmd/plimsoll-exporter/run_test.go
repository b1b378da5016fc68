package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// delayedRates reports the rates of device 0 from the second reading on, as NVIDIA's
// library does.
type delayedRates struct {
	device.Source
	reads int
}

func (r *delayedRates) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	reading, err := r.Source.Read(ctx, d)
	if d.Index != 0 {
		return reading, err
	}
	if r.reads++; r.reads < 2 {
		return device.Reading{Time: reading.Time}, err
	}
	return reading, err
}

func TestPrintOnceIncludesRates(t *testing.T) {
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	source, err := sim.FromScenario("steady", 1, pods.IsAllocated, log)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printOnce(t.Context(), collector.New(collector.Config{Node: "n", Log: log}, pods, collector.NamedSource{Source: &delayedRates{Source: source}}), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0"`) {
		t.Errorf("no rates of device 0 in\n%s", &out)
	}
}

// brokenNodes returns nodes without a working driver or kubelet, and how the exporter
// reports that.
func brokenNodes(t *testing.T) []brokenNode {
	t.Helper()
	forbidden := newDriver(t, 8)
	forbidden.set(driverInitResult, 4)
	return []brokenNode{
		{"no library", func(args ...string) *exec.Cmd {
			return command(t, append([]string{"--source=nvml", "-k=false"}, args...)...)
		},
			"libnvidia-ml.so.1): library not found; is the driver installed", "failed  NVIDIA devices: load", `plimsoll_exporter_source_up{node="node-1",source="nvml"} 0`},
		{"no permission", func(args ...string) *exec.Cmd { return forbidden.command(append([]string{"-k=false"}, args...)...) },
			"Insufficient Permissions; may this user", "failed  NVIDIA devices: load NVIDIA's driver library (libnvidia-ml.so.1): Insufficient Permissions", `plimsoll_exporter_source_up{node="node-1",source="nvml"} 0`},
		{"no kubelet", func(args ...string) *exec.Cmd { return command(t, append([]string{"--source=sim"}, args...)...) },
			"list pod resources of the kubelet", "failed  kubelet: stat ", `plimsoll_exporter_unmapped_devices{node="node-1",reason="kubelet_unreachable"} 8`},
	}
}

type brokenNode struct {
	name            string
	command         func(args ...string) *exec.Cmd
	log, doctor, up string
}

func TestStrictExitsOnBrokenNode(t *testing.T) {
	for _, n := range brokenNodes(t) {
		t.Run(n.name, func(t *testing.T) {
			out, err := n.command("--strict").CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), n.log) || !strings.Contains(string(out), "(--strict)") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestServesOnBrokenNodeWithoutStrict(t *testing.T) {
	for _, n := range brokenNodes(t) {
		t.Run(n.name, func(t *testing.T) {
			p := start(t, n.command())
			p.waitFor("/metrics", http.StatusOK, n.up)
			out, err := n.command("doctor").CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), n.doctor) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestHealthFollowsDriver(t *testing.T) {
	d := newDriver(t, 2)
	d.set(driverInitResult, 9) // not loaded
	p := start(t, d.command("-k=false", "--collect-interval=100"))
	p.waitFor("/health", http.StatusServiceUnavailable, "no collection has succeeded yet")
	d.set(driverInitResult, 0)
	p.waitFor("/health", http.StatusOK, "OK")
}

// A driver that holds its lock does not prevent the exit of the exporter.
func TestExitsWhileDriverStalls(t *testing.T) {
	d := newDriver(t, 2)
	cmd := d.command("-k=false", "--collect-interval=100")
	blocked, hold, err := os.Pipe() // the stalled call reads from the pipe
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(blocked.Close(), hold.Close()) })
	cmd.Stdin = blocked
	p := start(t, cmd)
	p.waitFor("/health", http.StatusOK, "OK")
	d.set(driverStallCount, 1)
	for end := time.Now().Add(waitLimit); d.get(driverStalled) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("no call stalls")
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitForLog(regexp.MustCompile("exiting without closing its library"))
	p.waitForLog(regexp.MustCompile(`\(end\)`))
}

func TestJSONLogIsValid(t *testing.T) {
	p := start(t, command(t, "--source=sim", "--log-format=json", "--cpu-devices=f", "--debug"))
	p.waitForLog(regexp.MustCompile("--cpu-devices"))
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.log.String()) {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" || entry.Msg == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func TestPprofFlag(t *testing.T) {
	without := start(t, command(t, "--source=sim"))
	with := start(t, command(t, "--source=sim", "--enable-pprof", "--web-config-file="+writeFile(t, "http_server_config: {http2: false}\n")))
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "--enable-pprof", "/debug/pprof/symbol": "num_symbols",
		"/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/heap?debug=1": "heap profile",
	} {
		if status, body := with.get(path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
		if status, _ := without.get(path); status != http.StatusNotFound {
			t.Errorf("%s without --enable-pprof: %d", path, status)
		}
	}
}

// Profiles show the memory of the process, so they must be protected.
func TestPprofRequiresWebConfig(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--enable-pprof")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--enable-pprof requires --web-config-file") {
		t.Errorf("%v", err)
	}
}

// A wrong timeout is logged and replaced, as by dcgm-exporter.
func TestWebTimeouts(t *testing.T) {
	p := start(t, command(t, "--source=sim", "--web-read-timeout=300ms", "--web-write-timeout=x"))
	p.waitForLog(regexp.MustCompile(`--web-write-timeout.*using=30s`))
	connection, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n")); err != nil { // the end is missing
		t.Fatal(err)
	}
	if _, err := io.ReadAll(connection); err != nil {
		t.Errorf("the connection of a client that sends no whole request stays open: %v", err)
	}
}

// Without devices /health fails on request.
func TestHealthRequiresGPUs(t *testing.T) {
	d := newDriver(t, 0)
	p := start(t, d.command("--health-require-gpus"))
	p.waitFor("/health", http.StatusServiceUnavailable, "no device is listed")
	p = start(t, d.command())
	p.waitFor("/health", http.StatusOK, "OK")
}

// A signal to stop does not cut off the response of a scrape in progress.
func TestStopWaitsForScrapes(t *testing.T) {
	scraping, finish := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(scraping)
		<-finish
		fmt.Fprint(w, "all")
	})}
	o, err := parse(t, "--web.listen-address=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	logged, log := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- listenAndServe(ctx, server, o.web, slog.New(slog.NewTextHandler(log, nil))) }()
	lines := bufio.NewScanner(logged)
	address := ""
	for address == "" && lines.Scan() {
		if match := listening.FindStringSubmatch(lines.Text()); match != nil {
			address = match[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, logged) }() // ends with the test
	body := make(chan string)
	go func() {
		response, err := http.Get("http://" + address)
		if err != nil {
			body <- err.Error()
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		body <- fmt.Sprint(string(text), err)
	}()
	<-scraping
	stop()
	select {
	case err := <-served:
		t.Errorf("stopped during a scrape: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(finish)
	if got := <-body; got != "all<nil>" {
		t.Errorf("the response is %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// If another driver is loaded, the exporter ends, so that its new container has the library of
// that driver. A mismatch from the start stays with a new container.
func TestEndsAfterDriverWasReplaced(t *testing.T) {
	const mismatch = 18
	d := newDriver(t, 2)
	d.set(driverInitResult, mismatch)
	p := start(t, d.command("-k=false", "--collect-interval=100"))
	p.waitFor("/metrics", http.StatusOK, `plimsoll_exporter_source_up{node="node-1",source="nvml"} 0`)
	p.waitForLog(regexp.MustCompile("version mismatch; the library in this container is not that of the loaded driver"))
	d.set(driverInitResult, 0)
	p.waitFor("/health", http.StatusOK, "OK")
	d.set(driverInitResult, mismatch)
	d.set(driverUnloaded, 1)
	p.waitForLog(regexp.MustCompile(`the exporter must be restarted: another driver was loaded: .* version mismatch`))
	p.waitForLog(regexp.MustCompile(`\(end\)`))
	if err := p.Wait(); err == nil {
		t.Error("the exit status is 0")
	}
}
