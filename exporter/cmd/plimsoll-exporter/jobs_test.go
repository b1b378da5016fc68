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
	m := &jobMap{folder: t.TempDir(), deadline: patience, log: slog.New(slog.NewTextHandler(&out, nil))}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0", "17\n\n 18 \n")
	write("1", "")
	for index, want := range [][]string{{"17", "18"}, nil, nil} {
		if got := m.of(device.Device{Index: index}); !slices.Equal(got, want) {
			t.Errorf("device %d has %q, want %q", index, got, want)
		}
	}
	if out.Len() > 0 {
		t.Errorf("a device without a job is no fault: %s", out.String())
	}
	write("0", "19\n")
	if got := m.of(device.Device{}); !slices.Equal(got, []string{"19"}) {
		t.Errorf("after the next job began: %q", got)
	}
	if err := os.Mkdir(filepath.Join(m.folder, "3"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m.of(device.Device{Index: 3})
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a fault must be told once: %s", out.String())
	}
}

func TestJobsOfMIGInstances(t *testing.T) {
	m := &jobMap{folder: t.TempDir(), deadline: patience, log: slog.New(slog.DiscardHandler)}
	for name, text := range map[string]string{"0": "17\n", "0.3": "18\n", "1": strings.Repeat("x", 2*maxJobs)} {
		if err := os.WriteFile(filepath.Join(m.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for gi, want := range map[int][]string{3: {"18"}, 4: nil} {
		if got := m.of(device.Device{Instance: &device.Instance{GI: gi}}); !slices.Equal(got, want) {
			t.Errorf("instance %d has %q, want %q", gi, got, want)
		}
	}
	if got := m.of(device.Device{Index: 1}); len(got) != 1 || len(got[0]) != maxJobs {
		t.Error("a file without an end is read to its end")
	}
}

// A FIFO that nobody writes to is read as long as a file whose server is gone.
func TestAFileServerThatDoesNotAnswerCostsTheDeadlineOnce(t *testing.T) {
	var out bytes.Buffer
	m := &jobMap{folder: t.TempDir(), deadline: time.Millisecond, log: slog.New(slog.NewTextHandler(&out, nil))}
	fifo := filepath.Join(m.folder, "0")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(filepath.Join(m.folder, "1"), []byte("17\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m.of(device.Device{})
	stuck := m.pending
	for range 3 {
		if got := m.of(device.Device{Index: 1}); got != nil || m.pending != stuck {
			t.Fatalf("while it does not answer: %q", got)
		}
	}
	if strings.Count(out.String(), "does its file server answer?") != 1 {
		t.Errorf("it says %s", out.String())
	}
	if err := os.WriteFile(fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.deadline = patience
	for m.of(device.Device{Index: 1}) == nil {
		runtime.Gosched()
	}
}

func TestDevicesOptionIsChecked(t *testing.T) {
	o, err := parse(t, "-d", "g:x", "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--devices") {
		t.Errorf("%v", err)
	}
}
