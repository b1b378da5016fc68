package tpu

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Lines of /proc/PID/net/if_inet6.
const (
	loopback6  = "00000000000000000000000000000001 01 80 10 80       lo\n"
	linkLocal6 = "fe80000000000000042b1dfffe3a9c01 02 40 20 80     eth0\n"
	tentative6 = "fd00000000000000000000000000000a 02 80 00 c0     eth0\n"
	duplicate6 = "fd00000000000000000000000000000b 02 80 00 88     eth0\n"
	pod6       = "fd000000000000010000000000000007 02 80 00 80     eth0\n"
)

func TestAddressOfWorkload(t *testing.T) {
	for _, tc := range []struct {
		name, ip, inet6 string
		want            string // empty if there is no address
	}{
		{"IPv4", "10.4.0.7", "", "10.4.0.7:8431"},
		{"both", "10.4.0.7", loopback6 + pod6, "10.4.0.7:8431"},
		{"IPv6 only", "127.0.0.1", loopback6 + linkLocal6 + pod6, "[fd00:0:0:1::7]:8431"},
		{"address that cannot be reached", "127.0.0.1", tentative6 + duplicate6 + pod6, "[fd00:0:0:1::7]:8431"},
		{"only local addresses", "127.0.0.1", loopback6 + linkLocal6, ""},
		{"IPv6 is disabled", "127.0.0.1", "", ""},
		{"damaged", "not.an.ip", "x\n0a040007 00 00 00 00 eth0\nzz000000000000010000000000000007 02 80 00 80 eth0\n" + strings.Repeat("fd", 16) + " 02 80 00 zz eth0\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			addOwnNamespace(t, root)
			addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: tc.ip, inet6: tc.inet6, nodes: []string{"vfio/0"}})
			s := newSourceWithProcfs(fakeSysfs(t, "0x0063"), root)
			s.options.Ports = ""
			s.addChip(chip{node: "vfio/0"})
			groups, _, _ := s.findWorkloads(t.Context())
			got := fmt.Sprint(groups[0].addresses)
			if want := "[" + tc.want + "]"; got != want || errors.Is(groups[0].err, errNoAddress) != (tc.want == "") {
				t.Errorf("addresses %s, error %v, want %s", got, groups[0].err, want)
			}
		})
	}
}

// The workload holds its chips although nothing can be read about them. The services on the
// exporter's own localhost belong to another process.
func TestWorkloadWithoutAddressFails(t *testing.T) {
	other := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 70)})
	root := t.TempDir()
	addOwnNamespace(t, root)
	addFakeProcess(t, root, fakeProcess{pid: 20, namespace: "net:[2]", ip: "127.0.0.1", nodes: []string{"vfio/0"},
		environ: "TPU_RUNTIME_METRICS_PORTS=" + other.address[len("127.0.0.1:"):]})
	s := newSourceWithProcfs(fakeSysfs(t, "0x0063", "0x0063"), root)
	readings := readAll(t, s)
	if diff := cmp.Diff("- -, - 0", valuesOf(readings, device.DutyCycle)+", "+valuesOf(readings, device.Workload)); diff != "" {
		t.Errorf("duty cycle, workload: %s", diff)
	}
	services := s.Services()
	if last := services[len(services)-1]; last.Name != "runtime" || last.State != device.ServiceFailed || !errors.Is(last.Err, errNoAddress) {
		t.Errorf("services are %v, want a failed runtime", services)
	}
}

func FuzzPodAddress(f *testing.F) {
	f.Add(fmt.Sprintf(fibTrie, "10.4.0.7"), loopback6+pod6)
	f.Fuzz(func(t *testing.T, v4, v6 string) {
		if address, ok := firstIPv4([]byte(v4)); ok && address.IsLoopback() {
			t.Errorf("%s is a loopback address", address)
		}
		if address, ok := firstIPv6([]byte(v6)); ok && (!address.Is6() || address.IsLoopback()) {
			t.Errorf("%s is no IPv6 address of a pod", address)
		}
	})
}
