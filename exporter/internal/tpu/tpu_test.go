package tpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestChipsOfSysfs(t *testing.T) {
	root := t.TempDir()
	v3 := pci(t, root, "0000:00:04.0", map[string]string{"vendor": vendor, "device": "0x0027", "subsystem_device": "0x004f"})
	v6e := pci(t, root, "0000:00:05.0", map[string]string{"vendor": vendor, "device": "0x006f", "subsystem_device": "0x0001"})
	pci(t, root, "0000:00:06.0", map[string]string{"vendor": "0x8086", "device": "0x006f"})
	pci(t, root, "0000:00:07.0", map[string]string{"vendor": vendor, "device": "0x0042"}) // its network card
	if err := errors.Join(os.MkdirAll(filepath.Join(v3, "accel/accel0"), 0o755), os.Symlink("../../../kernel/iommu_groups/7", filepath.Join(v6e, "iommu_group"))); err != nil {
		t.Fatal(err)
	}
	s := source(root, "127.0.0.1:1")
	devices, err := s.Devices(t.Context())
	if err != nil || len(devices) != 2 {
		t.Fatalf("devices %+v, %v; want a v3 and a v6e", devices, err)
	}
	if d := devices[0]; d.Model != "tpu-v3-slice" || d.MemoryMiB != 16<<10 || d.Minor != "tpu0" {
		t.Errorf("v3 is %+v", d)
	}
	if d := devices[1]; d.Model != "tpu-v6e-slice" || d.MemoryMiB != 32<<10 || d.Minor != "tpu7" || d.Index != 1 {
		t.Errorf("v6e is %+v", d)
	}
	if err := os.RemoveAll(v3); err != nil {
		t.Fatal(err)
	}
	if devices, err = s.Devices(t.Context()); err != nil || len(devices) != 2 {
		t.Fatalf("after the loss %+v, %v; want both still", devices, err)
	}
	if _, err := s.Read(t.Context(), devices[0]); !errors.Is(err, device.ErrLost) {
		t.Errorf("lost chip answers %v", err)
	}
	if _, err := s.Read(t.Context(), devices[1]); err != nil {
		t.Errorf("other chip answers %v", err)
	}
}

func TestAHostWithoutChipsIsNone(t *testing.T) {
	root := t.TempDir()
	pci(t, root, "0000:00:07.0", map[string]string{"vendor": vendor, "device": "0x0042"})
	if _, err := source(root).Devices(t.Context()); err == nil || !strings.Contains(err.Error(), "no TPU among the PCI devices") {
		t.Errorf("%v", err)
	}
	if _, err := source(filepath.Join(root, "nowhere")).Devices(t.Context()); err == nil || !strings.Contains(err.Error(), "--tpu-sysfs-root") {
		t.Errorf("%v", err)
	}
}

func TestEachChipHasItsOwnValues(t *testing.T) {
	l := start(t, map[string]string{
		memoryTotal: values(404, "as_int", 33<<30, 34<<30),
		memoryUsed:  values(404, "as_int", 0, 2<<30),
		// In another order than the chips.
		dutyCycle:  values(405, "as_double", 99.5) + values(404, "as_double", 0),
		sliceError: `metrics{attribute{key:"a" value{kvlist_attr{attributes{key:"type" value{string_attr:"x"}}}}} gauge{as_int:1}}`,
		queueSize: `metrics{attribute{key:"a" value{kvlist_attr{attributes{key:"device_ordinal" value{string_attr:"1"}}}}} gauge{as_int:0}}
		            metrics{attribute{key:"a" value{kvlist_attr{attributes{key:"core_type" value{string_attr:"TC"}} attributes{key:"device_ordinal" value{int_attr:0}}}}} gauge{as_int:0}}`,
		"hlo.execution.timing.distribution.microseconds": "",
	})
	readings := read(t, source(host(t, "0x006f", "0x006f"), l.address))
	for f, want := range map[device.Field]string{
		device.AcceleratorMemoryTotal: "3.5433480192e+10 3.6507222016e+10", device.AcceleratorMemoryUsed: "0 2.147483648e+09",
		device.DutyCycle: "0 99.5", device.QueuedPrograms: "0 0", device.SliceError: "1 1", device.MegascaleError: "- -",
		device.TensorCoreUtil: "- -", device.Workload: "1 1", device.StalledSeconds: "0 0",
	} {
		if got := row(readings, f); got != want {
			t.Errorf("field %d is %s, want %s", f, got, want)
		}
	}
	for _, name := range l.asked {
		if strings.HasPrefix(name, "hlo.execution") || name == megascaleError {
			t.Errorf("%s was asked for", name)
		}
	}
}

