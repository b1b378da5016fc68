package tpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestFindWorkloadsByOpenChips(t *testing.T) {
	root := t.TempDir()
	addOwnNamespace(t, root)
	addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "10.4.0.7", nodes: []string{"vfio/0", "vfio/vfio"}})
	addFakeProcess(t, root, fakeProcess{pid: 30, namespace: "net:[3]", ip: "10.4.0.8", environ: "TPU_RUNTIME_METRICS_PORTS=9001,9002", nodes: []string{"vfio/1"}})
	addFakeProcess(t, root, fakeProcess{pid: 31, namespace: "net:[3]", ip: "10.4.0.8", environ: "TPU_RUNTIME_METRICS_PORTS=9001,9002", nodes: []string{"vfio/2"}})
	addFakeProcess(t, root, fakeProcess{pid: 40, namespace: "net:[1]", ip: "10.0.0.1", nodes: []string{"vfio/3", "vfio/3"}})
	s := newSourceWithProcfs(fakeSysfs(t, "0x0063", "0x0063", "0x0063", "0x0063"), root)
	readAll(t, s)
	var got []string
	groups, _, _ := s.findWorkloads(t.Context())
	for _, g := range groups {
		got = append(got, fmt.Sprint(g.chips, g.addresses))
	}
	if diff := cmp.Diff([]string{"[0] [10.4.0.7:8431]", "[1 2] [10.4.0.8:9001 10.4.0.8:9002]", "[3] [localhost:8431]"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFindWorkloadsReportsUninspectedProcesses(t *testing.T) {
	for _, tc := range []struct {
		name      string
		breakFile string
		nodes     []string
		state     device.ServiceState
	}{
		{"unreadable open files", "fd", nil, device.ServiceFailed},
		{"unreadable environment", "environ", []string{"vfio/0"}, device.ServiceServing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "10.4.0.7", nodes: tc.nodes})
			// A file instead of a folder, or the reverse, cannot be read.
			path := filepath.Join(root, "proc/20", tc.breakFile)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			err = os.RemoveAll(path)
			if info.IsDir() {
				err = errors.Join(err, os.WriteFile(path, nil, 0o600))
			} else {
				err = errors.Join(err, os.Mkdir(path, 0o700))
			}
			if err != nil {
				t.Fatal(err)
			}
			s := newSourceWithProcfs(fakeSysfs(t, "0x0063"), root)
			readAll(t, s)
			if _, service, _ := s.findWorkloads(t.Context()); service.State != tc.state || service.Err == nil || !strings.Contains(service.Err.Error(), path) {
				t.Errorf("service is %v, want %s with an error for %s", service, tc.state, path)
			}
		})
	}
}

// Tenants choose how many files a process opens and how large its environment is.
func TestFindWorkloadsReportsTooLargeProcesses(t *testing.T) {
	root := t.TempDir()
	addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "10.4.0.7", nodes: []string{"vfio/0"}, environ: strings.Repeat("x", maxProcfsFile) + "\x00TPU_RUNTIME_METRICS_PORTS=9001"})
	addFakeProcess(t, root, fakeProcess{pid: 30, namespace: "net:[3]", ip: "10.4.0.8", nodes: []string{"vfio/1"}, environ: "TPU_RUNTIME_METRICS_PORTS=9002\x00" + strings.Repeat("x", maxProcfsFile)})
	addFakeProcess(t, root, fakeProcess{pid: 40, namespace: "net:[4]", ip: "10.4.0.9"})
	for i := range maxOpenFiles {
		if err := os.Symlink("/dev/null", filepath.Join(root, "proc/40/fd", strconv.Itoa(100+i))); err != nil {
			t.Fatal(err)
		}
	}
	s := newSourceWithProcfs(fakeSysfs(t), root)
	s.chips = []chip{{node: "vfio/0"}, {node: "vfio/1"}}
	groups, service, _ := s.findWorkloads(t.Context())
	var got []string
	for _, g := range groups {
		got = append(got, fmt.Sprint(g.chips, g.addresses))
	}
	if diff := cmp.Diff([]string{"[0] [10.4.0.7:8431]", "[1] [10.4.0.8:9002]"}, got); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"proc/20/environ: TPU_RUNTIME_METRICS_PORTS is not in the first 2097152 bytes", "some processes have more than 16384 open files"} {
		if service.State != device.ServiceServing || !strings.Contains(fmt.Sprint(service.Err), want) {
			t.Errorf("service is %v, want it serving with the error %q", service, want)
		}
	}
}

// Very many processes, each with many open files, must not delay the collection.
func TestFindWorkloadsEndsInTime(t *testing.T) {
	root := t.TempDir()
	addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "10.4.0.7"})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s := newSourceWithProcfs(fakeSysfs(t), root)
	if _, err := s.openChips(ctx, filepath.Join(root, "proc/20")); !errors.Is(err, context.Canceled) {
		t.Errorf("the open files of a process are inspected without a limit of time: %v", err)
	}
	_, service, _ := s.findWorkloads(ctx)
	if service.State != device.ServiceFailed || !strings.Contains(fmt.Sprint(service.Err), "not all processes") {
		t.Errorf("service is %v, want it failed", service)
	}
}

