package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

var update = flag.Bool("update", false, "write the golden files")

// counted is what changes with every metric that is added.
var counted = regexp.MustCompile(`gives \d+ of \d+ metrics(; it does not tell [A-Z0-9_ ]+)?`)

// procfs of a container that sees the host's processes.
func procfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "2", "comm"), []byte("kthreadd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestDoctorSaysWhichMetricsANodeGivesAndWhyNotOthers(t *testing.T) {
	whole := newDriver(t, 2)
	old := newDriver(t, 2, "-DOLD_DRIVER")
	old.set(driverVersionWord, 450)
	half := newDriver(t, 2)
	half.set(driverDevices+driverDeviceWords, 1) // the second is lost
	kubelet := fake.Start(t)
	kubelet.Allocatable("nvidia.com/gpu", "GPU-000000a0-0000-4000-8000-000000000000", "GPU-000000a1-0000-4000-8000-000000000001")
	for name, c := range map[string]struct {
		command *exec.Cmd
		code    int
	}{
		"whole": {whole.command("doctor", "--pod-resources-kubelet-socket="+kubelet.Socket, "--procfs-root="+procfs(t)), 0},
		"json":  {whole.command("doctor", "-o", "json", "--pod-resources-kubelet-socket="+kubelet.Socket, "--procfs-root="+procfs(t)), 0},
		"old":   {old.command("doctor", "-k=false", "--procfs-root="+t.TempDir()), 0},
		"half":  {half.command("doctor", "-k=false", "--procfs-root="+procfs(t)), 1},
		"wrong": {command(t, "doctor", "--no-such-option"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.command.CombinedOutput()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			if code != c.code {
				t.Errorf("it ends with %d, not %d", code, c.code)
			}
			path := filepath.Join("testdata", "doctor-"+name+".txt")
			out = counted.ReplaceAll(out, []byte("gives N of M metrics; it does not tell …"))
			if *update {
				if err := os.WriteFile(path, out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(golden), string(out)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