// A v3 chip has two devices, but one duty cycle.
func TestTwoDevicesAreOneChip(t *testing.T) {
	l := start(t, map[string]string{memoryUsed: values(0, "as_int", 1, 2, 3, 4), dutyCycle: values(0, "as_double", 40, 60)})
	readings := read(t, source(host(t, "0x0027/0x004f", "0x0027/0x004f"), l.address))
	if got := row(readings, device.AcceleratorMemoryUsed); got != "3 7" {
		t.Errorf("memory %s", got)
	}
	if got := row(readings, device.DutyCycle); got != "40 60" {
		t.Errorf("duty cycle %s", got)
	}
	// A v6e chip has one: two devices more are nobody's.
	l = start(t, map[string]string{memoryUsed: values(0, "as_int", 1, 2, 3, 4), dutyCycle: values(0, "as_double", 40, 60)})
	s := source(host(t, "0x006f", "0x006f"), l.address)
	readings = read(t, s)
	if got := row(readings, device.AcceleratorMemoryUsed); got != "- -" {
		t.Errorf("memory of nobody's devices %s", got)
	}
	if got := row(readings, device.DutyCycle); got != "40 60" {
		t.Errorf("duty cycle %s", got)
	}
	if services := s.Services(); len(services) != 1 || services[0].Err == nil || !strings.Contains(services[0].Err.Error(), "4 values for 2 chips") {
		t.Errorf("nothing is said of it: %v", services)
	}
}

func TestOnlyTheHeldChipsAreTheWorkloads(t *testing.T) {
	l := start(t, map[string]string{dutyCycle: values(0, "as_double", 70, 80)})
	s := source(host(t, "0x0063", "0x0063", "0x0063", "0x0063"), l.address)
	s.o.Held = func(minor string) bool { return minor == "tpu1" || minor == "tpu3" }
	readings := read(t, s)
	if got := row(readings, device.DutyCycle); got != "- 70 - 80" {
		t.Errorf("duty cycle %s", got)
	}
	if got := row(readings, device.Workload); got != "0 1 0 1" {
		t.Errorf("workloads %s", got)
	}
}

func TestAProcessForEachChip(t *testing.T) {
	a, b := start(t, map[string]string{dutyCycle: values(0, "as_double", 10)}), start(t, map[string]string{dutyCycle: values(0, "as_double", 20)})
	readings := read(t, source(host(t, "0x0063", "0x0063"), a.address, b.address))
	if got := row(readings, device.DutyCycle); got != "10 20" {
		t.Errorf("duty cycle %s", got)
	}
	if !a.alone || !b.alone {
		t.Error("each process is asked for its neighbors' chips as well")
	}
	if read(t, source(host(t, "0x0063"), a.address)); a.alone {
		t.Error("a process that speaks for the node is asked for its own chips only")
	}
}

