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

// manyLines returns a counter file with n fields of short names.
func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("A", 1+i%3) + string(rune('a'+i/3%26)) + string(rune('a'+i/78%26)) + string(rune('a'+i/2028%26)) + ",gauge,\n")
	}
	return b.String()[:min(b.Len(), maxCounterFileSize)]
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
