package tpu

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// trie is /proc/PID/net/fib_trie of a pod whose address is ip.
const trie = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     |-- %[1]s
        /32 host LOCAL
`

// process in a fake procfs.
func process(t *testing.T, root string, pid int, namespace, ip, environ string, nodes ...string) {
	t.Helper()
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "fd"), 0o755), os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.MkdirAll(filepath.Join(dir, "net"), 0o755),
		os.Symlink(namespace, filepath.Join(dir, "ns/net")), os.WriteFile(filepath.Join(dir, "net/fib_trie"), fmt.Appendf(nil, trie, ip), 0o600),
		os.WriteFile(filepath.Join(dir, "environ"), []byte("A=b\x00"+environ+"\x00"), 0o600), os.Symlink("/dev/null", filepath.Join(dir, "fd/0")))
	for i, node := range nodes {
		err = errors.Join(err, os.Symlink(filepath.Join(root, "dev", node), filepath.Join(dir, "fd", strconv.Itoa(3+i))))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func inside(sysfs, root string) *Source {
	return New(Options{Sysfs: sysfs, Procfs: filepath.Join(root, "proc"), Dev: filepath.Join(root, "dev"), Ports: "9", Log: slog.New(slog.DiscardHandler)})
}

func TestServicesAreWhereTheProcessesAreThatHoldChips(t *testing.T) {
	root := t.TempDir()
	process(t, root, 1, "net:[1]", "10.0.0.1", "")
	if err := os.Symlink("1", filepath.Join(root, "proc/self")); err != nil {
		t.Fatal(err)
	}
	process(t, root, 20, "net:[2]", "10.4.0.7", "", "vfio/0", "vfio/vfio")
	process(t, root, 30, "net:[3]", "10.4.0.8", "TPU_RUNTIME_METRICS_PORTS=9001,9002", "vfio/1")
	process(t, root, 31, "net:[3]", "10.4.0.8", "TPU_RUNTIME_METRICS_PORTS=9001,9002", "vfio/2")
	process(t, root, 40, "net:[1]", "10.0.0.1", "", "vfio/3", "vfio/3")
	s := inside(host(t, "0x0063", "0x0063", "0x0063", "0x0063"), root)
	read(t, s)
	var got []string
	groups, _ := s.processes()
	for _, g := range groups {
		got = append(got, fmt.Sprint(g.chips, g.addresses))
	}
	if diff := cmp.Diff([]string{"[0] [10.4.0.7:8431]", "[1 2] [10.4.0.8:9001 10.4.0.8:9002]", "[3] [localhost:8431]"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTwoWorkloadsOnOneHost(t *testing.T) {
	one, two := start(t, map[string]string{dutyCycle: values(0, "as_double", 10)}), start(t, map[string]string{dutyCycle: values(0, "as_double", 20, 30)})
	root := t.TempDir()
	process(t, root, 20, "net:[2]", "127.0.0.1", "TPU_RUNTIME_METRICS_PORTS="+one.address[len("127.0.0.1:"):], "vfio/2")
	s := inside(host(t, "0x0063", "0x0063", "0x0063", "0x0063"), root)
	// Loopback addresses are no pod's, so both are localhost; the second is in a network of its own.
	if got := row(read(t, s), device.DutyCycle) + ", " + row(read(t, s), device.Workload); got != "- - 10 -, 0 0 1 0" {
		t.Errorf("one workload: %s", got)
	}
	s.o.Runtimes = []string{two.address}
	s.o.Held = func(minor string) bool { return minor == "tpu0" || minor == "tpu1" }
	if got := row(read(t, s), device.DutyCycle); got != "20 30 - -" {
		t.Errorf("addresses that are given are not asked: %s", got)
	}
}

func TestWithoutTheHostsProcessesLocalhostIsAsked(t *testing.T) {
	s := inside(host(t, "0x0063"), filepath.Join(t.TempDir(), "nowhere"))
	read(t, s)
	got := s.Services()
	if len(got) != 2 || got[1].Address != "localhost:9" || got[1].State != device.ServiceIdle {
		t.Errorf("%v", got)
	}
	if got[0].Name != "processes" || got[0].State != device.ServiceFailed || !strings.Contains(got[0].Err.Error(), "--tpu-procfs-root") {
		t.Errorf("%v", got)
	}
}

func TestPorts(t *testing.T) {
	for list, want := range map[string]string{
		"":                               "8431 8432",
		" 9001, 9002":                    "9001 9002",
		"9001,0,-1,65536,x,,+2,9 9,9002": "9001 9002",
		"evil.example:80":                "8431 8432",
		"1,2,3,4,5,6,7,8,9,10":           "1 2 3 4 5 6 7 8",
	} {
		if got := strings.Join(ports(list, 2), " "); got != want {
			t.Errorf("ports of %q are %s, want %s", list, got, want)
		}
	}
	if got := strings.Join(ports("", 12), " "); got != "8431 8432 8433 8434 8435 8436 8437 8438" {
		t.Errorf("ports of 12 processes are %s", got)
	}
}

func TestADriverThatBindsLater(t *testing.T) {
	root, sysfs := t.TempDir(), t.TempDir()
	path := pci(t, sysfs, "0000:00:04.0", map[string]string{"vendor": vendor, "device": "0x0063"})
	process(t, root, 20, "net:[2]", "10.4.0.7", "", "vfio/5")
	s := inside(sysfs, root)
	for _, want := range []string{" []", "tpu5 [0]"} {
		devices, err := s.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var held []int
		if groups, _ := s.processes(); len(groups) > 0 {
			held = groups[0].chips
		}
		if got := fmt.Sprint(devices[0].Minor, " ", held); got != want {
			t.Errorf("the chip's minor and which are held: %q, want %q", got, want)
		}
		_ = os.Symlink("../../../kernel/iommu_groups/5", filepath.Join(path, "iommu_group")) // the second time it is there
	}
}

// Pods come and go, each with an address of its own.
func TestServicesThatAreGoneAreForgotten(t *testing.T) {
	s := source(host(t, "0x0063"))
	for range 3 {
		s.o.Runtimes = []string{impostor(t, "no gRPC")}
		read(t, s)
	}
	if len(s.said) != 1 {
		t.Errorf("of one service %d are remembered: %v", len(s.said), s.said)
	}
}
