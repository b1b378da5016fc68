package nvml

import (
	"context"
	"errors"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestReadSetsEveryFieldWithItsUnit(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := listDevices(t, s)
	if len(devices) != 8 {
		t.Fatalf("%d devices, want 8", len(devices))
	}
	d := devices[2]
	if d.UUID != f.uuid(2) || d.Minor != "nvidia2" || d.PCIBusID != "00000000:1D:00.0" || d.Model != "NVIDIA H100 80GB HBM3" || d.MemoryMiB != 81559 || d.Driver != "580.1.fake" || !d.ReportsXIDs {
		t.Fatalf("device is %+v", d)
	}
	readAt := s.readerAt(t, d)
	first := readAt(0)
	for _, field := range []device.Field{device.NVLinkBandwidth, device.PCIeTx, device.EngineActive} {
		expectAbsent(t, first, field) // needs two readings
	}
	f.setDevice(2, devNVLink, 3000)
	r := readAt(2 * time.Second)
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
		device.NVLinkTx: 1024 * 3138, device.NVLinkRx: 1024 * 3139, device.NVLinkBandwidth: 2,
		device.PCIeTxBytes: 5e9 + 197, device.PCIeRxBytes: 5e9 + 198, device.PCIeTx: 20 << 20, device.PCIeRx: 21 << 20,
		device.EngineActive: 0.41, device.SMActive: 0.42, device.SMOccupancy: 0.43, device.TensorActive: 0.45, device.DRAMActive: 0.5,
		device.FP64Active: 0.51, device.FP32Active: 0.52, device.FP16Active: 0.53,
		device.PowerManagementLimit: 650, device.PowerMin: 200.002, device.PowerMax: 700.002, device.PowerDefault: 600.002,
		device.ClockEvents: 4, device.SlowdownTemp: 89, device.ThermalMargin: 45, device.VGPULicensed: 1,
		device.NVLinkTxRate: 61 << 20, device.NVLinkRxRate: 60 << 20, device.NVLinkCRCErrors: 163, device.NVLinkHopperReplays: 161, device.NVLinkHopperRecoveries: 162,
		device.NVLinkRecoveriesSucceeded: 213, device.NVLinkRecoveriesFailed: 214, device.NVLinkRecoveryEvents: 215, device.NVLinkSymbolErrors: 221, device.NVLinkEffectiveErrors: 219,
		device.NVLinkMalformedPackets: 206, device.NVLinkReceiveErrors: 208, device.PCIeLinkGeneration: 5, device.PCIeLinkWidth: 16, device.PCIeMaxLinkGeneration: 5, device.PCIeMaxLinkWidth: 16,
		device.FanSpeed: 32, device.PerformanceState: 0, device.FabricStatus: 3, device.FabricClique: 7, device.FabricHealthMask: 0x11, device.FabricHealth: 1,
		device.CorrectableRemappedRows: 3, device.UncorrectableRemappedRows: 1, device.RowRemapFailure: 0, device.RowRemapPending: 1,
	} {
		expectValue(t, r, field, v)
	}
	if r.FabricCluster != "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf" || d.Facts.Brand != "NVIDIA" {
		t.Errorf("fabric %s, brand %s", r.FabricCluster, d.Facts.Brand)
	}
	for field := range device.FirstTPUField {
		if _, ok := r.Get(field); !ok {
			t.Errorf("field %d is absent although the driver supports all fields", field)
		}
	}
}

func TestReadOmitsUnsupportedAndImplausibleValues(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setUnsupported(0, 1<<6|1<<11) // utilization, and the field values of a successful call
	f.setDevice(1, devTemperature, 1000)
	s := f.open()
	devices := listDevices(t, s)
	for i, tc := range []struct {
		name   string
		fields []device.Field
		bogus  bool
	}{
		{"unsupported", []device.Field{device.GPUUtil, device.MemCopyUtil, device.MemoryTemp}, false},
		{"implausible", []device.Field{device.GPUTemp}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := readDevice(t, s, devices[i])
			for _, field := range tc.fields {
				expectAbsent(t, r, field)
				if r.Bogus(field) != tc.bogus {
					t.Errorf("field %d: Bogus is %t, want %t", field, r.Bogus(field), tc.bogus)
				}
			}
			expectValue(t, r, device.PowerLimit, 700)
		})
	}
}

func TestReadMakesOneCallPerGetter(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	readAt := s.readerAt(t, listDevices(t, s)[0])
	// The first reading also queries GPM support and allocates two samples. Every other
	// reading takes a sample before the metrics call.
	for i, extra := range []uint64{3, 1, 1} {
		before := f.get(wordCalls)
		readAt(time.Duration(i) * time.Second)
		if calls := f.get(wordCalls) - before; calls != uint64(len(allDeviceGetters))+extra {
			t.Errorf("reading %d makes %d calls, want %d for the getters and %d for GPM", i, calls, len(allDeviceGetters), extra)
		}
	}
}

