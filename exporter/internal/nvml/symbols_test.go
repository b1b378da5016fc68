package nvml

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// always are in every driver that there has been since 2013: they are called
// without a look.
var always = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3",
}

// symbols that the fake has and a driver may lack.
func symbols(t *testing.T, library string) []string {
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
		if strings.HasPrefix(s.Name, "nvml") && !slices.Contains(always, s.Name) {
			out = append(out, s.Name)
		}
	}
	return out
}

// without a symbol, which is renamed, a copy of the library.
func without(t *testing.T, library, symbol string) string {
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

// Calling a function that the driver lacks ends the process, so each is looked up.
func TestADriverMayLackAnyCall(t *testing.T) {
	if name := os.Getenv("PLIMSOLL_FAKE_TEST"); name != "" {
		t.Run(filepath.Base(name), readWithout)
		return
	}
	library := compile(t, nil)
	all := symbols(t, library)
	if len(all) < 40 {
		t.Fatalf("the fake has only %q", all)
	}
	for _, symbol := range all {
		t.Run(symbol, func(t *testing.T) { run(t, without(t, library, symbol)) })
	}
}

func readWithout(t *testing.T) {
	f := openFake(t)
	f.cut(1, 0, instance{1, 1, 10, 7, 0})
	s := f.open()
	devices, err := s.Devices(t.Context())
	if slices.Contains(needed, filepath.Base(t.Name())) {
		if err == nil {
			t.Error("it does not say what is missing")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices[:2] {
		told := 0
		for range 2 {
			r := read(t, s, d)
			for _, i := range r.Instances {
				read(t, s, i)
			}
			told = 0
			for field := range device.NumFields {
				if _, ok := r.Get(field); ok {
					told++
				}
			}
		}
		if told < 15 {
			t.Errorf("%s tells only %d fields", d.UUID, told)
		}
	}
	s.XIDs()
}
