package nvml

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
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
	if got, ok := r.Get(f); !ok || math.Abs(got-v) > 1e-9*v {
		t.Errorf("field %d is %g (%t), want %g", f, got, ok, v)
	}
}

// clocked reads a device at a time since its first reading, and fails on errors.
func (s *Source) clocked(t *testing.T, d device.Device) func(since time.Duration) device.Reading {
	start := time.Now()
	return func(since time.Duration) device.Reading {
		t.Helper()
		s.now = func() time.Time { return start.Add(since) }
		r, err := s.Read(context.Background(), d)
		if err != nil {
			t.Fatal(err)
		}
		return r
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
	if d.UUID != f.uuid(2) || d.Minor != "nvidia2" || d.PCIBusID != "00000000:1D:00.0" || d.Model != "NVIDIA H100 80GB HBM3" || d.MemoryMiB != 81559 || d.Driver != "580.1.fake" || !d.ReportsXIDs {
		t.Fatalf("%+v", d)
	}
	read := s.clocked(t, d)
	first := read(0)
	for _, field := range []device.Field{device.NVLinkBandwidth, device.PCIeTx, device.EngineActive} {
		absent(t, first, field) // of the time between two readings
	}
	f.device(2, devNVLink, 3000)
	r := read(2 * time.Second)
	for field, v := range map[device.Field]float64{
		device.SMClock: 1980, device.MemClock: 2619, device.GPUTemp: 42, device.MemoryTemp: 52, device.PowerUsage: 300.002, device.PowerLimit: 700,
		device.TotalEnergy: 5_000_002, device.PCIeReplay: 2, device.GPUUtil: 12, device.MemCopyUtil: 5, device.EncUtil: 1, device.DecUtil: 2,
		device.FBUsed: 1000, device.FBReserved: 559, device.FBFree: 80000,
		device.FBTotal: 81559, device.FBUsedRatio: 1000.0 / 81000,
		device.ECCSingleVolatile: 3e9 + 2, device.ECCDoubleVolatile: 4e9 + 2, device.ECCSingleAggregate: 5e9 + 2, device.ECCDoubleAggregate: 6e9 + 2,
		device.RetiredSingle: 29e9 + 2, device.RetiredDouble: 30e9 + 2, device.RetiredPending: 31e9 + 2,
		device.NVLinkFlitErrors: 38e9 + 2, device.NVLinkDataErrors: 45e9 + 2, device.NVLinkReplays: 52e9 + 2, device.NVLinkRecoveries: 59e9 + 2,
		device.PowerViolation: 74e9 + 2, device.ThermalViolation: 75e9 + 2, device.SyncBoostViolation: 76e9 + 2,
		device.BoardLimitViolation: 77e9 + 2, device.LowUtilViolation: 78e9 + 2, device.ReliabilityViolation: 79e9 + 2,
		device.SWThermalSlowdown: 251e9 + 2, device.HWThermalSlowdown: 252e9 + 2, device.HWPowerBrake: 253e9 + 2,
		device.NVLinkTx: 1024 * 3138, device.NVLinkRx: 1024 * 3139, device.NVLinkBandwidth: 2.048,
		device.PCIeTxBytes: 5e9 + 197, device.PCIeRxBytes: 5e9 + 198, device.PCIeTx: 20 << 20, device.PCIeRx: 21 << 20,
		device.EngineActive: 0.41, device.SMActive: 0.42, device.SMOccupancy: 0.43, device.TensorActive: 0.45, device.DRAMActive: 0.5,
		device.FP64Active: 0.51, device.FP32Active: 0.52, device.FP16Active: 0.53,
		device.PowerManagementLimit: 650, device.PowerMin: 200.002, device.PowerMax: 700.002, device.PowerDefault: 600.002,
		device.ClockEvents: 4, device.SlowdownTemp: 89, device.ThermalMargin: 45, device.VGPULicensed: 1,
		device.CorrectableRemappedRows: 3, device.UncorrectableRemappedRows: 1, device.RowRemapFailure: 0,
	} {
		want(t, r, field, v)
	}
	for field := range device.FirstTPUField {
		if _, ok := r.Get(field); !ok {
			t.Errorf("field %d is absent although this driver tells all", field)
		}
	}
}

func TestFactsOfADevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.unsupported(3, 1<<22|1<<25)
	devices := list(t, f.open())
	want := device.Facts{Serial: "serial-2", VBIOS: "96.00.02", Library: "12.580.1.fake", InfoROM: "G520.0002", InfoROMOEM: "oem-2", InfoROMECC: "ecc-2", InfoROMPower: "power-2"}
	if got := devices[2].Facts; got != want {
		t.Errorf("%+v", got)
	}
	if got := devices[3].Facts; got != (device.Facts{VBIOS: "96.00.03", Library: want.Library, InfoROM: "G520.0003"}) {
		t.Errorf("without a serial and versions of the objects: %+v", got)
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
	if devices[3].ReportsXIDs {
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
	f.unsupported(0, 1<<6|1<<11) // utilization and the field value inside a call that succeeds
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
			if r.Bogus(field) != (i == 1) {
				t.Errorf("field %d of device %d: bogus is %t", field, i, r.Bogus(field))
			}
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
		t.Errorf("the library was initialized %d times, want 3: at the start, in vain, and after the reload", inits)
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
	read := s.clocked(t, devices[0])
	for i, extra := range []uint64{3, 1, 1} { // once it is asked for support and two samples; then a sample comes before the metrics
		before := f.get(wordCalls)
		read(time.Duration(i) * time.Second)
		if calls := f.get(wordCalls) - before; calls != uint64(len(getters))+extra {
			t.Errorf("reading %d takes %d calls, want one for each of %d getters and %d", i, calls, len(getters), extra)
		}
	}
}

// A device's monitors are refreshed ten times a second: a sample too soon would
// tell of nothing.
func TestSamplesAreTakenApartAndGivenBack(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	read := s.clocked(t, list(t, s)[0])
	read(0)
	absent(t, read(99*time.Millisecond), device.TensorActive)
	want(t, read(100*time.Millisecond), device.TensorActive, 0.45)
	f.device(0, devGPM, 20)
	want(t, read(150*time.Millisecond), device.TensorActive, 0.45)
	want(t, read(200*time.Millisecond), device.TensorActive, 0.25)
	if n := f.get(wordSamples); n != 2 {
		t.Errorf("%d samples are kept, want 2", n)
	}
	if err := s.Close(); err != nil || f.get(wordSamples) != 0 {
		t.Errorf("%d samples are left: %v", f.get(wordSamples), err)
	}
}

func TestBeforeHopperPCIeIsTheRateOfItsCounters(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.unsupported(0, 1<<15)
	f.device(1, devNarrow, 1)
	f.unsupported(1, 1<<15)
	s := f.open()
	devices := list(t, s)
	read, narrow := s.clocked(t, devices[0]), s.clocked(t, devices[1])
	absent(t, read(0), device.PCIeTx)
	narrow(0)
	f.device(0, devPCIe, 8_000_000_000)
	f.device(1, devPCIe, 8_000_000_000)
	r := read(2 * time.Second)
	want(t, r, device.PCIeTx, 1.5e9)
	want(t, r, device.PCIeRx, 1.5e9)
	absent(t, r, device.TensorActive)
	for _, field := range []device.Field{device.PCIeTx, device.PCIeTxBytes} {
		absent(t, narrow(2*time.Second), field) // 32 bits of it wrap in a tenth of a second
	}
	f.device(0, devPCIe, 0)
	if r = read(3 * time.Second); r.Bogus(device.PCIeTx) {
		t.Error("a counter that began anew makes a rate")
	}
	absent(t, r, device.PCIeTx)
}

func TestFieldsThatMovedAreAskedAsTheDriverHasThem(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for driver, want := range map[uint64]float64{550: 0, 570: 251e9, 580: 251e9, 590: 0, 595: 269e9, 600: 269e9} {
		f.set(wordDriver, driver)
		s := f.open()
		r := s.clocked(t, list(t, s)[0])(0)
		if got, ok := r.Get(device.SWThermalSlowdown); got != want || ok != (want > 0) {
			t.Errorf("driver %d: slowed down for %g ns (%t), want %g", driver, got, ok, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHeatLeftUntilTheSlowdown(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.unsupported(0, 1<<19)
	f.unsupported(1, 1<<19|1<<18)
	s := f.open()
	devices := list(t, s)
	want(t, s.clocked(t, devices[0])(0), device.ThermalMargin, 49) // of 89 °C
	absent(t, s.clocked(t, devices[1])(0), device.ThermalMargin)
}

func TestLicense(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.device(0, devLicensed, 0)
	f.device(1, devLicensed, 1)
	s := f.open()
	devices := list(t, s)
	absent(t, s.clocked(t, devices[0])(0), device.VGPULicensed)
	want(t, s.clocked(t, devices[1])(0), device.VGPULicensed, 0)
}

func TestACallThatFailsCostsItsOwnFieldsAlone(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.device(0, devFailing, 1<<2|1<<21)
	f.device(0, devFailure, 999)
	s := f.open()
	read := s.clocked(t, list(t, s)[0])
	read(0)
	r := read(time.Second)
	absent(t, r, device.PowerUsage)
	absent(t, r, device.TensorActive)
	want(t, r, device.PowerLimit, 700)
	f.device(0, devFailing, 0)
	read(2 * time.Second)
	want(t, read(3*time.Second), device.TensorActive, 0.45)
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

// A call that stalled before the driver was loaded anew, and returns after that,
// says nothing about the new one.
func TestALateAnswerLeavesTheReloadedDriverAlone(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	f.device(1, devState, stateHung)
	late := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[1]); late <- err }()
	for f.get(wordStalled) == 0 {
		runtime.Gosched()
	}
	f.device(1, devState, stateOK)
	f.set(wordGone, 1)
	if _, err := s.Read(context.Background(), devices[0]); err == nil {
		t.Fatal("a driver that is gone answers")
	}
	list(t, s)
	shutdowns := f.get(wordShutdowns)
	f.set(wordGone, 1) // so that the late one finds its session over
	f.unstall()
	if err := <-late; err == nil || !strings.Contains(err.Error(), "the driver went away") {
		t.Errorf("the late one: %v", err)
	}
	if n := f.get(wordShutdowns); n != shutdowns {
		t.Errorf("it ended the new session: %d shutdowns, want %d", n, shutdowns)
	}
}
