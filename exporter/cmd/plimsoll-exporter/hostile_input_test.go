package main

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runToFailure runs a command of the exporter until it ends, and returns its output. The command
// must fail with the exit status.
func runToFailure(t *testing.T, cmd *exec.Cmd, status int) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != status {
		t.Fatalf("%v, want exit status %d\n%.2000s", err, status, &out)
	}
	return out.String()
}

// hostileFiles are files that must not be read as a whole, and the reason of the refusal.
func hostileFiles(t *testing.T) map[string]string {
	t.Helper()
	directory := t.TempDir()
	pipe, link, socket := filepath.Join(directory, "pipe"), filepath.Join(directory, "link"), filepath.Join(directory, "s")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return map[string]string{pipe: "is a pipe", link: "is a pipe", directory: "is a directory", "/dev/zero": "is a device", "/dev/null": "is a device", socket: "no such device or address"}
}

func TestHostileFilesAreRefused(t *testing.T) {
	for _, flag := range []string{"--collectors=", "--web-config-file=", "--web.config.file=", "--kubeconfig=", "--sim-state="} {
		for file, want := range hostileFiles(t) {
			t.Run(flag+filepath.Base(file), func(t *testing.T) {
				if out := runToFailure(t, command(t, "--source=sim", "-k=false", flag+file), 1); !strings.Contains(out, file) || !strings.Contains(out, want) {
					t.Errorf("the reason is missing:\n%s", out)
				}
			})
		}
	}
}

func TestHostileCounterFilesEndTheStart(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"too large":         {strings.Repeat("# comment\n", 200_000), "must not be larger than 1048576 bytes"},
		"too many fields":   {manyLines(100_000), "line 2001: a counter file must select at most 2000 fields"},
		"binary":            {strings.Repeat("\x00\xff\xfe", 1000), "line 1 must be NAME, TYPE, HELP"},
		"UTF-16":            {"\xff\xfeD\x00C\x00", "line 1 must be NAME, TYPE, HELP"},
		"one long line":     {strings.Repeat("A", 1<<20), "line 1 must be NAME, TYPE, HELP"},
		"quote not closed":  {"A, gauge, \"" + strings.Repeat("x\n", 1000), "extraneous or missing"},
		"many fields a row": {"A, gauge" + strings.Repeat(",", 1<<19) + "\nB, gauze, x", "line 2: the type of B"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "counters.csv")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			out := runToFailure(t, command(t, "--source=sim", "-k=false", "-f", path), 1)
			if !strings.Contains(out, tc.want) || !strings.Contains(out, path) || len(out) > 10_000 {
				t.Errorf("want %q:\n%.500s", tc.want, out)
			}
		})
	}
}

// manyLines returns a counter file with n fields of short names.
func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("A", 1+i%3) + string(rune('a'+i/3%26)) + string(rune('a'+i/78%26)) + string(rune('a'+i/2028%26)) + ",gauge,\n")
	}
	return b.String()[:min(b.Len(), maxCounterFileSize)]
}

func TestDeviceNumbersThatDoNotExistAreRefused(t *testing.T) {
	for numbers, want := range map[string]string{"g:99": "device 99, but this node has 8 devices", "g:0,8": "device 8, but", "g:7-9": "device 8, but"} {
		if out := runToFailure(t, command(t, "--source=sim", "-k=false", "-d", numbers), 1); !strings.Contains(out, want) {
			t.Errorf("%s: %s", numbers, out)
		}
	}
	d := newDriver(t, 8)
	d.set(driverInitResult, 9) // not loaded, so the number of devices is unknown
	start(t, d.command("-k=false", "-d", "g:99"))
}

// A signal ends the exporter although a call does not return.
func TestSignalEndsBlockedStart(t *testing.T) {
	d := newDriver(t, 2)
	cmd := d.command("-k=false", "doctor") // calls the driver directly
	blocked, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(blocked.Close(), hold.Close()) })
	cmd.Stdin = blocked
	d.set(driverStallCount, 1)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	for d.get(driverStalled) == 0 && timer.Stop() {
		timer.Reset(waitLimit)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, want exit status 1", err)
	}
}

// Any pod of the cluster can send a request. Its headers do not take the exporter to the memory
// limit of its container.
func TestLargeHeadersAreRefused(t *testing.T) {
	cmd := command(t, "--source=sim", "-k=false")
	cmd.Path = buildExporter(t)
	p := start(t, cmd)
	p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL")
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			if status := p.statusFor(strings.Repeat("*;c=d,", 170_000)); status != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("the response has status %d, want 431", status)
			}
		})
	}
	clients.Wait()
	if status := p.statusFor(strings.Repeat("*;c=d,", 2000)); status != http.StatusOK {
		t.Errorf("the response to 12 kB has status %d, want 200", status)
	}
	if peak := peakMemory(t, p.Process.Pid); peak > memoryLimit*3/4 {
		t.Errorf("the exporter used %d MiB, more than three quarters of its limit", peak>>20)
	}
}

// statusFor requests the metrics with a header Accept and returns the status. The server may respond
// before it has read the request.
func (p *process) statusFor(accept string) int {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
	if err != nil {
		p.t.Error(err)
		return 0
	}
	defer conn.Close()
	go func() {
		_, _ = conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: " + accept + "\r\n\r\n"))
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.t.Error(err)
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
