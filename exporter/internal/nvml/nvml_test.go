package nvml

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func (f *fake) open() *Source {
	s := New(f.path, slog.New(slog.DiscardHandler))
	f.t.Cleanup(func() {
		f.unstall()
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

func list(t *testing.T, s *Source) []device.Device {
	t.Helper()
	devices, err := s.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func want(t *testing.T, r device.Reading, f device.Field, v float64) {
	t.Helper()
	if got, ok := r.Get(f); !ok || got != v {
		t.Errorf("field %d is %g (%t), want %g", f, got, ok, v)
	}
}

func absent(t *testing.T, r device.Reading, f device.Field) {
	t.Helper()
	if got, ok := r.Get(f); ok {
		t.Errorf("field %d is %g, want it absent", f, got)
	}
}

func TestEveryFieldHasItsValueAndUnit(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	if len(devices) != 8 {
		t.Fatalf("%d devices", len(devices))
	}
	d := devices[2]
	if d.UUID != f.uuid(2) || d.Minor != "nvidia2" || d.PCIBusID != "00000000:1D:00.0" || d.Model != "NVIDIA H100 80GB HBM3" || d.MemoryMiB != 81559 || d.Driver != "580.1.fake" || !d.TellsXIDs {
		t.Fatalf("%+v", d)
	}
	r, err := s.Read(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	for field, v := range map[device.Field]float64{
		device.SMClock: 1980, device.MemClock: 2619, device.GPUTemp: 42, device.MemoryTemp: 52, device.PowerUsage: 300.002, device.PowerLimit: 700,
		device.TotalEnergy: 5_000_002, device.PCIeReplay: 2, device.GPUUtil: 12, device.MemCopyUtil: 5, device.EncUtil: 1, device.DecUtil: 2,
		device.FBUsed: 1000, device.FBReserved: 559, device.FBFree: 80000,
		device.FBTotal: 81559, device.FBUsedRatio: 1000.0 / 81000,
		device.ECCSingleVolatile: 3e9 + 2, device.ECCDoubleVolatile: 4e9 + 2, device.ECCSingleAggregate: 5e9 + 2, device.ECCDoubleAggregate: 6e9 + 2,
		device.RetiredSingle: 29e9 + 2, device.RetiredDouble: 30e9 + 2, device.RetiredPending: 31e9 + 2,
		device.PowerViolation: 74e9 + 2, device.ThermalViolation: 75e9 + 2, device.SyncBoostViolation: 76e9 + 2,
		device.BoardLimitViolation: 77e9 + 2, device.LowUtilViolation: 78e9 + 2, device.ReliabilityViolation: 79e9 + 2,
		device.NVLinkTx: 1024 * (138e9 + 2), device.NVLinkRx: 1024 * (139e9 + 2),
		device.CorrectableRemappedRows: 3, device.UncorrectableRemappedRows: 1, device.RowRemapFailure: 0,
	} {
		want(t, r, field, v)
	}
	for field := range device.NumFields {
		if _, ok := r.Get(field); !ok {
			t.Errorf("field %d is absent although this driver tells all", field)
		}
	}
}

func TestLinksNameTheirFarEnds(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.device(2, devSwitchless, 1)
	f.unsupported(3, 1<<13|1<<12)
	devices := list(t, f.open())
	if devices[3].TellsXIDs {
		t.Error("a device without events is said to tell XIDs")
	}
	for i, want := range map[int]string{0: device.NVSwitch, 2: devices[3].PCIBusID, 3: ""} {
		if got := strings.Join(devices[i].Links, " "); got != want {
			t.Errorf("device %d is linked with %q, want %q", i, got, want)
		}
	}
}

func TestUnsupportedAndBogusValuesAreAbsent(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.unsupported(0, 1<<6|1<<11) // utilisation and the field value inside a call that succeeds
	f.device(1, devTemperature, 1000)
	s := f.open()
	devices := list(t, s)
	for i, fields := range [][]device.Field{{device.GPUUtil, device.MemCopyUtil, device.MemoryTemp}, {device.GPUTemp}} {
		r, err := s.Read(context.Background(), devices[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range fields {
			absent(t, r, field)
		}
		want(t, r, device.PowerLimit, 700)
	}
}

func TestOneHungOneLostOneBrokenOfEight(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	f.device(1, devState, stateHung)
	f.device(3, devState, stateLost)
	f.device(5, devState, stateReset)
	stalled := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[1]); stalled <- err }()
	if got := list(t, s); len(got) != 8 {
		t.Errorf("%d devices are listed while some are in trouble", len(got))
	}
	for i, d := range devices {
		if i == 1 {
			continue
		}
		_, err := s.Read(context.Background(), d)
		switch i {
		case 3:
			if !errors.Is(err, device.ErrLost) {
				t.Errorf("the lost device: %v", err)
			}
		case 5:
			if err == nil || !strings.Contains(err.Error(), "requires reset") {
				t.Errorf("the device that needs a reset: %v", err)
			}
		default:
			if err != nil {
				t.Errorf("device %d: %v", i, err)
			}
		}
	}
	select {
	case err := <-stalled:
		t.Fatalf("the hung device answered: %v", err)
	default:
	}
	f.unstall()
	if err := <-stalled; err != nil {
		t.Errorf("the device that answers again: %v", err)
	}
}

func TestDriverUnloadedAndBack(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	f.set(wordGone, 1)
	f.set(wordInitResult, 9)
	for _, d := range devices[:2] {
		if _, err := s.Read(context.Background(), d); err == nil || errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "the driver went away") {
			t.Errorf("reading without the driver: %v", err)
		}
	}
	if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "Driver Not Loaded") {
		t.Fatalf("listing without the driver: %v", err)
	}
	f.set(wordInitResult, 0)
	f.set(wordCount, 7)
	back := list(t, s)
	if len(back) != 7 {
		t.Fatalf("%d devices after the reload", len(back))
	}
	if _, err := s.Read(context.Background(), back[6]); err != nil {
		t.Fatal(err)
	}
	if inits := f.get(wordInits); inits != 3 {
		t.Errorf("the library was initialised %d times, want 3: at the start, in vain, and after the reload", inits)
	}
}

func TestXIDsComeOnce(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	list(t, s)
	f.xid(4, 79)
	f.xid(4, 31)
	got := s.XIDs()
	if len(got) != 2 || got[0] != (device.XID{UUID: f.uuid(4), Code: 79}) || got[1].Code != 31 {
		t.Fatalf("XIDs are %v", got)
	}
	if again := s.XIDs(); len(again) != 0 {
		t.Fatalf("they came again: %v", again)
	}
}

// A lost device's XID is what tells why it is lost, yet it gives its UUID no more.
func TestXIDOfALostDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	list(t, s)
	f.device(4, devState, stateLost)
	f.xid(4, 79)
	if got := s.XIDs(); len(got) != 1 || got[0] != (device.XID{UUID: f.uuid(4), Code: 79}) {
		t.Fatalf("XIDs are %v", got)
	}
}

func TestOldDriverLacksCalls(t *testing.T) {
	f := inFake(t, "-DOLD_DRIVER")
	if f == nil {
		return
	}
	s := f.open()
	r, err := s.Read(context.Background(), list(t, s)[0])
	if err != nil {
		t.Fatal(err)
	}
	want(t, r, device.FBUsed, 1559)
	want(t, r, device.FBFree, 80000)
	for _, field := range []device.Field{device.FBReserved, device.CorrectableRemappedRows, device.MemoryTemp} {
		absent(t, r, field)
	}
}

func TestDriverThatIsTooOldIsAnErrorNotTheEnd(t *testing.T) {
	f := inFake(t, "-DWITHOUT_UUID")
	if f == nil {
		return
	}
	s := f.open()
	if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "has no nvmlDeviceGetUUID") {
		t.Fatalf("%v", err)
	}
}

func TestCallsPerReadingAreBounded(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	before := f.get(wordCalls)
	if _, err := s.Read(context.Background(), devices[0]); err != nil {
		t.Fatal(err)
	}
	if calls := f.get(wordCalls) - before; calls != uint64(len(getters)) {
		t.Errorf("a reading takes %d calls, want one for each of %d getters", calls, len(getters))
	}
}

func TestNoLibraryIsAnErrorThatSaysSo(t *testing.T) {
	s := New(t.TempDir()+"/libnvidia-ml.so.1", slog.New(slog.DiscardHandler))
	start := time.Now()
	for range 2 {
		if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "library not found") {
			t.Fatalf("after %s: %v", time.Since(start), err)
		}
	}
}
