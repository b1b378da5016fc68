//go:build !race

package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

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

func TestDoctorGolden(t *testing.T) {
	healthy := newDriver(t, 2)
	old := newDriver(t, 2, "-DOLD_DRIVER")
	old.set(driverVersionWord, 450)
	lost := newDriver(t, 2)
	lost.set(driverDevices+driverDeviceWords, 1) // the second device is lost
	kubelet := fake.Start(t)
	kubelet.Allocatable("nvidia.com/gpu", "GPU-000000a0-0000-4000-8000-000000000000", "GPU-000000a1-0000-4000-8000-000000000001")
	for name, tc := range map[string]struct {
		command *exec.Cmd
		code    int
	}{
		"healthy":      {healthy.command("doctor", "--pod-resources-kubelet-socket="+kubelet.Socket, "--procfs-root="+hostProcfs(t)), 0},
		"json":         {healthy.command("doctor", "-o", "json", "--pod-resources-kubelet-socket="+kubelet.Socket, "--procfs-root="+hostProcfs(t)), 0},
		"old-driver":   {old.command("doctor", "-k=false", "--procfs-root="+t.TempDir()), 0},
		"lost-device":  {lost.command("doctor", "-k=false", "--procfs-root="+hostProcfs(t)), 1},
		"invalid-flag": {command(t, "doctor", "--no-such-option"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := tc.command.CombinedOutput()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			if code != tc.code {
				t.Errorf("exit status %d, want %d", code, tc.code)
			}
			path := filepath.Join("testdata", "doctor-"+name+".txt")
			out = metricCount.ReplaceAll(out, []byte("provides N of M metrics; missing: …"))
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
