package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// devicesWithJobs returns n whole devices with the UUIDs d0, d1 and so on.
func devicesWithJobs(n int) (devices []device.Device) {
	for i := range n {
		devices = append(devices, device.Device{UUID: fmt.Sprintf("d%d", i), Index: i})
	}
	return devices
}

// newTestJobMap returns a job map of an empty directory, and its log.
func newTestJobMap(t *testing.T) (*jobMap, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	m := newJobMap(t.TempDir(), slog.New(slog.NewTextHandler(out, nil)))
	m.deadline = waitLimit
	return m, out
}

func requireJobs(t *testing.T, m *jobMap, devices []device.Device, want map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, m.jobsOf(devices)); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}

func TestJobsOfDevices(t *testing.T) {
	m, out := newTestJobMap(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0", "17\n\n 18 \n17\n")
	write("1", "")
	requireJobs(t, m, devicesWithJobs(3), map[string][]string{"d0": {"17", "18"}})
	if out.Len() > 0 {
		t.Errorf("a device without a job is logged: %s", out.String())
	}
	write("0", "19\n")
	requireJobs(t, m, devicesWithJobs(1), map[string][]string{"d0": {"19"}})
	for _, name := range []string{"3", "4"} {
		if err := os.Mkdir(filepath.Join(m.directory, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		requireJobs(t, m, devicesWithJobs(5), map[string][]string{"d0": {"19"}})
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("an error must be logged once: %s", out.String())
	}
}

func TestJobsOfMIGInstances(t *testing.T) {
	m, _ := newTestJobMap(t)
	for name, text := range map[string]string{"0": "17\n", "0.3": "18\n", "1": strings.Repeat("x", 2*maxJobFileSize)} {
		if err := os.WriteFile(filepath.Join(m.directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	requireJobs(t, m, []device.Device{{UUID: "i3", Instance: &device.Instance{GI: 3}}, {UUID: "i4", Instance: &device.Instance{GI: 4}}}, map[string][]string{"i3": {"18"}})
	if got := m.jobsOf(devicesWithJobs(2))["d1"]; len(got) != 1 || len(got[0]) != maxJobFileSize {
		t.Error("the size of the file is not limited")
	}
}

// Opening a FIFO would wait for a writer. The other devices keep their jobs.
func TestJobFileThatIsAPipe(t *testing.T) {
	m, out := newTestJobMap(t)
	if err := errors.Join(syscall.Mkfifo(filepath.Join(m.directory, "0"), 0o600), os.WriteFile(filepath.Join(m.directory, "1"), []byte("17\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	requireJobs(t, m, devicesWithJobs(2), map[string][]string{"d1": {"17"}})
	if !strings.Contains(out.String(), "must be a regular file, but is a pipe") {
		t.Errorf("log: %s", out.String())
	}
}

// All files together have one deadline, and are read at the same time.
func TestSlowFileServerDelaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, out := newTestJobMap(t)
		m.deadline = time.Second
		m.read = func(string) (string, error) { time.Sleep(400 * time.Millisecond); return "17", nil }
		start := time.Now()
		if got := m.jobsOf(devicesWithJobs(8)); len(got) != 8 || time.Since(start) != 400*time.Millisecond || out.Len() > 0 {
			t.Errorf("%d devices have jobs after %s: %s", len(got), time.Since(start), out)
		}
		m.read = func(string) (string, error) { time.Sleep(3 * time.Second); return "18", nil }
		start = time.Now()
		for range 3 {
			if got := m.jobsOf(devicesWithJobs(8)); len(got) != 0 || time.Since(start) != time.Second {
				t.Errorf("%v after %s", got, time.Since(start))
			}
		}
		if strings.Count(out.String(), "check its file server") != 1 {
			t.Errorf("log: %s", out)
		}
		time.Sleep(3 * time.Second)
		m.read = func(string) (string, error) { return "19", nil }
		requireJobs(t, m, devicesWithJobs(1), map[string][]string{"d0": {"19"}})
	})
}

// A file server that hangs blocks one goroutine for each file, however often the jobs are read.
func TestHungFileServerCostsOneDeadline(t *testing.T) {
	m, out := newTestJobMap(t)
	m.deadline = time.Millisecond
	hung := make(chan struct{})
	var reads atomic.Int64
	m.read = func(string) (string, error) { reads.Add(1); <-hung; return "17", nil }
	for range 4 {
		requireJobs(t, m, devicesWithJobs(2), map[string][]string{})
	}
	if n := reads.Load(); n > 2 {
		t.Errorf("%d reads of two files", n)
	}
	if strings.Count(out.String(), "check its file server") != 1 {
		t.Errorf("log: %s", out)
	}
	close(hung)
	m.deadline = waitLimit
	for len(m.jobsOf(devicesWithJobs(2))) < 2 {
		runtime.Gosched()
	}
}