func TestWhatAServiceIsUpTo(t *testing.T) {
	duty := map[string]string{dutyCycle: values(0, "as_double", 50)}
	for name, c := range map[string]struct {
		set      func(l *libtpu)
		state    device.ServiceState
		says     string
		workload string
		duty     string
	}{
		"serves":      {func(*libtpu) {}, device.ServiceServing, "", "1", "50"},
		"no listener": {func(l *libtpu) { l.stop() }, device.ServiceIdle, "no workload's runtime listens on 127.0.0.1:", "0", "-"},
		"unavailable": {func(l *libtpu) { l.fails = status.Error(codes.Unavailable, "no program yet") }, device.ServiceIdle, "no workload's runtime", "0", "-"},
		"gone midway": {func(l *libtpu) { l.dies = true }, device.ServiceIdle, "no workload's runtime", "0", "-"},
		"internal":    {func(l *libtpu) { l.fails = status.Error(codes.Internal, "boom") }, device.ServiceFailed, "answers Internal: boom", "-", "-"},
		"old libtpu":  {func(l *libtpu) { l.fails = status.Error(codes.Unimplemented, "what?") }, device.ServiceFailed, "libtpu may be too old", "-", "-"},
		"forbidden":   {func(l *libtpu) { l.fails = status.Error(codes.PermissionDenied, "not you") }, device.ServiceFailed, "refuses to tell: not you", "-", "-"},
		"garbage":     {func(l *libtpu) { l.metrics[dutyCycle] = "garbage" }, device.ServiceServing, "dutycycle.percent: the answer is no protobuf", "1", "-"},
		"half listed": {func(l *libtpu) { l.metrics[memoryUsed] = values(0, "as_int", 1); l.unlisted[memoryUsed] = true }, device.ServiceServing, "", "1", "50"},
		"not finite":  {func(l *libtpu) { l.metrics[dutyCycle] = values(0, "as_double", 50) + `metrics{gauge{as_double:nan}}` }, device.ServiceServing, "", "1", "50"},
		"absurd":      {func(l *libtpu) { l.metrics[dutyCycle] = values(0, "as_double", 5000) }, device.ServiceServing, "", "1", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			l := start(t, map[string]string{dutyCycle: duty[dutyCycle]})
			c.set(l)
			s := source(host(t, "0x0063"), l.address)
			readings := read(t, s)
			services := s.Services()
			if len(services) != 1 || services[0].State != c.state || (services[0].Err == nil) != (c.says == "") || c.says != "" && !strings.Contains(services[0].Err.Error(), c.says) {
				t.Errorf("services are %v, want %s: %s", services, c.state, c.says)
			}
			if got := row(readings, device.Workload) + " " + row(readings, device.DutyCycle); got != c.workload+" "+c.duty {
				t.Errorf("workload and duty cycle are %s, want %s %s", got, c.workload, c.duty)
			}
			if got := row(readings, device.AcceleratorMemoryTotal); got != "1.7179869184e+10" {
				t.Errorf("memory %s, want that of a v5e", got)
			}
			if got := row(readings, device.AcceleratorMemoryUsed); got != "-" {
				t.Errorf("memory used %s, want none", got)
			}
		})
	}
}

