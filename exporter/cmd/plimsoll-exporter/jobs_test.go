package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestJobsOfDevices(t *testing.T) {
	var out bytes.Buffer
	m := &jobMap{folder: t.TempDir(), log: slog.New(slog.NewTextHandler(&out, nil))}
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

func TestDevicesOptionIsChecked(t *testing.T) {
	o, err := parse(t, "-d", "g:x", "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--devices") {
		t.Errorf("%v", err)
	}
}
