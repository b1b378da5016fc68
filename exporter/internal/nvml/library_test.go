package nvml

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestDevicesReportsMissingLibrary(t *testing.T) {
	s := New(t.TempDir()+"/libnvidia-ml.so.1", slog.New(slog.DiscardHandler))
	for attempt := range 2 {
		if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "library not found") {
			t.Fatalf("attempt %d: got error %v", attempt, err)
		}
	}
}

func TestDevicesRejectsDriverWithoutRequiredCall(t *testing.T) {
	f := inFake(t, "-DWITHOUT_UUID")
	if f == nil {
		return
	}
	if _, err := f.open().Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "has no nvmlDeviceGetUUID") {
		t.Fatalf("got error %v", err)
	}
}

// If another driver is loaded, the library stays mapped in this process. A mismatch from the start
// is the same in a new process.
func TestVersionMismatch(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	const mismatch, notLoaded = 18, 9
	s := f.open()
	f.words[wordInitResult] = mismatch
	for range 2 {
		if _, err := s.Devices(t.Context()); err == nil || errors.Is(err, device.ErrRestart) || !strings.Contains(err.Error(), "version mismatch") {
			t.Errorf("from the start: %v", err)
		}
	}
	for _, before := range []uint64{0, notLoaded} {
		f.words[wordInitResult] = before
		if _, err := s.Devices(t.Context()); (err == nil) != (before == 0) || errors.Is(err, device.ErrRestart) {
			t.Errorf("Init returns %d: %v", before, err)
		}
		s.mu.Lock()
		s.reset() // the driver is unloaded
		s.mu.Unlock()
		f.words[wordInitResult] = mismatch
		if _, err := s.Devices(t.Context()); !errors.Is(err, device.ErrRestart) || !strings.Contains(err.Error(), "version mismatch") {
			t.Errorf("after Init returned %d: %v", before, err)
		}
		s.matched = false
	}
}

// uncheckedSymbols are called without a lookup. Every driver since 2013 has them.
var uncheckedSymbols = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3",
}

// optionalSymbols returns the symbols of the fake that a driver may lack.
func optionalSymbols(t *testing.T, library string) []string {
	t.Helper()
	file, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range all {
		if strings.HasPrefix(s.Name, "nvml") && !slices.Contains(uncheckedSymbols, s.Name) {
			out = append(out, s.Name)
		}
	}
	return out
}

// removeSymbol returns a copy of the library in which the symbol is renamed.
func removeSymbol(t *testing.T, library, symbol string) string {
	t.Helper()
	code, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	code = bytes.ReplaceAll(code, []byte("\x00"+symbol+"\x00"), []byte("\x00x"+symbol[1:]+"\x00"))
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(path, code, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Calling a missing function ends the process. The test removes each function in turn and
// reads devices in a child process.
func TestReadWithoutOptionalSymbol(t *testing.T) {
	if name := os.Getenv("PLIMSOLL_FAKE_TEST"); name != "" {
		t.Run(filepath.Base(name), readWithoutSymbol)
		return
	}
	library := compileFake(t, nil)
	symbols := optionalSymbols(t, library)
	if len(symbols) < 40 {
		t.Fatalf("the fake has only the symbols %q", symbols)
	}
	for _, symbol := range symbols {
		t.Run(symbol, func(t *testing.T) { runInChild(t, removeSymbol(t, library, symbol)) })
	}
}

func readWithoutSymbol(t *testing.T) {
	f := openFake(t)
	f.partition(1, 0, fakeInstance{1, 1, 10, 7, 0})
	s := f.open()
	devices, err := s.Devices(t.Context())
	if slices.Contains(requiredSymbols, filepath.Base(t.Name())) {
		if err == nil {
			t.Error("Devices does not report the missing symbol")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices[:2] {
		present := 0
		for range 2 {
			r := readDevice(t, s, d)
			for _, i := range r.Instances {
				readDevice(t, s, i)
			}
			present = 0
			for field := range device.NumFields {
				if _, ok := r.Get(field); ok {
					present++
				}
			}
		}
		if present < 15 {
			t.Errorf("%s has only %d fields", d.UUID, present)
		}
	}
	s.XIDs()
}