func TestWhatListensIsSomethingElse(t *testing.T) {
	address := impostor(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	s := source(host(t, "0x0063"), address)
	readings := read(t, s)
	if got := s.Services(); got[0].State != device.ServiceFailed || !strings.Contains(got[0].Err.Error(), "is not the runtime metric service") {
		t.Errorf("%v", got)
	}
	if got := row(readings, device.Workload); got != "-" {
		t.Errorf("whether a workload runs is %s", got)
	}
}

func TestASlowServiceIsLeftAlone(t *testing.T) {
	l := start(t, map[string]string{dutyCycle: values(0, "as_double", 50)})
	release := make(chan struct{})
	l.hangs = release
	s := source(host(t, "0x0063"), l.address)
	readings := read(t, s)
	if got := s.Services(); got[0].State != device.ServiceFailed || !strings.Contains(got[0].Err.Error(), "does not answer within 1s") {
		t.Errorf("%v", got)
	}
	if got := row(readings, device.DutyCycle); got != "-" {
		t.Errorf("duty cycle %s", got)
	}
	l.set(func() { l.hangs = nil })
	close(release)
	if got := row(read(t, s), device.DutyCycle); got != "50" {
		t.Errorf("after it woke the duty cycle is %s", got)
	}
}

func TestARuntimeThatRestarts(t *testing.T) {
	l := start(t, map[string]string{dutyCycle: values(0, "as_double", 50)})
	s := source(host(t, "0x0063"), l.address)
	read(t, s)
	l.stop()
	if got := row(read(t, s), device.DutyCycle); got != "-" {
		t.Errorf("without its service the duty cycle is %s", got)
	}
	l.serve(t)
	if got := row(read(t, s), device.DutyCycle); got != "50" {
		t.Errorf("after the restart the duty cycle is %s", got)
	}
}

// pcs is the state of two chips' cores.
func pcs(zero, one string) string {
	return `core_states{key:1 value{core_id{chip_id:7} sequencer_info{pc:` + one + `}}} core_states{key:0 value{core_id{chip_id:3} sequencer_info{pc:` + zero + `}}}`
}

func TestAHungChipIsTold(t *testing.T) {
	l := start(t, map[string]string{queueSize: values(0, "as_int", 3, 3), uptimeSeconds: `metrics{gauge{as_int:1}}`})
	s := source(host(t, "0x0063", "0x0063"), l.address)
	clock, uptime := time.Unix(1_700_000_000, 0), 1
	s.now = func() time.Time { return clock }
	after := func(seconds int, state string) string {
		clock = clock.Add(time.Duration(seconds) * time.Second)
		uptime += seconds
		l.set(func() {
			l.status = state
			l.metrics[uptimeSeconds] = values(0, "as_int", float64(uptime))
		})
		return row(read(t, s), device.StalledSeconds)
	}
	if got := after(0, pcs("10", "20")); got != "0 0" {
		t.Errorf("at first %s", got)
	}
	if got := after(30, pcs("11", "20")); got != "0 30" {
		t.Errorf("after 30 s, in which one moved, %s", got)
	}
	if got := after(30, pcs("12", "20")); got != "0 60" {
		t.Errorf("after 60 s %s", got)
	}
	l.set(func() { l.metrics[queueSize] = values(0, "as_int", 3, 0) })
	if got := after(30, pcs("13", "20")); got != "0 0" {
		t.Errorf("with nothing queued on the second chip %s", got)
	}
	uptime -= 30 // the runtime's clock stands still
	if got := after(30, pcs("14", "20")); got != "30 0" {
		t.Errorf("of a runtime that stands still %s", got)
	}
	l.set(func() { l.metrics[queueSize] = values(0, "as_int", 3, 3) })
	uptime -= 100 // it restarts
	if got := after(30, pcs("14", "20")); got != "0 0" {
		t.Errorf("of a runtime that has restarted %s", got)
	}
}

// Without program counters the time for which the cores have been idle tells it;
// without either it can't be told.
func TestAHungChipWithoutProgramCounters(t *testing.T) {
	l := start(t, map[string]string{queueSize: values(0, "as_int", 1), idleSeconds: values(0, "as_double", 500)})
	s := source(host(t, "0x0063"), l.address)
	clock := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return clock }
	read(t, s)
	clock = clock.Add(40 * time.Second)
	l.set(func() { l.metrics[idleSeconds] = values(0, "as_double", 540) })
	if got := row(read(t, s), device.StalledSeconds); got != "40" {
		t.Errorf("stalled for %s", got)
	}
	clock = clock.Add(40 * time.Second)
	l.set(func() { l.metrics[idleSeconds] = values(0, "as_double", 3) })
	if got := row(read(t, s), device.StalledSeconds); got != "0" {
		t.Errorf("after it computed, stalled for %s", got)
	}
	l.set(func() { l.unlisted[idleSeconds] = true })
	if got := row(read(t, s), device.StalledSeconds); got != "-" {
		t.Errorf("without any sign, stalled for %s", got)
	}
}