func TestReadLicense(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(0, devLicensed, 0)
	f.setDevice(1, devLicensed, 1)
	s := f.open()
	devices := listDevices(t, s)
	expectValue(t, readDevice(t, s, devices[0]), device.VGPULicensed, 0) // as DCGM
	expectValue(t, readDevice(t, s, devices[1]), device.VGPULicensed, 0)
}

// A driver may have the newer memory call and return an error from it.
func TestMemoryFallsBackToOlderCall(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(0, devFailing, 1<<9)
	f.setDevice(0, devFailure, 25) // argument version mismatch
	f.setDevice(1, devUnsupported, 1<<9)
	s := f.open()
	for _, d := range listDevices(t, s)[:2] {
		r := readDevice(t, s, d)
		expectValue(t, r, device.FBUsed, 1559) // includes the reserved memory
		expectValue(t, r, device.FBFree, 80000)
		expectValue(t, r, device.FBTotal, 81559)
		expectAbsent(t, r, device.FBReserved)
	}
}

func TestFailedCallOmitsOnlyItsOwnFields(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(0, devFailing, 1<<2|1<<21) // power usage and GPM samples
	f.setDevice(0, devFailure, 999)
	s := f.open()
	readAt := s.readerAt(t, listDevices(t, s)[0])
	readAt(0)
	r := readAt(time.Second)
	expectAbsent(t, r, device.PowerUsage)
	expectAbsent(t, r, device.TensorActive)
	expectValue(t, r, device.PowerLimit, 700)
	f.setDevice(0, devFailing, 0)
	readAt(2 * time.Second)
	expectValue(t, readAt(3*time.Second), device.TensorActive, 0.45)
}

func TestReadUsesFallbacksOfOldDriver(t *testing.T) {
	f := inFake(t, "-DOLD_DRIVER")
	if f == nil {
		return
	}
	s := f.open()
	r, err := s.Read(context.Background(), listDevices(t, s)[0])
	if err != nil {
		t.Fatal(err)
	}
	expectValue(t, r, device.FBUsed, 1559)
	expectValue(t, r, device.FBFree, 80000)
	for _, field := range []device.Field{device.FBReserved, device.CorrectableRemappedRows, device.MemoryTemp} {
		expectAbsent(t, r, field)
	}
}

func TestReadComputeMode(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(0, devComputeMode, 3)
	s := f.open()
	r, err := s.Read(context.Background(), listDevices(t, s)[0])
	if err != nil {
		t.Fatal(err)
	}
	expectValue(t, r, device.ComputeMode, device.ExclusiveProcess)
}

// Before a device has joined the fabric, its clique is unknown. Older drivers have an older
// structure without the summary of the health.
func TestReadFabric(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(0, devFabricState, 2) // in progress
	f.setDevice(1, devFabricStatus, 999)
	f.setDevice(2, devFabricVersion, 2)
	f.setDevice(3, devClique, 0) // a fabric within the node
	f.setUnsupported(4, 1<<32)
	s := f.open()
	devices := listDevices(t, s)
	for i, want := range []struct {
		status, clique, health float64 // -1 for none
		cluster                string
	}{{2, -1, -1, ""}, {4, -1, -1, ""}, {3, 7, -1, "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"}, {3, 0, 1, ""}, {-1, -1, -1, ""}} {
		r := readDevice(t, s, devices[i])
		for field, v := range map[device.Field]float64{device.FabricStatus: want.status, device.FabricClique: want.clique, device.FabricHealth: want.health} {
			if v < 0 {
				expectAbsent(t, r, field)
			} else {
				expectValue(t, r, field, v)
			}
		}
		if r.FabricCluster != want.cluster {
			t.Errorf("device %d: cluster %s", i, r.FabricCluster)
		}
	}
}

// The driver denies profiling to a container without CAP_SYS_ADMIN.
func TestDeniedCallIsReported(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(0, devFailing, 1<<21) // GPM samples
	f.setDevice(0, devFailure, 4)     // no permission
	f.setDevice(1, devFailing, 1<<2)  // power usage
	f.setDevice(1, devFailure, 999)
	f.setUnsupported(2, 1<<2)
	s := f.open()
	devices := listDevices(t, s)
	failures := func(i int) map[string]error {
		out := map[string]error{}
		for _, call := range readDevice(t, s, devices[i]).Calls {
			if call.Err != nil {
				out[call.Name] = call.Err
			}
		}
		return out
	}
	if got := failures(0); len(got) != 1 || !errors.Is(got["nvmlGpmMetricsGet"], device.ErrDenied) {
		t.Errorf("denied calls: %v", got)
	}
	if got := failures(1); len(got) != 1 || errors.Is(got["nvmlDeviceGetPowerUsage"], device.ErrDenied) {
		t.Errorf("failing calls: %v", got)
	}
	if got := failures(2); len(got) != 0 {
		t.Errorf("an unsupported call counts as failing: %v", got)
	}
}
