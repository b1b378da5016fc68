package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestJobsOfDevices(t *testing.T) {
	var out bytes.Buffer
	m := &jobMap{directory: t.TempDir(), deadline: waitLimit, log: slog.New(slog.NewTextHandler(&out, nil))}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0", "17\n\n 18 \n17\n")
	write("1", "")
	for index, want := range [][]string{{"17", "18"}, nil, nil} {
		if got := m.jobsOf(device.Device{Index: index}); !slices.Equal(got, want) {
			t.Errorf("device %d has %q, want %q", index, got, want)
		}
	}
	if out.Len() > 0 {
		t.Errorf("a device without a job is logged: %s", out.String())
	}
	write("0", "19\n")
	if got := m.jobsOf(device.Device{}); !slices.Equal(got, []string{"19"}) {
		t.Errorf("after the next job started: %q", got)
	}
	if err := os.Mkdir(filepath.Join(m.directory, "3"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m.jobsOf(device.Device{Index: 3})
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("an error must be logged once: %s", out.String())
	}
}

func TestJobsOfMIGInstances(t *testing.T) {
	m := &jobMap{directory: t.TempDir(), deadline: waitLimit, log: slog.New(slog.DiscardHandler)}
	for name, text := range map[string]string{"0": "17\n", "0.3": "18\n", "1": strings.Repeat("x", 2*maxJobFileSize)} {
		if err := os.WriteFile(filepath.Join(m.directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for gi, want := range map[int][]string{3: {"18"}, 4: nil} {
		if got := m.jobsOf(device.Device{Instance: &device.Instance{GI: gi}}); !slices.Equal(got, want) {
			t.Errorf("instance %d has %q, want %q", gi, got, want)
		}
	}
	if got := m.jobsOf(device.Device{Index: 1}); len(got) != 1 || len(got[0]) != maxJobFileSize {
		t.Error("the size of the file is not limited")
	}
}

// Opening a FIFO without a writer blocks, as reading from a hung file server does.
func TestHungFileServerCostsOneDeadline(t *testing.T) {
	var out bytes.Buffer
	m := &jobMap{directory: t.TempDir(), deadline: time.Millisecond, log: slog.New(slog.NewTextHandler(&out, nil))}
	fifo := filepath.Join(m.directory, "0")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(filepath.Join(m.directory, "1"), []byte("17\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m.jobsOf(device.Device{})
	hung := m.pending
	for range 3 {
		if got := m.jobsOf(device.Device{Index: 1}); got != nil || m.pending != hung {
			t.Fatalf("while the read hangs: %q", got)
		}
	}
	if strings.Count(out.String(), "check its file server") != 1 {
		t.Errorf("log: %s", out.String())
	}
	if err := os.WriteFile(fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.deadline = waitLimit
	for m.jobsOf(device.Device{Index: 1}) == nil {
		runtime.Gosched()
	}
}