// A process that cannot be inspected may hold any allocated chip, so no such chip is idle.
func TestUninspectedProcessHoldsAllocatedChips(t *testing.T) {
	pod := fakeProcess{pid: 20, namespace: "net:[1]", ip: "10.4.0.7"}
	for _, tc := range []struct {
		name     string
		prepare  func(t *testing.T, root string, s *Source)
		workload string // of the two allocated chips and the free one
	}{
		{"no process holds a chip", func(t *testing.T, root string, _ *Source) { addFakeProcess(t, root, pod) }, "0 0 0"},
		{"a process holds a chip", func(t *testing.T, root string, _ *Source) {
			runtime, holder := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 10)}), pod
			holder.nodes, holder.environ = []string{"vfio/0"}, "TPU_RUNTIME_METRICS_PORTS="+runtime.address[len("127.0.0.1:"):]
			addFakeProcess(t, root, holder)
		}, "1 0 0"},
		{"a process holds a chip, another one is unreadable", func(t *testing.T, root string, _ *Source) {
			runtime, holder := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 10)}), pod
			holder.nodes, holder.environ = []string{"vfio/0"}, "TPU_RUNTIME_METRICS_PORTS="+runtime.address[len("127.0.0.1:"):]
			addFakeProcess(t, root, holder)
			addUnreadableProcess(t, root)
		}, "1 - 0"},
		{"a process holds a chip without a service", func(t *testing.T, root string, _ *Source) {
			holder := pod
			holder.nodes, holder.environ = []string{"vfio/0"}, "TPU_RUNTIME_METRICS_PORTS=1" // nothing listens on port 1
			addFakeProcess(t, root, holder)
		}, "- 0 0"},
		{"an unreadable process", func(t *testing.T, root string, _ *Source) {
			addFakeProcess(t, root, pod)
			addUnreadableProcess(t, root)
		}, "- - 0"},
		{"an unreadable process, localhost serves", func(t *testing.T, root string, s *Source) {
			runtime := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 10, 20)})
			s.options.Ports = runtime.address[len("127.0.0.1:"):]
			addUnreadableProcess(t, root)
		}, "1 1 0"},
		{"only the exporter's PID namespace", func(*testing.T, string, *Source) {}, "- - 0"},
		{"no procfs", func(_ *testing.T, root string, s *Source) { s.options.Procfs = filepath.Join(root, "missing") }, "- - 0"},
		{"given addresses", func(t *testing.T, root string, s *Source) {
			addUnreadableProcess(t, root)
			s.options.Runtimes = []string{"127.0.0.1:1"} // nothing listens on port 1
		}, "0 0 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			addOwnNamespace(t, root)
			s := newSourceWithProcfs(fakeSysfs(t, "0x0063", "0x0063", "0x0063"), root)
			s.options.IsAllocated = func(minor string) bool { return minor != "tpu2" }
			tc.prepare(t, root, s)
			if got := valuesOf(readAll(t, s), device.Workload); got != tc.workload {
				t.Errorf("workload is %s, want %s", got, tc.workload)
			}
		})
	}
}

// addUnreadableProcess adds a process whose open files cannot be read.
func addUnreadableProcess(t *testing.T, root string) {
	t.Helper()
	addFakeProcess(t, root, fakeProcess{pid: 30, namespace: "net:[3]", ip: "10.4.0.8"})
	path := filepath.Join(root, "proc/30/fd")
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestReadWorkloadByProcess(t *testing.T) {
	byProcess, byOption := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 10)}), startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 20, 30)})
	root := t.TempDir()
	addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "127.0.0.1", environ: "TPU_RUNTIME_METRICS_PORTS=" + byProcess.address[len("127.0.0.1:"):], nodes: []string{"vfio/2"}})
	s := newSourceWithProcfs(fakeSysfs(t, "0x0063", "0x0063", "0x0063", "0x0063"), root)
	// A loopback address is no pod IP, so the source connects to localhost.
	if got := valuesOf(readAll(t, s), device.DutyCycle) + ", " + valuesOf(readAll(t, s), device.Workload); got != "- - 10 -, 0 0 1 0" {
		t.Errorf("duty cycle and workload are %s, want - - 10 -, 0 0 1 0", got)
	}
	s.options.Runtimes = []string{byOption.address}
	s.options.IsAllocated = func(minor string) bool { return minor == "tpu0" || minor == "tpu1" }
	if got := valuesOf(readAll(t, s), device.DutyCycle); got != "20 30 - -" {
		t.Errorf("with given addresses the duty cycle is %s, want 20 30 - -", got)
	}
}

func TestReadLocalhostWithoutProcfs(t *testing.T) {
	s := newSourceWithProcfs(fakeSysfs(t, "0x0063"), filepath.Join(t.TempDir(), "missing"))
	readAll(t, s)
	got := s.Services()
	if len(got) != 2 || got[1].Address != "localhost:9" || got[1].State != device.ServiceIdle {
		t.Errorf("services are %v, want an idle runtime on localhost:9", got)
	}
	if got[0].Name != "processes" || got[0].State != device.ServiceFailed || !strings.Contains(got[0].Err.Error(), "--tpu-procfs-root") {
		t.Errorf("services are %v, want failed processes", got)
	}
}
