package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// libraries are the fakes compiled so far, by the compiler's flags.
var libraries = struct {
	folder string
	paths  map[string]string
}{paths: map[string]string{}}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "nvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	libraries.folder = folder
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// compile the fake once for all tests that want it with the same flags.
func compile(t *testing.T, flags []string) (library string) {
	t.Helper()
	key := strings.Join(flags, " ")
	if path, ok := libraries.paths[key]; ok {
		return path
	}
	folder := filepath.Join(libraries.folder, fmt.Sprint(len(libraries.paths)))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	library = filepath.Join(folder, "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1", "-o", library}, flags...)
	if out, err := exec.Command("gcc", append(args, "testdata/fake/fake.c")...).CombinedOutput(); err != nil {
		t.Fatalf("compile the fake of NVIDIA's library: %v\n%s", err, out)
	}
	libraries.paths[key] = library
	return library
}
